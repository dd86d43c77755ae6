"""Runs one container of Docker or Podman from its creation to its removal; nothing is left on any path."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar, cast

import docker
import docker.errors
import orjson
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Ulimit

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import is_dead
from trtmatrix.common.text import one_line
from trtmatrix.launchers.container import (
    LOG_DRIVERS,
    OWNER_LABEL,
    PROJECT_LABEL,
    SCRATCH,
    ContainerSpec,
    Limits,
    image_origin,
    make_container_spec,
    own_labels,
)
from trtmatrix.launchers.docker_engine import open_client
from trtmatrix.launchers.images import ENGINE_ERRORS, Images
from trtmatrix.launchers.launcher import POLL_SECONDS, TAIL, Ended, Poll, Ready, heartbeat
from trtmatrix.suite.plan import Engine, Launch

T = TypeVar("T")

ENGINE_SECONDS = 0.1  # how often the engine is asked whether a container runs: that costs it milliseconds
ANSWER_SECONDS, LEAVE_SECONDS = 120.0, 10.0
"""How long the engine may take to answer; so when all is being ended."""
EMPTIED = (SCRATCH, "/dev/shm")  # noqa: S108 - inside the container, file systems of its own
"""What the probe empties after each cell: it lies in memory, and the next cell would pay for it."""

ISOLATED: Mapping[str, Any] = {
    "init": True, "network_mode": "none", "read_only": True, "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}  # fmt: skip
"""What keeps every container from the host and the network."""

REMEDIES = {
    "container-init binary not found": "apt-get install catatonit, Podman's init",
    "setting rlimit": 'in containers.conf: default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]',
    "unresolvable CDI devices": "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
}
"""Part of an engine's message, as Podman 4.3 and runc 1.1 have it → what to do."""

CONTENTS = """
import json
from importlib import import_module
from importlib.metadata import version

PACKAGES = {
    "tensorrt": ["tensorrt", "tensorrt-cu13-bindings", "tensorrt-cu12-bindings", "tensorrt-bindings"],
    "tensorrt-rtx": ["tensorrt-rtx", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings"],
    "onnxruntime": ["onnxruntime", "onnxruntime-gpu"],
    "torch": ["torch"],
    "torch_tensorrt": ["torch-tensorrt"],
}

found = {}
for name, packages in PACKAGES.items():
    for package in [*packages, None]:
        try:  # of what was unpacked by hand nothing says so but the module itself
            module = name.replace("-", "_")
            found[name] = version(package) if package else str(import_module(module).__version__)
            break
        except Exception:
            pass
print(json.dumps({name: text for name, text in found.items() if text}))
"""
"""Python 3.8. What a package's own data say comes first: to import TensorRT may take a driver."""


class ContainerLauncher:
    """One container for the cells of one version on one GPU."""

    def __init__(self, *, engine: Engine, cache: Path, repros: Path, limits: Limits, images: Images) -> None:
        self.engine, self.cache, self.repros = engine, cache, repros
        self.limits, self.images = limits, images

    def make_ready(self, launch: Launch) -> Ready:
        """Find the image, loaded, pulled or built now where the plan says so."""
        try:
            image_id = self.images.make_ready(launch, open_client(120))
        except ENGINE_ERRORS as error:
            image = image_origin(launch).reference
            by_hand = f"{self.engine.command} {'load --input' if image.startswith('/') else 'pull'} {image}"
            raise MachineryError(
                f"{image} cannot be had: {str(error)[:300]}\n  try it by hand: {by_hand}"
            ) from error
        digests = {"image": image_id, "runtime": "container"}
        return Ready(launch=launch, digests=digests, handle=image_id)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Create, start, wait, read how it ended, remove: on every path."""
        spec = make_container_spec(
            ready.launch, str(ready.handle), self.engine, cache=self.cache, repros=self.repros,
            folder=folder, limits=self.limits,
        )  # fmt: skip
        (folder / "job" / "scratch").write_text("\n".join(EMPTIED))
        (self.cache / "cases").mkdir(exist_ok=True)  # the engine would make it, as root
        try:
            client = open_client(120)
            with removed_at_last(client, spec.name):
                with heartbeat(folder):
                    container = answer_of(lambda: create_container(client, spec), poll)
                    answer_of(container.start, poll)
                    while container.status not in {"exited", "dead"}:
                        asked = time.monotonic()
                        while time.monotonic() < asked + ENGINE_SECONDS:
                            poll()
                            time.sleep(POLL_SECONDS)
                        answer_of(container.reload, poll)
                poll()
                state, log = container.attrs["State"], answer_of(lambda: container.logs(tail=100), poll)
        except ENGINE_ERRORS as error:
            said = str(error)
            remedy = next((f"\n  {remedy}" for part, remedy in REMEDIES.items() if part in said), "")
            raise MachineryError(f"the container of {spec.image} failed: {said[:500]}{remedy}") from error
        text = log.decode("utf-8", "replace")[-TAIL:]
        return Ended(code=int(state["ExitCode"]), out_of_memory=bool(state["OOMKilled"]), log=text)


def answer_of(ask: Callable[[], T], poll: Poll, seconds: float = ANSWER_SECONDS) -> T:
    """Return what the engine answers; ``poll`` is called meanwhile, so that a hung one delays no interrupt.

    :class:`MachineryError` where it does not answer in so many seconds. The thread that asks is left behind.
    """
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if wait([answer], timeout=POLL_SECONDS).done:
            return answer.result()
        poll()
    raise MachineryError(f"the container engine has not answered for {seconds:g} s")


@contextlib.contextmanager
def removed_at_last(client: docker.DockerClient, name: str) -> Iterator[None]:
    """Remove a container by its name at the end of the block, also where creating it was cut off."""
    seconds = LEAVE_SECONDS
    try:
        yield
        seconds = ANSWER_SECONDS
    finally:
        try:
            answer_of(lambda: client.api.remove_container(name, force=True, v=True), lambda: None, seconds)
        except docker.errors.NotFound:
            pass
        except (MachineryError, *ENGINE_ERRORS) as error:
            print(f"could not remove the container {name}: {error}; the next run removes it", file=sys.stderr)


def create_container(client: docker.DockerClient, spec: ContainerSpec) -> Container:
    """Create a container, and do not start it."""
    limits, gpu = spec.limits, spec.gpu
    requests = [DeviceRequest(device_ids=[device], capabilities=[["gpu"]]) for device in gpu.ids]
    requests += [DeviceRequest(driver="cdi", device_ids=[device]) for device in gpu.cdi]
    volumes = {host: {"bind": inside, "mode": "ro"} for host, inside in spec.mounts.items()}
    return client.containers.create(
        spec.image, list(spec.command[1:]), entrypoint=[spec.command[0]], name=spec.name, **ISOLATED,
        user=spec.user, environment=dict(spec.environment), labels=dict(spec.labels),
        mem_limit=limits.memory, memswap_limit=limits.memory, pids_limit=limits.processes,
        tmpfs={SCRATCH: limits.tmpfs, spec.out[1]: limits.work}, volumes=volumes,
        ulimits=[Ulimit(name=name, soft=most, hard=most) for name, most in spec.ulimits.items()],
        log_config=LogConfig(type=LOG_DRIVERS[spec.engine], config={"max-size": str(limits.log)}),
        devices=[f"{node}:{node}:rwm" for node in gpu.nodes], device_requests=requests,
        working_dir=SCRATCH, stdin_open=False, tty=False,
    )  # fmt: skip


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


def read_contents(image_id: str) -> dict[str, str]:
    """Return product or package → version of what an image has, read by running its own Python.

    The container has no network, no GPU, nothing mounted, and is removed on every path.
    :class:`MachineryError` says why nothing could be read.
    """
    client, name = open_client(120), f"trtmatrix-look-{uuid.uuid4().hex[:12]}"
    try:
        with removed_at_last(client, name):
            said = client.containers.run(
                image_id, ["-c", CONTENTS], entrypoint=["python3"], name=name, **ISOLATED,
                user="65534:65534", environment={"HOME": SCRATCH, "NVIDIA_VISIBLE_DEVICES": "void"},
                tmpfs={SCRATCH: "rw,size=64m"}, mem_limit=4 << 30, pids_limit=256, labels=own_labels(),
            )  # fmt: skip
        found = orjson.loads(said.splitlines()[-1])
        return {str(package): str(version) for package, version in found.items()}
    except (*ENGINE_ERRORS, ValueError, LookupError, AttributeError) as error:
        told = cast("bytes", getattr(error, "stderr", None) or b"").decode("utf-8", "replace")
        last = one_line((told.strip().splitlines() or [str(error)])[-1])
        raise MachineryError(f"its python3 cannot be asked what it has: {last}") from error
