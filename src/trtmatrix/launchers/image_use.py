"""Who still wants which image in this run; those that are not kept go after their last cell."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone

import docker
import docker.errors

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.owner import is_dead, own_identity
from trtmatrix.launchers.engine import name_engine, open_client
from trtmatrix.launchers.engine_errors import ENGINE_ERRORS
from trtmatrix.launchers.pulled import Ledger, Page
from trtmatrix.launchers.pulled_rules import PulledImage, Speed
from trtmatrix.suite.matrix import ImageOrigin, Origin
from trtmatrix.suite.plan import Keep, Launch
from trtmatrix.tables.table import one_line

AT_ONCE = 2
"""Images that are here at once where they go after their last cell: one runs, the next is pulled."""

BaseOf = Callable[[str], ImageOrigin]
"""Returns how the base of an image of ours is known and asked for."""


class NoUse:
    """Nobody counts: every image stays, as where an image is had outside of a run."""

    def expect(self, launches: Iterable[Launch]) -> None:
        """Hear which launches will be run."""

    def ended(self, launch: Launch) -> None:
        """Hear that a launch, or a part of one, has ended or never will be run."""

    def hold(self, origin: ImageOrigin, client: docker.DockerClient) -> str | None:
        """Return the ID under which the engine has an image, which stays while it is wanted; or None."""
        return find_held(origin, client)

    def pull(self, origin: ImageOrigin, client: docker.DockerClient, pull: Callable[[], int]) -> str:
        """Have an image pulled, and return its ID."""
        pull()
        return id_of(origin.reference, client)

    def base_of(self, base: str) -> ImageOrigin:
        """Return how a base is known and asked for."""
        return ImageOrigin(image=base)


class ImageUse(NoUse):
    """Counts the cells that still want an image, and keeps the books of what this tool pulled.

    Several names may be of one image: it goes after the last of them, and stays where one of them stays.
    """

    def __init__(self, *, ledger: Ledger, keep: Keep, note: Callable[[str], None], base_of: BaseOf) -> None:
        """Keep the policy, and who is told of what is dropped."""
        self.ledger, self.keep, self.note, self._base_of = ledger, keep, note, base_of
        self._wanted: Counter[str] = Counter()
        self._pins: dict[str, tuple[str, ...]] = {}
        self._held: dict[str, tuple[str, docker.DockerClient]] = {}
        self._staying: set[str] = set()
        self._here: set[str] = set()  # pulled now, and to go again
        self._changed = threading.Condition()
        self._engine = ""

    def base_of(self, base: str) -> ImageOrigin:
        """Return how a base is known and asked for."""
        return self._base_of(base)

    def expect(self, launches: Iterable[Launch]) -> None:
        """Count the cells of all launches that will be run."""
        for launch in launches:
            for origin in self._origins(launch):
                self._wanted[origin.image] += len(launch.cells)
                self._pins[origin.image] = origin.pin.ids if origin.pin is not None else ()

    def ended(self, launch: Launch) -> None:
        """Drop the images of which this was the last."""
        for origin in self._origins(launch):
            with self._changed:
                self._wanted[origin.image] -= len(launch.cells)
                held = self._held.get(origin.image) if self._wanted[origin.image] <= 0 else None
            if held is not None:
                self._let_go(origin, *held)
            with self._changed:
                if self._wanted[origin.image] <= 0:
                    self._here.discard(origin.image)
                self._changed.notify_all()

    def hold(self, origin: ImageOrigin, client: docker.DockerClient) -> str | None:
        """Return the ID under which the engine has an image, and note that it is used; or None."""
        engine = self._engine_of(client)
        with self.ledger.open() as page:
            image_id = find_held(origin, client)
            if image_id is not None:
                page.write(page.books.use(engine, image_id, own_identity()))
                self._note_held(origin, image_id, client)
        return image_id

    def pull(self, origin: ImageOrigin, client: docker.DockerClient, pull: Callable[[], int]) -> str:
        """Have an image pulled once there is room for it; what was here before is not taken for pulled.

        Another run may have brought it while this one waited.
        """
        engine, drop = self._engine_of(client), not self._stays(origin)
        if drop:
            with self._changed:
                self._changed.wait_for(lambda: len(self._here) < AT_ONCE)
                self._here.add(origin.image)
        if (held := self.hold(origin, client)) is not None:
            return held
        image = PulledImage(
            engine=engine, reference=origin.reference, owner=own_identity(), drop=drop,
            began=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )  # fmt: skip
        with self.ledger.open() as page:
            before = _ids(client)
            page.write(page.books.begin(image))
        started = time.monotonic()
        with self._struck_if_lost(image):
            size = pull()
            image_id = id_of(origin.reference, client)
            speed = Speed(size=size, seconds=round(time.monotonic() - started, 3))
            with self.ledger.open() as page:
                if image_id in before and not page.books.ours(engine, image_id):
                    page.write(page.books.forget(image).use(engine, image_id, image.owner))
                else:
                    page.write(page.books.finish(image, image_id, speed))
                self._note_held(origin, image_id, client)
        return image_id

    @contextlib.contextmanager
    def _struck_if_lost(self, image: PulledImage) -> Iterator[None]:
        """Strike a pull that fails: whoever pulls it by hand afterwards keeps it."""
        try:
            yield
        except BaseException:
            with self.ledger.open() as page:
                page.write(page.books.forget(image))
            raise

    def drop_leftovers(self, wanted: Iterable[Origin]) -> bool:
        """Remove what killed runs pulled and wanted gone, but for what is wanted now; whether there was any.

        What somebody has removed meanwhile is struck: where it comes again, it may be theirs.
        """
        if not self.ledger.read().pulled:
            return False
        client = open_client(timeout=120)
        engine = self._engine_of(client)
        with self.ledger.open() as page:
            for image in page.books.of(engine):
                if not _has(client, image.reference, image.image_id):
                    page.write(page.books.forget(image))
            needed = {find_held(origin, client) for origin in wanted if isinstance(origin, ImageOrigin)}
            left = [each for each in page.books.leftovers(engine, is_dead) if each not in needed]
            for image_id in left:
                self._remove(page, engine, image_id, client)
        return bool(left)

    def _origins(self, launch: Launch) -> list[ImageOrigin]:
        """Return the images that a launch wants: its own, and the base where it is to be built."""
        origin = launch.version.origin
        if launch.python is not None or not isinstance(origin, ImageOrigin):
            return []
        return [origin, self.base_of(origin.build.base)] if launch.build and origin.build else [origin]

    def _stays(self, origin: ImageOrigin) -> bool:
        return self.keep is Keep.ALL or (self.keep is Keep.LOCKED and origin.pin is not None)

    def _note_held(self, origin: ImageOrigin, image_id: str, client: docker.DockerClient) -> None:
        """Note what a name stands for while the books are open, as they are to who lets go of it."""
        with self._changed:
            self._held[origin.image] = image_id, client

    def _pass_on(self, origin: ImageOrigin, image_id: str) -> bool:
        """Whether another name of this run still wants the image that a name has done with."""
        with self._changed:
            self._held.pop(origin.image, None)
            if self._stays(origin):
                self._staying.add(image_id)
            held = [name for name, (held, _) in self._held.items() if held == image_id]
            later = [name for name, ids in self._pins.items() if image_id in ids and self._wanted[name] > 0]
            heirs = [*held, *later]
            if heirs and origin.image in self._here:
                self._here.add(heirs[0])
            return bool(heirs)

    def _let_go(self, origin: ImageOrigin, image_id: str, client: docker.DockerClient) -> None:
        """Use an image no more, and remove it where it is to go; trouble with that is only told."""
        engine = self._engine_of(client)
        with self.ledger.open() as page:
            if self._pass_on(origin, image_id):
                return
            stays = image_id in self._staying
            books = page.books.release(engine, image_id, own_identity())
            page.write(books.set_drop(engine, image_id, drop=not stays))
            if not stays and not page.books.is_used(engine, image_id):
                self._remove(page, engine, image_id, client)

    def _remove(self, page: Page, engine: str, image_id: str, client: docker.DockerClient) -> None:
        """Remove an image by the references that it was pulled under, never by force."""
        for image in page.books.ours(engine, image_id):
            try:
                if _has(client, image.reference, image_id):
                    client.images.remove(image.reference)
                    self.note(f"removed {image.reference}: its last cell has run")
                page.write(page.books.forget(image))
            except ENGINE_ERRORS as error:
                self.note(f"{image.reference} stays: {one_line(str(error))[:200]}")

    def _engine_of(self, client: docker.DockerClient) -> str:
        """Return what tells this engine from others: not its ID, which Podman makes up each time."""
        if not self._engine:
            self._engine = name_engine(client.info()) or client.api.base_url
        return self._engine


def find_held(origin: ImageOrigin, client: docker.DockerClient) -> str | None:
    """Return the ID under which the engine has an origin's image just now, or None."""
    names = origin.pin.ids if origin.pin is not None else (origin.mirror or origin.image, origin.image)
    for name in names:
        with contextlib.suppress(docker.errors.NotFound):
            return str(client.images.get(name).id)
    return None


def id_of(reference: str, client: docker.DockerClient) -> str:
    """Return the ID of an image that is here."""
    return str(client.images.get(reference).id)


def check_pin(origin: ImageOrigin, image_id: str) -> None:
    """Refuse an image other than the locked one."""
    if origin.pin is not None and image_id not in origin.pin.ids:
        raise MachineryError(
            f"{origin.reference} is {image_id}, not what matrix.lock has: {origin.pin.ids[0]}\n"
            "  matrix.lock was changed by hand, or is another registry's: nox -s lock shows what that says"
        )


def _ids(client: docker.DockerClient) -> frozenset[str]:
    """Return the IDs of all images that are here."""
    return frozenset(str(image["Id"]) for image in client.api.images(all=True))


def _has(client: docker.DockerClient, reference: str, image_id: str) -> bool:
    """Whether a reference still means that image: its tag may have been given to another since."""
    try:
        return str(client.images.get(reference).id) == image_id
    except docker.errors.NotFound:
        return False
