"""The container launcher: Docker by its Python SDK, nothing left behind on any path."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import docker
import docker.errors
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Ulimit

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.owner import is_dead
from trtmatrix.launchers.container import (
    LOG_DRIVERS,
    OWNER_LABEL,
    PROJECT_LABEL,
    SCRATCH,
    ContainerSpec,
    Limits,
    tmpfs_options,
)
from trtmatrix.launchers.engine import open_client
from trtmatrix.launchers.engine_errors import ENGINE_ERRORS
from trtmatrix.launchers.engine_images import Images
from trtmatrix.launchers.engine_trouble import cure_for
from trtmatrix.launchers.image_check import ImageCheck
from trtmatrix.launchers.launcher import (
    POLL_SECONDS,
    Ended,
    Heartbeat,
    Poll,
    Ready,
    WrongVersion,
    launch_spec,
)
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Engine, Launch

ENGINE_SECONDS = 0.1
"""How often the engine is asked whether a container still runs: that costs it milliseconds."""
EMPTIED = (SCRATCH, "/dev/shm")  # noqa: S108 - inside the container, file systems of its own
"""What the probe empties after each cell: it lies in memory, and the next cell would pay for it."""


def remove_leftovers() -> list[str]:
    """Remove containers of this project whose owner is dead; returns their names."""
    client = open_client(60)
    removed = []
    # One answer for all: where one goes while each is asked for, as the SDK does, Podman fails.
    for found in client.api.containers(all=True, filters={"label": PROJECT_LABEL}):
        if is_dead((found.get("Labels") or {}).get(OWNER_LABEL, "")):
            with contextlib.suppress(docker.errors.APIError):
                client.api.remove_container(found["Id"], force=True, v=True)
                removed.append(str(found["Names"][0]).lstrip("/"))
    return removed


class ContainerLauncher:
    """One container for the cells of one version on one GPU."""

    def __init__(self, *, engine: Engine, cache: Path, repros: Path, limits: Limits, images: Images) -> None:
        """Keep what every container needs; the engine is asked on first use."""
        self.engine, self.cache, self.repros = engine, cache, repros
        self.limits, self.images = limits, images
        self.check = ImageCheck(cache, note=images.note)
        self._client: docker.DockerClient | None = None

    @property
    def client(self) -> docker.DockerClient:
        """The connection to the engine."""
        if self._client is None:
            self._client = open_client(120)
        return self._client

    def make_ready(self, launch: Launch) -> Ready:
        """Find the image, pulled or built now where the plan says so, and look what it ships."""
        try:
            image_id = self.images.make_ready(launch, self.client)
        except ENGINE_ERRORS as error:
            image = launch.version.origin.reference if isinstance(launch.version.origin, ImageOrigin) else ""
            by_hand = f"{self.engine.command} {'load --input' if image.startswith('/') else 'pull'} {image}"
            raise MachineryError(
                f"{image} cannot be had: {str(error)[:300]}\n  try it by hand: {by_hand}"
            ) from error
        digests = {"image": image_id, "runtime": "container"}
        if (wrong := self.check.find_wrong(launch.version, image_id)) is not None:
            raise WrongVersion(wrong, digests)
        return Ready(launch=launch, digests=digests, handle=image_id)

    def spec(self, ready: Ready, folder: Path) -> ContainerSpec:
        """Describe the container for a launch."""
        return launch_spec(
            ready.launch, str(ready.handle), self.engine, cache=self.cache, repros=self.repros,
            folder=folder, limits=self.limits,
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
            raise MachineryError(
                f"the container of {spec.image} failed: {str(error)[:500]}{cure_for(str(error))}"
            ) from error
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
            ulimits=[Ulimit(name=name, soft=most, hard=most) for name, most in spec.ulimits.items()],
            log_config=LogConfig(type=LOG_DRIVERS[spec.engine], config={"max-size": str(limits.log)}),
            devices=[f"{node}:{node}:rwm" for node in spec.devices], device_requests=requests_,
            working_dir=SCRATCH, stdin_open=False, tty=False,
        )  # fmt: skip
