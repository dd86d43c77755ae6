"""The container launcher: Docker by its Python SDK, nothing left behind on any path."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions
import yaml
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Ulimit

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.container import (
    OWNER_LABEL,
    PROJECT_LABEL,
    SCRATCH,
    ContainerSpec,
    Folders,
    Limits,
    make_container_spec,
    tmpfs_options,
)
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.plan import Engine, GpuAccess, Launch
from trtmatrix.effects.launcher import POLL_SECONDS, Ended, Heartbeat, Poll, Ready
from trtmatrix.effects.owner import is_dead, own_identity
from trtmatrix.effects.paths import probe_folder

ENGINE_SECONDS = 0.1
"""How often the engine is asked whether a container still runs: that costs it milliseconds."""
DRIVER_FOLDER = "/usr/local/nvidia"
CDI_KIND = "nvidia.com/gpu"
EMPTIED = (SCRATCH, "/dev/shm")  # noqa: S108 - inside the container, file systems of its own
"""What the probe empties after each cell: it lies in memory, and the next cell would pay for it."""
ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException)

PullNote = Callable[[str, str, int, int], None]
"""Told of each layer: image, layer, bytes so far, bytes in all (0 where not known)."""


def find_engine(*, gpu_here: bool) -> Engine:
    """Ask the engine that Docker's own environment names. None is no error: it is said why."""
    try:
        client = docker.from_env(timeout=20)
        info = client.info()
        images = dict(_references(client))
    except ENGINE_ERRORS as error:
        return Engine(available=False, reason=_engine_reason(error))
    return Engine(
        available=True, version=str(info.get("ServerVersion", "?")), images=images,
        gpu_access=_gpu_access(info) if gpu_here else None,
        root=str(info.get("DockerRootDir", "")),
        driver_folder=DRIVER_FOLDER if Path(DRIVER_FOLDER).is_dir() else None,
    )  # fmt: skip


def _engine_reason(error: Exception) -> str:
    text = str(error)
    if "PermissionError" in text or "Permission denied" in text:
        return "the Docker socket may not be used by this user: add it to the group docker"
    if "FileNotFoundError" in text or "No such file" in text:
        return "no Docker socket: install Docker and start it, or set DOCKER_HOST"
    if "ConnectionRefused" in text or "Connection refused" in text:
        return "nothing answers at Docker's address: start dockerd, or set DOCKER_HOST"
    return f"Docker does not answer: {text[:200]}"


def _references(client: docker.DockerClient) -> Iterator[tuple[str, str]]:
    """Yield every tag and digest of the local images with the image ID."""
    for image in client.api.images():
        for reference in [*(image.get("RepoTags") or []), *(image.get("RepoDigests") or [])]:
            yield reference, image["Id"]


def _gpu_access(info: dict[str, Any]) -> GpuAccess | None:
    """Choose how containers get the GPU: the toolkit, CDI, or plain device nodes."""
    if "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook"):
        return GpuAccess.TOOLKIT
    if _has_cdi_gpus(info):
        return GpuAccess.CDI
    nodes = Path("/dev/nvidiactl").exists() and Path(DRIVER_FOLDER).is_dir()
    return GpuAccess.NODES if nodes else None


def _has_cdi_gpus(info: dict[str, Any]) -> bool:
    """Whether the engine knows GPUs by CDI.

    Docker 28.3 and later list the devices; 25 to 28.2 only name the folders of the specifications,
    which are read here (https://github.com/cncf-tags/container-device-interface).
    """
    devices = [str(item.get("ID", "")) for item in info.get("DiscoveredDevices") or []]
    if any(device.startswith(f"{CDI_KIND}=") for device in devices):
        return True
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or []]
    files = [file for folder in folders for pattern in ("*.json", "*.yaml") for file in folder.glob(pattern)]
    return any(_cdi_kind(file) == CDI_KIND for file in files)


def _cdi_kind(file: Path) -> str:
    """Return the kind of device that a CDI specification is about, or nothing."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(found.get("kind", "")) if isinstance(found, dict) else ""


def remove_leftovers() -> list[str]:
    """Remove containers of this project whose owner is dead; returns their names."""
    client = docker.from_env(timeout=60)
    removed = []
    for container in client.containers.list(all=True, filters={"label": PROJECT_LABEL}, ignore_removed=True):
        if is_dead(container.labels.get(OWNER_LABEL, "")):
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True, v=True)
                removed.append(str(container.name))
    return removed


class ContainerLauncher:
    """One container for the cells of one version on one GPU."""

    def __init__(
        self, *, engine: Engine, cache: Path, repros: Path, limits: Limits, pull_note: PullNote
    ) -> None:
        """Keep what every container needs; the engine is asked on first use."""
        self.engine, self.cache, self.repros = engine, cache, repros
        self.limits, self.pull_note = limits, pull_note
        self._client: docker.DockerClient | None = None

    @property
    def client(self) -> docker.DockerClient:
        """The connection to the engine."""
        if self._client is None:
            self._client = docker.from_env(timeout=120)
        return self._client

    def make_ready(self, launch: Launch) -> Ready:
        """Find the image, pulled now where the plan says so."""
        origin = launch.version.origin
        if not isinstance(origin, ImageOrigin):
            raise MachineryError(f"{launch.version.name} is no container's version")
        try:
            if launch.pull:
                self._pull(origin.image)
            image_id = str(self.client.images.get(origin.image).id)
        except ENGINE_ERRORS as error:
            raise MachineryError(
                f"{origin.image} cannot be had: {str(error)[:300]}\n"
                f"  try it by hand: docker pull {origin.image} (NGC: docker login nvcr.io, "
                "user $oauthtoken)"
            ) from error
        return Ready(launch=launch, digests={"image": image_id, "runtime": "container"}, handle=image_id)

    def _pull(self, image: str) -> None:
        """Pull an image, telling of each layer."""
        for event in self.client.api.pull(image, stream=True, decode=True):
            if "error" in event:
                raise docker.errors.APIError(str(event["error"]))
            progress = event.get("progressDetail") or {}
            layer = f"{event.get('id', '')} {event.get('status', '')}".strip()
            self.pull_note(image, layer, int(progress.get("current", 0)), int(progress.get("total", 0)))

    def spec(self, ready: Ready, folder: Path) -> ContainerSpec:
        """Describe the container for a launch."""
        folders = Folders(
            probe=str(probe_folder()), repros=str(self.repros.resolve()),
            cases=str((self.cache / "cases").resolve()), job=str(folder / "job"),
            out=str(folder / "out"),
        )  # fmt: skip
        return make_container_spec(
            version=ready.launch.version, image=str(ready.handle), gpu=ready.launch.gpu,
            engine=self.engine, folders=folders, limits=self.limits,
            name=f"trtmatrix-{folder.name}", owner=own_identity(),
            user=f"{os.getuid()}:{os.getgid()}",
        )  # fmt: skip

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Create, start, wait, read how it ended, remove: on every path."""
        spec = self.spec(ready, folder)
        (folder / "job" / "scratch").write_text("\n".join(EMPTIED))
        (self.cache / "cases").mkdir(exist_ok=True)  # the engine would make it, as root
        container: Container | None = None
        try:
            with Heartbeat(folder / "job" / "heartbeat"):
                container = self._create(spec)
                container.start()
                while not self._has_ended(container):
                    asked = time.monotonic()
                    while time.monotonic() < asked + ENGINE_SECONDS:
                        poll()
                        time.sleep(POLL_SECONDS)
            poll()
            state = container.attrs["State"]
            log = container.logs(tail=100).decode("utf-8", "replace")
            return Ended(code=int(state["ExitCode"]), out_of_memory=bool(state["OOMKilled"]), log=log[-4000:])
        except ENGINE_ERRORS as error:
            raise MachineryError(f"the container of {spec.image} failed: {str(error)[:500]}") from error
        finally:
            self._remove(container, spec.name)

    def _has_ended(self, container: Container) -> bool:
        container.reload()
        return str(container.status) in {"exited", "dead"}

    def _remove(self, container: Container | None, name: str) -> None:
        """Remove a container by handle, or by name where creating it was cut off."""
        try:
            found = container or self.client.containers.get(name)
            found.remove(force=True, v=True)
        except docker.errors.NotFound:
            return
        except ENGINE_ERRORS as error:
            print(f"could not remove the container {name}: {error}", file=sys.stderr)

    def _create(self, spec: ContainerSpec) -> Container:
        limits, requests_ = spec.limits, []
        if spec.gpu_device_ids:
            requests_ = [DeviceRequest(device_ids=list(spec.gpu_device_ids), capabilities=[["gpu"]])]
        elif spec.cdi_devices:
            requests_ = [DeviceRequest(driver="cdi", device_ids=list(spec.cdi_devices))]
        volumes = {host: {"bind": inside, "mode": "ro"} for host, inside in spec.read_only_mounts.items()}
        volumes[spec.out[0]] = {"bind": spec.out[1], "mode": "rw"}
        return self.client.containers.create(
            spec.image, list(spec.command[1:]), entrypoint=[spec.command[0]], name=spec.name,
            init=True, network_mode="none", read_only=True, cap_drop=["ALL"],
            security_opt=["no-new-privileges"], user=spec.user, environment=dict(spec.environment),
            labels=dict(spec.labels), mem_limit=limits.memory, memswap_limit=limits.memory,
            pids_limit=limits.processes, tmpfs={SCRATCH: tmpfs_options(limits)}, volumes=volumes,
            ulimits=[Ulimit(name="fsize", soft=limits.file, hard=limits.file)],
            log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": str(limits.log)}),
            devices=[f"{node}:{node}:rwm" for node in spec.devices], device_requests=requests_,
            working_dir=SCRATCH, stdin_open=False, tty=False,
        )  # fmt: skip
