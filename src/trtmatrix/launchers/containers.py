"""Docker and Podman: images, each had once, and containers, of which nothing is left on any path."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import docker
import docker.errors
import orjson
import requests.exceptions
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Ulimit

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import is_dead
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.progress import Progress, open_progress
from trtmatrix.common.text import one_line
from trtmatrix.launchers.container import (
    LOG_DRIVERS,
    OWNER_LABEL,
    PROJECT_LABEL,
    SCRATCH,
    Containers,
    ContainerSpec,
    image_origin,
    own_labels,
)
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.launchers.launcher import POLL_SECONDS, TAIL, Ended, Poll, Ready, heartbeat
from trtmatrix.launchers.references import Trouble, parse_reference
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import OWN, Engine, HeldImage, Keep, Launch, find_image, is_own

ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException)
"""What Docker's SDK raises where the engine refuses or does not answer."""
WAITS = (2.0, 8.0, 30.0)
"""Seconds before each further try of a pull that may yet succeed. The engine itself, before it gives up,
tries each layer five times more (https://docs.docker.com/reference/cli/dockerd/, max-download-attempts)."""
LONGEST = 300  # letters of the engine's own words that are told

SIGNS: Sequence[tuple[str, Trouble]] = (
    # Podman unpacks while it reads, and may stumble before it has the digest.
    ("verification failed|failed verification|unexpected commit digest|mismatch|does not match digest"
     "|did not match,? expected|flate: corrupt|(gzip|zlib|zstd|tar): invalid|(gzip|pigz): .*corrupt",
     Trouble.DAMAGED),
    (r"toomanyrequests|too many requests|\b429\b|rate limit", Trouble.LIMITED),
    ("server gave HTTP response to HTTPS client|x509|certificate|no such host|server misbehaving"
     "|connection refused|no route to host|network is unreachable", Trouble.UNREACHABLE),
    ("pull access denied|unauthorized|authentication required|no basic auth|credentials|forbidden|password"
     r"|access to the resource is denied|insufficient[_ ]scope|\b40[13]\b", Trouble.NEEDS_LOGIN),
    ("manifest unknown|name unknown|not known to registry|(repository|manifest) .* not found|: not found"
     "|no matching manifest|does not match the specified platform|no image found in .* for "
     r"|blob unknown|unknown blob|\b404\b", Trouble.MISSING),
)  # fmt: skip
"""What Docker, containerd and Podman say, the most certain first: a cut one often names what it asked for."""


def explain_pull(reference: str, said: str, command: str = "docker") -> tuple[MachineryError, bool]:
    """Return the error for what an engine says of a pull, and whether another try is worth while.

    ``command``: what pulls by hand.
    """
    text = one_line(said)
    found = (trouble for sign, trouble in SIGNS if re.search(sign, text, re.IGNORECASE))
    trouble, full = next(found, Trouble.BROKEN), re.search("no(t enough)? space|disk quota", text)
    try:
        host = parse_reference(reference).host
    except UsageError:  # the engine's own words say what is wrong with the name
        host = "its registry"
    room = "free some room (nox -s doctor says how much is needed); a run can say --keep none"
    error = MachineryError(
        f"{reference} cannot be had: {text[:LONGEST]}\n  {room if full else trouble.remedy(host)}\n"
        f"  try it by hand: {command} pull {reference}"
    )
    return error, not full and trouble in {Trouble.LIMITED, Trouble.BROKEN}


def pull_image(
    reference: str, client: docker.DockerClient, engine: Engine, progress: Progress,
    waits: Sequence[float] = WAITS,
) -> None:  # fmt: skip
    """Pull an image, and tell of it: cuts are waited out, what cannot get better is told at once.

    The engine ends a pull that nobody listens to. :class:`MachineryError` says why it cannot be had.
    """
    for pause in (*waits, None):
        try:
            events = client.api.pull(reference, stream=True, decode=True, platform=engine.platform)
            with contextlib.closing(events):
                for event in events:
                    _tell(reference, event, progress)
                return
        except ENGINE_ERRORS as error:
            # What Docker's SDK adds tells of the engine, not of the registry.
            said = str(getattr(error, "explanation", None) or error)
            failure, again = explain_pull(reference, said, engine.command)
            if pause is None or not again:
                raise failure from error
            progress.note(f"{reference}: {one_line(said)[:LONGEST]}; tried again in {pause:g} s")
            time.sleep(pause)


def _tell(reference: str, event: Mapping[str, Any], progress: Progress) -> None:
    if "error" in event:
        raise docker.errors.APIError(str(event["error"]))
    detail, layer = event.get("progressDetail") or {}, str(event.get("id", ""))
    status = str(event.get("status", ""))
    if status.startswith("Retrying in 5 seconds"):  # it counts down from there at the first cut
        progress.note(f"{reference}: layer {layer} was cut off; the engine goes on with it in 5 s")
    so_far, total = int(detail.get("current", 0)), int(detail.get("total", 0))
    progress.pull(reference, f"{layer} {status}".strip(), so_far, total)


AT_ONCE = 2  # images that are here at once where they go after their last cell: one runs, the next is pulled


class Images:
    """Gets images, and with ``--keep none`` removes after its last cell each that it pulled itself.

    Launches that want the same image wait for one pull or build. What goes is the name that it was pulled by:
    what was here before, has another name too, or is in use by a container, stays. ``builder``: the script
    that, given a version, builds its image, with its first words; ``waits``: see :data:`WAITS`.
    """

    def __init__(
        self, engine: Engine, progress: Progress, *, builder: Sequence[str] = (), keep: Keep = Keep.ALL,
        waits: Sequence[float] = WAITS,
    ) -> None:  # fmt: skip
        self.engine, self.progress, self.note, self.waits = engine, progress, progress.note, waits
        self.builder, self.keep = tuple(builder), keep
        self._wanted: Counter[str] = Counter()  # cells, by the image's reference
        self._pulled: dict[str, docker.DockerClient] = {}  # references, to go again: they take room
        self._ours: set[str] = set()  # IDs of what was pulled, maybe by another name
        self._changed = threading.Condition()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def expect(self, launches: Iterable[Launch]) -> None:
        """Count the cells of all launches that will be run."""
        for launch in launches:
            for reference in self._references(launch):
                self._wanted[reference] += len(launch.cells)

    def make_ready(self, launch: Launch, client: docker.DockerClient) -> str:
        """Return the ID of a launch's image: loaded, pulled or built now where it is not here and may be.

        Raises :class:`MachineryError` where it cannot be had, and what the engine raises otherwise.
        """
        origin = image_origin(launch)
        with self._turns[origin.reference]:
            if held := find_held(origin, client):
                return held
            if origin.is_file:
                self.note(f"loading {origin.image}")
                with Path(origin.image).open("rb") as stream:
                    loaded = client.images.load(stream)
                # An engine that gives it an ID of its own is believed.
                return find_held(origin, client) or str(loaded[0].id)
            if launch.pull:
                return self._pull(origin, client)
            if launch.build:
                self._build(origin, launch.version.name, client)
            return str(client.images.get(origin.reference).id)

    def ended(self, launch: Launch) -> None:
        """Hear that a launch, or a part of one, has ended or never will run: drop what nobody wants now."""
        with self._changed:
            for reference in self._references(launch):
                self._wanted[reference] -= len(launch.cells)
                if self._wanted[reference] > 0 or (client := self._pulled.pop(reference, None)) is None:
                    continue
                try:  # never by force
                    client.images.remove(reference)
                    self.note(f"removed {reference}: its last cell has run")
                except docker.errors.NotFound:  # its pull failed
                    continue
                except ENGINE_ERRORS as error:
                    self.note(f"{reference} stays: {one_line(str(error))[:200]}")
            self._changed.notify_all()

    def _references(self, launch: Launch) -> list[str]:
        origin = launch.image
        base = [origin.base.reference] if origin and origin.base and launch.build else []
        return [origin.reference, *base] if origin else []

    def _pull(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Pull an image once there is room for it, by its digest where it is locked, and return its ID."""
        reference = origin.reference
        if is_own(origin.image):
            raise MachineryError(
                f"{origin.image} is not here, and no registry has it: {OWN}… is made here\n"
                "  make it on this host (docker/README.md), or give an image of a registry another name"
            )
        need_network(reference)
        before = set[str]()
        if self.keep is Keep.NONE:
            before = {str(each["Id"]) for each in client.api.images()}
            with self._changed:
                self._changed.wait_for(lambda: len(self._pulled) < AT_ONCE)
                self._pulled[reference] = client
        pull_image(reference, client, self.engine, self.progress, self.waits)
        image_id = str(client.images.get(reference).id)
        with self._changed:
            if image_id in before - self._ours:  # it had no name, and stays all the same
                self._pulled.pop(reference, None)
                self._changed.notify_all()
            else:
                self._ours.add(image_id)
        if origin.pin is not None and image_id not in origin.pin.ids:
            raise MachineryError(
                f"{reference} is {image_id}, not what matrix.lock has: {origin.pin.ids[0]}\n"
                "  matrix.lock was changed by hand, or is another registry's: nox -s lock shows what it says"
            )
        return image_id

    def _build(self, origin: ImageOrigin, version: str, client: docker.DockerClient) -> None:
        """Build an image by the project's script; where it fails, tell what it said.

        A base of a registry is pulled first, so that it is known to be pulled by us; the script makes ours.
        """
        image = origin.image
        need_network(f"building {image}")
        if (base := origin.base) is not None and not is_own(base.image):
            with self._turns[base.reference]:
                if find_held(base, client) is None:
                    self._pull(base, client)
        self.note(f"building {image} (some minutes)")
        environment = {name: text for name, text in os.environ.items() if name != "TRTMATRIX_EXIT_CODE_FILE"}
        code, said = run_to_end([sys.executable, *self.builder, version], environment)
        if code:
            lines = said.strip().splitlines() or ["it said nothing"]
            own = [line for line in lines if line.startswith("docker/wheels/build: ")]
            reason = (own or lines)[-1].removeprefix("docker/wheels/build: ")
            tail = "\n".join(f"  {line}" for line in lines[-20:])
            raise MachineryError(
                f"{image} cannot be built: {reason}\n{tail}\n  try it by hand: nox -s image -- {version}"
            )
        self.note(f"{image} is built")


def find_held(origin: ImageOrigin, client: docker.DockerClient) -> str | None:
    """Return the ID under which the engine has an origin's image just now, or None."""
    names = origin.pin.ids if origin.pin is not None else (origin.mirror or origin.image, origin.image)
    for name in names:
        with contextlib.suppress(docker.errors.NotFound):
            return str(client.images.get(name).id)
    return None


def pull_by_name(name: str) -> HeldImage:
    """Pull an image, showing the progress, and return it; :class:`MachineryError` where that fails."""
    need_network(name)
    with contextlib.closing(open_progress()) as progress:
        pull_image(name, open_client(120), find_engine(gpu_here=False), progress)
    held = find_image(find_engine(gpu_here=False).images, name)
    if held is None:
        raise MachineryError(f"{name} was pulled and cannot be found")
    return held


# --- Containers

T = TypeVar("T")

ENGINE_SECONDS = 0.1  # how often the engine is asked whether a container runs: that costs it milliseconds
ANSWER_SECONDS, LEAVE_SECONDS = 120.0, 10.0
"""How long the engine may take to answer; so when all is being ended."""
EMPTIED = (SCRATCH, "/dev/shm")  # noqa: S108 - inside the container, file systems of its own
"""What the probe empties after each cell: it lies in memory, and the next cell would pay for it.

With the host's MPS ``/dev/shm`` is the host's, and others' files lie there.
"""

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


@dataclass(frozen=True, kw_only=True)
class ContainerLauncher(Containers):
    """One container for the cells of one version on one GPU."""

    images: Images

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
        spec = self.spec(ready.launch, str(ready.handle), folder)
        (folder / "job" / "scratch").write_text("\n".join((SCRATCH,) if spec.gpu.mps else EMPTIED))
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
        ipc_mode="host" if gpu.mps else None, working_dir=SCRATCH, stdin_open=False, tty=False,
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
