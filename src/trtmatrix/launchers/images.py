"""Gets the images of launches, each once, and removes those that are not kept after their last cell."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import requests.exceptions

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import Project
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.progress import Progress, open_progress
from trtmatrix.common.text import one_line
from trtmatrix.launchers.container import image_origin
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.launchers.references import Trouble, parse_reference
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import OWN, Engine, HeldImage, Keep, Launch, find_image, is_own

ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException)
"""What Docker's SDK raises where the engine refuses or does not answer."""
WAITS = (2.0, 8.0, 30.0)
"""Seconds before each further try of a pull that may yet succeed. The engine itself, before it gives up,
tries each layer five times more (https://docs.docker.com/reference/cli/dockerd/, max-download-attempts)."""
LONGEST = 300  # letters of the engine's own words that are told
PullNote = Callable[[str, str, int, int], None]
"""Told of each layer: image, layer, bytes so far, bytes in all (0 where not known)."""

AUTHORITY = (
    "put its authority's certificate into /etc/docker/certs.d/HOST/ca.crt, or name the registry in "
    "insecure-registries of /etc/docker/daemon.json"
)
SIGNS: Sequence[tuple[str, Trouble, str]] = (
    ("no space left on device|not enough space|disk quota",
     Trouble.BROKEN, "free some room (nox -s doctor says how much is needed); a run can say --keep none"),
    # Podman unpacks while it reads, and may stumble before it has the digest.
    ("verification failed|failed verification|unexpected commit digest|mismatch|does not match digest"
     "|did not match,? expected|flate: corrupt|(gzip|zlib|zstd|tar): invalid|(gzip|pigz): .*corrupt",
     Trouble.DAMAGED, ""),
    ("no matching manifest|does not match the specified platform|no image found in .* for ",
     Trouble.MISSING, "choose an image for this machine's architecture in matrix.yaml"),
    (r"toomanyrequests|too many requests|\b429\b|rate limit", Trouble.LIMITED, ""),
    ("server gave HTTP response to HTTPS client|x509|certificate|tls: (?!handshake)",
     Trouble.UNREACHABLE, AUTHORITY),
    ("incorrect username or password|wrong (username|password)", Trouble.WRONG_LOGIN, ""),
    ("pull access denied|unauthorized|authentication required|no basic auth|credentials|forbidden"
     r"|access to the resource is denied|insufficient[_ ]scope|\b40[13]\b", Trouble.NEEDS_LOGIN, ""),
    ("manifest unknown|name unknown|not known to registry|(repository|manifest) .* not found|: not found"
     r"|blob unknown|unknown blob|\b404\b", Trouble.MISSING, ""),
    ("no such host|server misbehaving|connection refused|no route to host|network is unreachable",
     Trouble.UNREACHABLE, ""),
)  # fmt: skip
"""What Docker, containerd and Podman say, the most certain first (a cut one often names what it asked for),
and what to do where that is not the trouble's own remedy."""

PASSING = re.compile(
    r"toomanyrequests|too many requests|\b429\b|rate limit|\b50[0234]\b|internal server error|bad gateway"
    r"|service unavailable|time-?out|\bEOF\b|reset by peer|broken pipe|timed out|deadline exceeded"
    r"|download failed|chunk|connection (was )?(closed|aborted)|(request|context) canceled|ended prematurely",
    re.IGNORECASE,
)
"""What may be otherwise in a while, where no other sign is found."""


def explain_pull(reference: str, said: str, command: str = "docker") -> tuple[MachineryError, bool]:
    """Return the error for what an engine says of a pull, and whether another try is worth while.

    ``command``: what pulls by hand.
    """
    text = one_line(said)
    found = (sign for sign in SIGNS if re.search(sign[0], text, re.IGNORECASE))
    _, trouble, remedy = next(found, ("", Trouble.BROKEN, ""))
    try:
        host = parse_reference(reference).host
    except UsageError:  # the engine's own words say what is wrong with the name
        host = "its registry"
    error = MachineryError(
        f"{reference} cannot be had: {text[:LONGEST]}\n"
        f"  {remedy.replace('HOST', host) or trouble.remedy(host)}\n"
        f"  try it by hand: {command} pull {reference}"
    )
    may_pass = trouble in {Trouble.LIMITED, Trouble.BROKEN} and not remedy
    return error, may_pass and PASSING.search(text) is not None


@dataclass(kw_only=True)
class Puller:
    """Pulls by the engine, and tells of it: cuts are waited out, what cannot get better is told at once.

    ``platform``: for which, such as ``linux/amd64``, or as the engine likes; ``command``: what pulls by hand;
    ``waits``: seconds before each further try.
    """

    pull_note: PullNote
    note: Callable[[str], None]
    platform: str = ""
    command: str = "docker"
    waits: Sequence[float] = WAITS

    def pull(self, reference: str, client: docker.DockerClient) -> None:
        """Pull an image; :class:`MachineryError` says why it cannot be had."""
        for wait in (*self.waits, None):
            try:
                return self._follow(reference, client)
            except ENGINE_ERRORS as error:
                # What Docker's SDK adds tells of the engine, not of the registry.
                said = str(getattr(error, "explanation", None) or error)
                failure, again = explain_pull(reference, said, self.command)
                if wait is None or not again:
                    raise failure from error
                self.note(f"{reference}: {one_line(said)[:LONGEST]}; tried again in {wait:g} s")
                time.sleep(wait)
        return None

    def _follow(self, reference: str, client: docker.DockerClient) -> None:
        """Listen to one pull to its end; the engine ends one that nobody listens to."""
        events = client.api.pull(reference, stream=True, decode=True, platform=self.platform or None)
        with contextlib.closing(events):
            for event in events:
                if "error" in event:
                    raise docker.errors.APIError(str(event["error"]))
                progress, layer = event.get("progressDetail") or {}, str(event.get("id", ""))
                status, current = str(event.get("status", "")), int(progress.get("current", 0))
                if status.startswith("Retrying in 5 seconds"):  # it counts down from there at the first cut
                    self.note(f"{reference}: layer {layer} was cut off; the engine goes on with it in 5 s")
                self.pull_note(reference, f"{layer} {status}".strip(), current, int(progress.get("total", 0)))


AT_ONCE = 2  # images that are here at once where they go after their last cell: one runs, the next is pulled


class Images:
    """Gets images, and with ``--keep none`` removes after its last cell each that it pulled itself.

    Launches that want the same image wait for one pull or build. What goes is the name that it was pulled by:
    what was here before, has another name too, or is in use by a container, stays.
    ``builder``: the command that, given a version, builds its image; ``base_of`` returns how the base of an
    image of ours is known and asked for.
    """

    def __init__(
        self, *, puller: Puller, builder: Sequence[str] = (), keep: Keep = Keep.ALL,
        base_of: Callable[[str], ImageOrigin] = lambda base: ImageOrigin(image=base),
    ) -> None:  # fmt: skip
        self.puller, self.note = puller, puller.note
        self.builder, self.keep, self.base_of = tuple(builder), keep, base_of
        self._wanted: Counter[str] = Counter()  # cells, by the image's reference
        self._pulled: dict[str, docker.DockerClient] = {}  # references, to go again: they take room
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
            return id_of(origin.reference, client)

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
        base = [self.base_of(origin.build.base).reference] if origin and origin.build and launch.build else []
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
        if self.keep is Keep.NONE:
            with self._changed:
                self._changed.wait_for(lambda: len(self._pulled) < AT_ONCE)
                self._pulled[reference] = client
        self.puller.pull(reference, client)
        image_id = id_of(reference, client)
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
        if origin.build is not None and not is_own(origin.build.base):
            base = self.base_of(origin.build.base)
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
            return id_of(name, client)
    return None


def id_of(reference: str, client: docker.DockerClient) -> str:
    """Return the ID of an image that is here."""
    return str(client.images.get(reference).id)


def open_images(
    project: Project, engine: Engine, progress: Progress, *, base_of: Callable[[str], ImageOrigin],
    keep: Keep = Keep.ALL,
) -> Images:  # fmt: skip
    """Return what gets the images of an engine; :class:`Images` says what ``keep`` and ``base_of`` are."""
    puller = Puller(
        pull_note=progress.pull, note=progress.note, platform=engine.platform, command=engine.command
    )
    builder = (str(project.image_builder), f"--matrix={project.matrix}")  # without one nothing is to be built
    return Images(puller=puller, builder=builder, keep=keep, base_of=base_of)


def pull_by_name(name: str) -> HeldImage:
    """Pull an image, showing the progress, and return it; :class:`MachineryError` where that fails."""
    need_network(name)
    with contextlib.closing(open_progress()) as progress:
        Puller(pull_note=progress.pull, note=progress.note).pull(name, open_client(120))
    held = find_image(find_engine(gpu_here=False).images, name)
    if held is None:
        raise MachineryError(f"{name} was pulled and cannot be found")
    return held
