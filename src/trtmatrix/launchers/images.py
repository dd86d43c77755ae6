"""Images as files in the cache: each is pulled once, also by several hosts that share the cache."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.commands import run_to_end
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.file_lock import hold
from trtmatrix.common.offline import need_network
from trtmatrix.launchers.apptainer import Apptainer
from trtmatrix.launchers.image_files import file_ids
from trtmatrix.launchers.pyxis import Pyxis
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Launch

Runtime = Apptainer | Pyxis
NOT_UNDERSTOOD = "Invalid image reference"  # enroot's words for a form that its release does not know


def held_images(cache: Path, suffix: str) -> dict[str, str]:
    """Return what lies in the cache for a runtime: reference → digest."""
    found = {}
    for note in sorted((cache / "images").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            data = json.loads(note.read_text(encoding="utf-8"))
            if note.with_suffix(suffix).is_file():
                found[str(data["reference"])] = str(data["digest"])
    return found


class ImageFiles:
    """The files of images for one runtime, in ``<cache>/images``."""

    def __init__(self, cache: Path, runtime: Runtime, note: Callable[[str], None]) -> None:
        """Name the folder; ``note`` is told of what takes long."""
        self.folder, self.runtime, self.note = cache / "images", runtime, note

    def have(self, launch: Launch) -> tuple[Path, str]:
        """Return the file of a launch's image and the digest that records have; pulled now where planned.

        A locked image is the same from any registry. :class:`MachineryError` where it cannot be had.
        """
        origin = launch.version.origin
        if not isinstance(origin, ImageOrigin):
            raise MachineryError(f"{launch.version.name} is no container's version")
        which = origin.pin.ids[0] if origin.pin is not None else origin.reference
        if origin.is_file:
            return Path(origin.image), which
        key = sha256(f"{self.runtime.name}\n{which}".encode()).hexdigest()[:16]
        image, note = self.folder / f"{key}{self.runtime.suffix}", self.folder / f"{key}.json"
        with hold(self.folder / f"{key}.lock", self.note):
            if not image.exists():
                if not launch.pull:
                    raise MachineryError(f"{origin.reference} is not in {self.folder}")
                self._pull(origin, image, note)
            return image, str(json.loads(note.read_text(encoding="utf-8"))["digest"])

    def _pull(self, origin: ImageOrigin, image: Path, note: Path) -> None:
        """Pull under another name on the same disk; the image appears whole, and last. Nothing else stays."""
        need_network(origin.reference)
        self.note(f"{self.runtime.name}: pulling {origin.reference}")
        for old in self.folder.glob(f".{image.stem}.*"):  # of a pull that was killed: the lock is ours
            shutil.rmtree(old, ignore_errors=True)
        work = self.folder / f".{image.stem}.{os.urandom(4).hex()}"
        work.mkdir(mode=0o700)
        try:
            made = work / image.name
            self._run(origin.reference, made)
            digest = origin.pin.ids[0] if origin.pin is not None else file_ids(made)[0]
            (work / "note").write_text(json.dumps({"reference": origin.reference, "digest": digest}))
            (work / "note").replace(note)
            made.replace(image)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run(self, reference: str, made: Path) -> None:
        """Pull to a file; layers, several times as large as the image, go beside it, to no home folder."""
        folders = self.runtime.pull_folders(os.environ, made.parent)
        for folder in folders.values():
            Path(folder).mkdir(exist_ok=True)
        for words in self.runtime.pull_words(reference, str(made)):
            code, said = run_to_end(words, {**os.environ, **folders})
            if code == 0 and made.is_file():
                return
            if NOT_UNDERSTOOD not in said:
                break
        by_hand = " ".join(words).replace(str(made), made.name)
        raise MachineryError(
            f"{reference} cannot be had: {said.strip()[-1000:]}\n  try it by hand: {by_hand}"
        )
