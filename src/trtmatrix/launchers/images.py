"""Gets the images of launches, each once, and removes those that are not kept after their last cell."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import docker
import docker.errors

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import Project
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.progress import Progress, open_progress
from trtmatrix.common.text import one_line
from trtmatrix.launchers.container import image_origin
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.launchers.pulls import ENGINE_ERRORS, Puller
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import OWN, Engine, HeldImage, Keep, Launch, find_image, is_own

AT_ONCE = 2  # images that are here at once where they go after their last cell: one runs, the next is pulled


class Images:
    """Gets images, and with ``--keep none`` removes after its last cell each that it pulled itself.

    Launches that want the same image wait for one pull or build. Several names may be of one image: it goes
    after the last of them that has it. What was here before, or is in use by a container, stays.
    ``builder``: the command that, given a version, builds its image; ``base_of`` returns how the base of an
    image of ours is known and asked for.
    """

    def __init__(
        self, *, puller: Puller, builder: Sequence[str] = (), keep: Keep = Keep.ALL,
        base_of: Callable[[str], ImageOrigin] = lambda base: ImageOrigin(image=base),
    ) -> None:  # fmt: skip
        self.puller, self.note = puller, puller.note
        self.builder, self.keep, self.base_of = tuple(builder), keep, base_of
        self._wanted: Counter[str] = Counter()  # cells, by the image's name
        self._held: dict[str, str] = {}  # IDs, by the image's name
        self._pulled: list[tuple[str, str, docker.DockerClient]] = []  # IDs and references, to go again
        self._going: set[str] = set()  # names that take room: pulled now, and to go again
        self._changed = threading.Condition()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def expect(self, launches: Iterable[Launch]) -> None:
        """Count the cells of all launches that will be run."""
        for launch in launches:
            for origin in self._origins(launch):
                self._wanted[origin.image] += len(launch.cells)

    def make_ready(self, launch: Launch, client: docker.DockerClient) -> str:
        """Return the ID of a launch's image: loaded, pulled or built now where it is not here and may be.

        Raises :class:`MachineryError` where it cannot be had, and what the engine raises otherwise.
        """
        origin = image_origin(launch)
        with self._turns[origin.image]:
            if held := self._hold(origin, client):
                return held
            if origin.is_file:
                self.note(f"loading {origin.image}")
                with Path(origin.image).open("rb") as stream:
                    loaded = client.images.load(stream)
                # An engine that gives it an ID of its own is believed.
                return self._hold(origin, client) or str(loaded[0].id)
            if launch.pull:
                return self._pull(origin, client)
            if launch.build:
                self._build(origin, launch.version.name, client)
            return id_of(origin.reference, client)

    def ended(self, launch: Launch) -> None:
        """Hear that a launch, or a part of one, has ended or never will run: drop what nobody wants now."""
        with self._changed:
            for origin in self._origins(launch):
                self._wanted[origin.image] -= len(launch.cells)
                if self._wanted[origin.image] <= 0:
                    self._held.pop(origin.image, None)
                    self._going.discard(origin.image)
            unwanted = [image for image in self._pulled if image[0] not in self._held.values()]
            for image_id, reference, client in unwanted:
                self._pulled.remove((image_id, reference, client))
                try:  # never by force; its tag may have been given to another since
                    if find_held(ImageOrigin(image=reference), client) == image_id:
                        client.images.remove(reference)
                        self.note(f"removed {reference}: its last cell has run")
                except ENGINE_ERRORS as error:
                    self.note(f"{reference} stays: {one_line(str(error))[:200]}")
            self._changed.notify_all()

    def _origins(self, launch: Launch) -> list[ImageOrigin]:
        origin = launch.image
        base = [self.base_of(origin.build.base)] if origin and origin.build and launch.build else []
        return [origin, *base] if origin else []

    def _hold(self, origin: ImageOrigin, client: docker.DockerClient) -> str | None:
        """Return the ID under which the engine has an image, which stays while it is wanted; or None."""
        with self._changed:
            if image_id := find_held(origin, client):
                self._held[origin.image] = image_id
            return image_id

    def _pull(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Pull an image once there is room for it, by its digest where it is locked, and return its ID."""
        if is_own(origin.image):
            raise MachineryError(
                f"{origin.image} is not here, and no registry has it: {OWN}… is made here\n"
                "  make it on this host (docker/README.md), or give an image of a registry another name"
            )
        need_network(origin.reference)
        before = set[str]()
        if self.keep is Keep.NONE:
            with self._changed:
                self._changed.wait_for(lambda: len(self._going) < AT_ONCE)
                self._going.add(origin.image)
            before = {str(each["Id"]) for each in client.api.images(all=True)}
        self.puller.pull(origin.reference, client)
        with self._changed:
            image_id = self._held[origin.image] = id_of(origin.reference, client)
            ours = image_id in [each for each, *_ in self._pulled] or image_id not in before
            if self.keep is Keep.NONE and ours:
                self._pulled.append((image_id, origin.reference, client))
        if origin.pin is not None and image_id not in origin.pin.ids:
            raise MachineryError(
                f"{origin.reference} is {image_id}, not what matrix.lock has: {origin.pin.ids[0]}\n"
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
            with self._turns[base.image]:
                if self._hold(base, client) is None:
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
