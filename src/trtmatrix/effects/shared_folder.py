"""The shared folder: what the client puts there, and what it finds there. Every decision is made under its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.core.slurm.manifest import Manifest, Sent, Try


@dataclass(frozen=True, kw_only=True)
class SharedImage:
    """An image that every node sees: ``file`` may be empty where nodes have it in an engine of their own."""

    key: str
    reference: str
    id: str
    file: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the shared folder is: the kind of its file system, and the bytes that are free."""

    kind: str
    free: int


class SharedFolder:
    """A folder that this host and every node see. For one user; several clients of theirs share it."""

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        """Name the folder; nothing is touched yet. ``tell`` hears why something takes long."""
        self.root, self.tell = root, tell

    def check(self) -> Room:
        """Make sure that the folder does what it must: it is there, can be written, locks and renames.

        :class:`ConfigError` where the site names a folder that cannot be one, :class:`MachineryError` where it
        does not do what it must, or is a newer trtmatrix's.
        """
        raise NotImplementedError

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; whatever submits is decided on and written down inside. Not re-entrant."""
        raise NotImplementedError
        yield

    def stage_suite(self, probe: Path, repros: Path, digest: str) -> Path:
        """Return ``suite/<digest>`` with ``trtprobe`` and ``repros`` in it, copied now if it is not there."""
        raise NotImplementedError

    def stage_case(self, folder: Path) -> Path:
        """Return ``cases/<name>``, a copy of a prepared case, copied now if it is not there."""
        raise NotImplementedError

    def image(self, key: str) -> SharedImage | None:
        """Return an image that is there; None where it is not, or its file is not the one that was noted."""
        raise NotImplementedError

    def note_image(self, image: SharedImage) -> None:
        """Note an image as there: for one that the site brings, of which no import is needed."""
        raise NotImplementedError

    def add_array(self, manifest: Manifest, script: str) -> None:
        """Write a new array's folder, whole or not at all; nothing of it is submitted yet."""
        raise NotImplementedError

    def arrays(self) -> list[Manifest]:
        """Return the arrays that are open, the oldest first."""
        raise NotImplementedError

    def stop_array(self, key: str, why: str) -> None:
        """Write down that an array is being cancelled: nobody submits anything of it any more."""
        raise NotImplementedError

    def stopping(self, key: str) -> str:
        """Return why an array is being cancelled; empty where it is not."""
        raise NotImplementedError

    def close_array(self, key: str, why: str) -> None:
        """Write down that nothing of an array is to be collected or submitted any more."""
        raise NotImplementedError

    def add_try(
        self, key: str, task: int, attempt: int, indices: Iterable[int], *, retry: bool = False, why: str = ""
    ) -> None:
        """Write what an attempt is to run, whole; where it stands already, it stays as it is."""
        raise NotImplementedError

    def tries(self, key: str) -> list[Try]:
        """Return what each attempt at an array's tasks left so far, by task and attempt."""
        raise NotImplementedError

    def note_gone(self, key: str, task: int, attempt: int, state: str, reason: str = "") -> None:
        """Write down Slurm's state of a job that is gone; who wrote it first, wins."""
        raise NotImplementedError

    def read_record(self, key: str, left: Try, number: int) -> dict[str, Any] | None:
        """Return what the probe recorded as its number ``number`` of an attempt; None where it is not there."""
        raise NotImplementedError

    def take_outputs(self, key: str, left: Try, number: int, into: Path) -> Path:
        """Copy a cell's outputs to ``into``, which is new, and return it: another client may want them, too."""
        raise NotImplementedError

    def ran(self, key: str, left: Try) -> Path | None:
        """Return the folder of what an attempt left (surfaces lie there, too), None where it left none."""
        raise NotImplementedError

    def submissions(self, key: str) -> list[Sent]:
        """Return an array's submissions, the first one first."""
        raise NotImplementedError

    def note_submission(self, key: str, sent: Sent) -> None:
        """Write a submission: before sbatch is called, and again with what it answered."""
        raise NotImplementedError

    def note_node(self, node: str, gpu: str, seen: str) -> None:
        """Note what nvidia-smi told of a GPU on a node (one line of its CSV), at a time in UTC."""
        raise NotImplementedError

    def nodes(self) -> Mapping[str, tuple[str, ...]]:
        """Return by node the lines of nvidia-smi's CSV that were seen there, one for each GPU."""
        raise NotImplementedError

    def clean(self, days: float) -> list[str]:
        """Remove arrays that have been over for so long, and what dead clients left half-written; tell what."""
        raise NotImplementedError
