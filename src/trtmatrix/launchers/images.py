"""Gets the images of launches, each once, and drops those that are not kept after their last cell."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import docker
import docker.errors

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import is_dead, own_identity
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.container import image_origin
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.launchers.pulled import Ledger, PulledImage, open_ledger, read_ledger
from trtmatrix.launchers.pulls import ENGINE_ERRORS, Puller
from trtmatrix.suite.matrix import ImageOrigin, Origin
from trtmatrix.suite.plan import OWN, HeldImage, Keep, Launch, find_image, is_own
from trtmatrix.tables.table import one_line

AT_ONCE = 2
"""Images that are here at once where they go after their last cell: one runs, the next is pulled."""


class Images:
    """Gets images, counts the cells that still want one, and notes in the cache what this tool pulled.

    Launches that want the same image wait for one pull or build. Several names may be of one image: it goes
    after the last of them that has it, and stays where one of them stays.
    """

    def __init__(
        self, *, cache: Path, puller: Puller, builder: Sequence[str] = (), keep: Keep = Keep.ALL,
        base_of: Callable[[str], ImageOrigin] = lambda base: ImageOrigin(image=base),
    ) -> None:  # fmt: skip
        """Keep who pulls and tells; ``builder``: the command that, given a version, builds its image.

        ``base_of`` returns how the base of an image of ours is known and asked for.
        """
        self.cache, self.puller, self.note = cache, puller, puller.note
        self.builder, self.keep, self.base_of = tuple(builder), keep, base_of
        self._wanted: Counter[str] = Counter()  # cells, by the image's name, as all that follows
        self._held: dict[str, tuple[str, docker.DockerClient]] = {}
        self._going: set[str] = set()  # pulled now, and to go again
        self._staying: set[str] = set()  # by ID
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
        with self._turn_of(origin):
            if (held := self._hold(origin, client)) is not None:
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
        for origin in self._origins(launch):
            with self._changed:
                self._wanted[origin.image] -= len(launch.cells)
                if self._wanted[origin.image] > 0:
                    continue
            self._let_go(origin)
            with self._changed:
                self._going.discard(origin.image)
                self._changed.notify_all()

    def drop_leftovers(self, wanted: Iterable[Origin]) -> bool:
        """Remove what killed runs pulled and wanted gone, but for what is wanted now; whether there was any.

        What somebody has removed meanwhile is struck: where it comes again, it may be theirs.
        """
        if not read_ledger(self.cache).pulled:
            return False
        client = open_client(timeout=120)
        engine = engine_id(client)
        with open_ledger(self.cache) as ledger:
            gone = [i for i in ledger.of(engine) if not _has(client, i.reference, i.image_id)]
            ledger.pulled = [item for item in ledger.pulled if item not in gone]
            needed = {find_held(origin, client) for origin in wanted if isinstance(origin, ImageOrigin)}
            left = {i.image_id for i in ledger.of(engine) if i.drop and is_dead(i.owner)} - needed
            for image_id in left:
                self._remove(ledger, image_id, client)
        return bool(left)

    def _origins(self, launch: Launch) -> list[ImageOrigin]:
        """Return the images that a launch wants: its own, and the base where it is to be built."""
        origin = launch.version.origin
        if launch.python is not None or not isinstance(origin, ImageOrigin):
            return []
        return [origin, self.base_of(origin.build.base)] if launch.build and origin.build else [origin]

    def _turn_of(self, origin: ImageOrigin) -> threading.Lock:
        with self._changed:
            return self._turns[origin.image]

    def _stays(self, origin: ImageOrigin) -> bool:
        return self.keep is Keep.ALL or (self.keep is Keep.LOCKED and origin.pin is not None)

    def _hold(self, origin: ImageOrigin, client: docker.DockerClient) -> str | None:
        """Return the ID under which the engine has an image, which stays while it is wanted; or None."""
        with open_ledger(self.cache):  # no other run or thread drops it between
            if (image_id := find_held(origin, client)) is not None:
                self._held[origin.image] = image_id, client
        return image_id

    def _pull(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Pull an image once there is room for it, by its digest where it is locked, and return its ID.

        What was here before is not taken for pulled, and what fails is struck: whoever pulls it by hand
        afterwards keeps it. Another run may have brought it while this one waited.
        """
        if is_own(origin.image):
            raise MachineryError(
                f"{origin.image} is not here, and no registry has it: {OWN}… is made here\n"
                "  make it on this host (docker/README.md), or give an image of a registry another name"
            )
        need_network(origin.reference)
        if drop := not self._stays(origin):
            with self._changed:
                self._changed.wait_for(lambda: len(self._going) < AT_ONCE)
                self._going.add(origin.image)
        if (held := self._hold(origin, client)) is not None:
            return held
        pulling = PulledImage(
            engine=engine_id(client), reference=origin.reference, owner=own_identity(), drop=drop
        )
        with open_ledger(self.cache) as ledger:
            before = {str(each["Id"]) for each in client.api.images(all=True)}
            ledger.pulled.append(pulling)
        image_id = ""
        try:
            self.puller.pull(origin.reference, client)
            image_id = id_of(origin.reference, client)
        finally:
            with open_ledger(self.cache) as ledger:
                ledger.pulled = [item for item in ledger.pulled if item != pulling]
                ours = ledger.of(pulling.engine, image_id) if image_id else []
                if image_id and (ours or image_id not in before):
                    ledger.pulled = [
                        i for i in ledger.pulled if i not in ours or i.reference != pulling.reference
                    ]
                    ledger.pulled.append(pulling.model_copy(update={"image_id": image_id}))
        self._held[origin.image] = image_id, client
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
            with self._turn_of(base):
                if self._hold(base, client) is None:
                    self._pull(base, client)
        self.note(f"building {image} (some minutes)")
        code, said = run_builder([*self.builder, version])
        if code:
            lines = said.strip().splitlines() or ["it said nothing"]
            own = [line for line in lines if line.startswith("docker/wheels/build: ")]
            reason = (own or lines)[-1].removeprefix("docker/wheels/build: ")
            tail = "\n".join(f"  {line}" for line in lines[-20:])
            raise MachineryError(
                f"{image} cannot be built: {reason}\n{tail}\n  try it by hand: nox -s image -- {version}"
            )
        self.note(f"{image} is built")

    def _let_go(self, origin: ImageOrigin) -> None:
        """Use an image no more under a name, and remove it where it is to go and nobody else uses it."""
        if origin.image not in self._held:
            return
        if self._stays(origin):
            self._staying.add(self._held[origin.image][0])
        with open_ledger(self.cache) as ledger:
            image_id, client = self._held.pop(origin.image)
            drop, ours = image_id not in self._staying, ledger.of(engine_id(client), image_id)
            ledger.pulled = [i.model_copy(update={"drop": drop}) if i in ours else i for i in ledger.pulled]
            if drop and image_id not in [other for other, _ in list(self._held.values())]:
                self._remove(ledger, image_id, client)

    def _remove(self, ledger: Ledger, image_id: str, client: docker.DockerClient) -> None:
        """Remove an image by the references that it was pulled under, never by force; trouble is told."""
        for image in ledger.of(engine_id(client), image_id):
            try:
                if _has(client, image.reference, image_id):
                    client.images.remove(image.reference)
                    self.note(f"removed {image.reference}: its last cell has run")
                ledger.pulled.remove(image)
            except ENGINE_ERRORS as error:
                self.note(f"{image.reference} stays: {one_line(str(error))[:200]}")


@cache
def engine_id(client: docker.DockerClient) -> str:
    """Return what tells an engine from others: its ID; of Podman, whose ID does not last, its storage."""
    info = client.info()
    return str(info.get("DockerRootDir" if "BuildahVersion" in info else "ID") or client.api.base_url)


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


def _has(client: docker.DockerClient, reference: str, image_id: str) -> bool:
    """Whether a reference still means that image: its tag may have been given to another since."""
    return find_held(ImageOrigin(image=reference), client) == image_id


def run_builder(command: Sequence[str]) -> tuple[int, str]:
    """Run a build to its end, or this process's; returns its exit code and all that it said."""
    environment = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    return run_to_end([sys.executable, *command], environment)


def builder_command(script: Path | None, matrix: Path) -> tuple[str, ...]:
    """Return the words that, followed by a version, build its image; none without a script."""
    return () if script is None else (str(script), f"--matrix={matrix}")


def pull_by_name(name: str) -> HeldImage:
    """Pull an image, showing the progress, and return it; :class:`MachineryError` where that fails."""
    from trtmatrix.common.progress import open_progress

    need_network(name)
    progress = open_progress()
    try:
        Puller(pull_note=progress.pull, note=progress.note).pull(name, open_client(120))
    except ENGINE_ERRORS as error:
        raise MachineryError(f"{name} cannot be had: {str(error)[:200]}") from error
    finally:
        progress.close()
    held = find_image(find_engine(gpu_here=False).images, name)
    if held is None:
        raise MachineryError(f"{name} was pulled and cannot be found")
    return held
