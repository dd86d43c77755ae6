"""Gets the images of launches, each once: loads, pulls or builds what is not here."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
import docker.errors

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import Project
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.progress import Progress, open_progress
from trtmatrix.launchers.container import image_origin
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.launchers.pulls import Puller
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import OWN, Engine, HeldImage, Launch, find_image, is_own


class Images:
    """Gets images; launches that want the same one wait for one pull or build."""

    def __init__(
        self, *, puller: Puller, builder: Sequence[str] = (),
        base_of: Callable[[str], ImageOrigin] = lambda base: ImageOrigin(image=base),
    ) -> None:  # fmt: skip
        """Keep who pulls and tells; ``builder``: the command that, given a version, builds its image.

        ``base_of`` returns how the base of an image of ours is known and asked for.
        """
        self.puller, self.note = puller, puller.note
        self.builder, self.base_of = tuple(builder), base_of
        self._lock = threading.Lock()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def make_ready(self, launch: Launch, client: docker.DockerClient) -> str:
        """Return the ID of a launch's image: loaded, pulled or built now where it is not here and may be.

        Raises :class:`MachineryError` where it cannot be had, and what the engine raises otherwise.
        """
        origin = image_origin(launch)
        with self._turn_of(origin):
            if (held := find_held(origin, client)) is not None:
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

    def _turn_of(self, origin: ImageOrigin) -> threading.Lock:
        with self._lock:
            return self._turns[origin.image]

    def _pull(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Pull an image, by its digest where it is locked, and return its ID."""
        if is_own(origin.image):
            raise MachineryError(
                f"{origin.image} is not here, and no registry has it: {OWN}… is made here\n"
                "  make it on this host (docker/README.md), or give an image of a registry another name"
            )
        need_network(origin.reference)
        self.puller.pull(origin.reference, client)
        image_id = id_of(origin.reference, client)
        if origin.pin is not None and image_id not in origin.pin.ids:
            raise MachineryError(
                f"{origin.reference} is {image_id}, not what matrix.lock has: {origin.pin.ids[0]}\n"
                "  matrix.lock was changed by hand, or is another registry's: nox -s lock shows what it says"
            )
        return image_id

    def _build(self, origin: ImageOrigin, version: str, client: docker.DockerClient) -> None:
        """Build an image by the project's script; where it fails, tell what it said.

        A base of a registry is pulled first, with its progress; the script makes ours.
        """
        image = origin.image
        need_network(f"building {image}")
        if origin.build is not None and not is_own(origin.build.base):
            base = self.base_of(origin.build.base)
            with self._turn_of(base):
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
    project: Project, engine: Engine, progress: Progress, *,
    base_of: Callable[[str], ImageOrigin] = lambda base: ImageOrigin(image=base),
) -> Images:  # fmt: skip
    """Return what gets the images of an engine; :class:`Images` says what ``base_of`` is."""
    puller = Puller(
        pull_note=progress.pull, note=progress.note, platform=engine.platform, command=engine.command
    )
    script = project.image_builder
    builder = () if script is None else (str(script), f"--matrix={project.matrix}")
    return Images(puller=puller, builder=builder, base_of=base_of)


def pull_by_name(name: str) -> HeldImage:
    """Pull an image, showing the progress, and return it; :class:`MachineryError` where that fails."""
    need_network(name)
    with contextlib.closing(open_progress()) as progress:
        Puller(pull_note=progress.pull, note=progress.note).pull(name, open_client(120))
    held = find_image(find_engine(gpu_here=False).images, name)
    if held is None:
        raise MachineryError(f"{name} was pulled and cannot be found")
    return held
