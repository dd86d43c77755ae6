"""The shared folder: what the client puts there, and what it finds there.

Whatever is decided on, is decided and written down under its lock. What is assumed of the file system: a
rename is seen whole, opening a file or a folder asks the server for its state, POSIX locks hold between
hosts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm import layout
from trtmatrix.core.slurm.boards import BoardError, Node, add_board
from trtmatrix.core.slurm.manifest import Manifest, Sent, Try
from trtmatrix.core.slurm.shared_json import (
    LAYOUT,
    Gone,
    Wanted,
    check_layout,
    format_manifest,
    parse_manifest,
    parse_sent,
    to_data,
)
from trtmatrix.effects import shared_clean
from trtmatrix.effects.shared_check import check_folder, mount_of
from trtmatrix.effects.shared_files import (
    PARTIAL,
    Copier,
    failure,
    make_folder,
    names_in,
    plain_files,
    read_text,
    write_json,
    write_text,
)
from trtmatrix.effects.shared_lock import hold, never
from trtmatrix.effects.shared_tries import ArrayTries
from trtmatrix.effects.store import read_json


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
        """Name the folder; nothing is touched yet. ``tell`` hears why something takes long.

        ``give_up``, to be set: whether the lock is not waited for any longer, as the run is to stop.
        """
        self.root, self.tell = root, tell
        self.give_up: Callable[[], bool] = never
        self._copier = Copier()
        self._manifests: dict[str, Manifest] = {}
        self._tries: dict[str, ArrayTries] = {}
        self._over: set[str] = set()
        self._sent: dict[Path, Sent] = {}

    def check(self) -> Room:
        """Make sure that the folder does what it must: it is there, can be written, locks and renames.

        :class:`ConfigError` where the site names a folder that cannot be one, :class:`MachineryError` where
        it does not do what it must, or is a newer trtmatrix's.
        """
        check_folder(self.root)
        with self.lock():
            self._check_layout()
        space = os.statvfs(self.root)
        return Room(kind=mount_of(self.root).kind, free=space.f_bavail * space.f_frsize)

    def _check_layout(self) -> None:
        file = self.root / layout.LAYOUT_FILE
        text = read_text(file)
        if text is None:
            write_json(file, {"layout": LAYOUT})
            return
        try:
            number = json.loads(text)["layout"]
        except (ValueError, TypeError, KeyError) as error:
            raise MachineryError(
                f"{file}: it was cut short or changed by hand: remove it and type the command again, unless "
                "a newer trtmatrix works in this folder"
            ) from error
        check_layout(number, str(file))

    @contextmanager
    def lock(self, give_up: Callable[[], bool] | None = None) -> Iterator[None]:
        """Hold the folder's lock; whatever submits is decided on and written down inside. Not re-entrant.

        :class:`LockBusy` where it is not waited for any longer, by ``give_up`` or the folder's own.
        """
        with hold(self.root / "lock", self.tell, give_up or self.give_up):
            yield

    # What goes into containers.

    def stage_suite(self, probe: Path, repros: Path, digest: str) -> Path:
        """Return ``suite/<digest>`` with ``trtprobe`` and ``repros`` in it, copied now if it is not there.

        ``digest``: of their code, which hidden files (an editor's, Git's) are no part of.
        """
        target = self.root / "suite" / digest
        self._copier.copy({"trtprobe": probe, "repros": repros}, target, hidden=False)
        return target

    def stage_case(self, folder: Path) -> Path:
        """Return ``cases/<name>``, a copy of a prepared case, copied now if it is not there."""
        target = self.root / "cases" / folder.name
        self._copier.copy({"": folder}, target)
        return target

    def image(self, key: str) -> SharedImage | None:
        """Return an image that is there; None where it is not, or its file is not the one that was noted."""
        data = read_json(Path(layout.image_folder(str(self.root), key)) / layout.IMAGE)
        if data is None:
            return None
        size = data.get("bytes", 0)
        image = SharedImage(
            key=key, reference=str(data.get("reference", "")), id=str(data.get("id", "")),
            file=str(data.get("file") or ""), bytes=size if isinstance(size, int) else 0,
        )  # fmt: skip
        return image if image.id and _has_size(image.file, image.bytes) else None

    # Arrays.

    def array(self, key: str) -> Path:
        """Return the folder of an array."""
        return Path(layout.array_folder(str(self.root), key))

    def add_array(self, manifest: Manifest, script: str) -> None:
        """Write a new array's folder, whole or not at all; nothing of it is submitted yet."""
        target = self.array(manifest.key)
        make_folder(target.parent)
        partial = target.with_name(f"{PARTIAL}{manifest.key}")
        try:
            for name in ("tries", "ran", "submitted"):
                make_folder(partial / name)
            write_json(partial / layout.MANIFEST, format_manifest(manifest))
            write_text(partial / layout.SCRIPT, script, 0o755)
            partial.rename(target)
        except OSError as error:
            raise failure(target, error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def arrays(self) -> list[Manifest]:
        """Return the arrays that are open, the oldest first; raises as :meth:`all_arrays` for these alone."""
        over = [key for key in names_in(self.root / "arrays") if self._is_over(key)]
        return [manifest for manifest, _ in self.all_arrays(over)]

    def all_arrays(self, without: Collection[str] = ()) -> list[tuple[Manifest, bool]]:
        """Return all arrays but these, each with whether it is over, the oldest first.

        A manifest is read once. :class:`MachineryError` where one is damaged, or a newer trtmatrix's.
        """
        keys = [key for key in names_in(self.root / "arrays") if key not in without]
        found = [(manifest, self._is_over(key)) for key in keys if (manifest := self._manifest(key))]
        return sorted(found, key=lambda item: (item[0].made, item[0].key))

    def _manifest(self, key: str) -> Manifest | None:
        if key not in self._manifests:
            file = self.array(key) / layout.MANIFEST
            text = read_text(file)
            if text is None:  # it is being removed
                return None
            manifest = parse_manifest(text, str(file))
            if manifest.key != key:
                raise MachineryError(f"{file}: it is of the array {manifest.key}; remove {self.array(key)}")
            self._manifests[key] = manifest
        return self._manifests[key]

    def _is_over(self, key: str) -> bool:
        if key not in self._over and read_text(self.array(key) / layout.OVER) is not None:
            self._over.add(key)
        return key in self._over

    def stop_array(self, key: str, why: str) -> None:
        """Write down that an array is being cancelled: nobody submits anything of it any more."""
        write_text(self.array(key) / layout.STOPPING, f"{why}\n")

    def stopping(self, key: str) -> str:
        """Return why an array is being cancelled; empty where it is not."""
        text = read_text(self.array(key) / layout.STOPPING)
        return "" if text is None else text.strip() or "a client was told to end"

    def close_array(self, key: str, why: str) -> None:
        """Write down that nothing of an array is to be collected or submitted any more."""
        write_text(self.array(key) / layout.OVER, f"{why}\n")
        self._tries.pop(key, None)

    # Attempts.

    def add_try(
        self, key: str, task: int, attempt: int, indices: Iterable[int], *, retry: bool = False, why: str = ""
    ) -> None:
        """Write what an attempt is to run, whole; where it stands already, it stays as it is."""
        target = Path(layout.try_folder(str(self.array(key)), task, attempt))
        if (target / layout.WANTED).exists():
            return
        manifest = self._manifest(key)
        if manifest is None:
            raise MachineryError(f"{target}: its array is gone; type the command again")
        wanted = Wanted(indices=tuple(indices), retry=retry, why=why)
        partial = target.with_name(f"{PARTIAL}{task}.{attempt}-{os.urandom(4).hex()}")
        try:
            make_folder(partial / "job")
            for number, index in enumerate(wanted.indices):
                cell = manifest.tasks[task][index]
                write_json(partial / "job" / f"{number}.cell.json", to_data(cell.handed))
            write_json(partial / "job" / "job.json", to_data(manifest.job))
            write_text(partial / "job" / "end", "")
            write_json(partial / layout.WANTED, to_data(wanted))
            partial.rename(target)
        except OSError as error:
            raise failure(target, error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def tries(self, key: str) -> list[Try]:
        """Return what each attempt at an array's tasks left so far, by task and attempt."""
        if key not in self._tries:
            manifest = self._manifest(key)
            if manifest is None:
                return []
            self._tries[key] = ArrayTries(self.array(key), manifest.tasks)
        return self._tries[key].read()

    def note_gone(
        self, key: str, task: int, attempt: int, state: str, reason: str = "", node: str = ""
    ) -> None:
        """Write down how Slurm says that a job ended; who wrote it first, wins. Under the lock."""
        file = Path(layout.try_folder(str(self.array(key)), task, attempt)) / layout.GONE
        if read_text(file) is None:
            write_json(file, to_data(Gone(state=state, reason=reason, node=node)))

    def ran(self, key: str, left: Try) -> Path | None:
        """Return the folder of what an attempt left (surfaces lie there, too), None where it left none."""
        return ArrayTries(self.array(key), ()).ran(f"{left.task}.{left.attempt}")

    def read_record(self, key: str, left: Try, number: int) -> dict[str, Any] | None:
        """Return what the probe recorded as a number of an attempt; None where it is not there."""
        for _ in range(2):  # the folder may be renamed between the two steps
            folder = self.ran(key, left)
            data = None if folder is None else read_json(folder / f"{number}.record.json")
            if data is not None:
                return data
        return None

    def take_outputs(self, key: str, left: Try, number: int, into: Path) -> Path:
        """Copy a cell's outputs to ``into``, which is made, and return it: others may want them, too.

        Only plain files are taken: what a container wrote must not name files of this host's.
        """
        for attempt in range(2):  # the folder may be renamed meanwhile
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir(parents=True)
            folder = self.ran(key, left)
            source = None if folder is None else folder / str(number)
            if source is None or source.is_symlink():
                break
            try:
                for path, _ in plain_files(source):
                    (into / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source / path, into / path, follow_symlinks=False)
            except FileNotFoundError as error:
                if attempt:
                    raise failure(source, error) from error
            except OSError as error:
                raise failure(source, error) from error
            else:
                if folder is not None and folder.is_dir():
                    break
        return into

    # Submissions.

    def submissions(self, key: str) -> list[Sent]:
        """Return an array's submissions, the first one first."""
        folder = self.array(key) / "submitted"
        found = (self._submission(folder / name) for name in names_in(folder) if name.endswith(".json"))
        return sorted((sent for sent in found if sent is not None), key=lambda sent: sent.number)

    def _submission(self, file: Path) -> Sent | None:
        if file not in self._sent:
            text = read_text(file)
            if text is None:
                return None
            sent = parse_sent(text, str(file))
            if sent.is_open or sent.later:
                return sent
            self._sent[file] = sent
        return self._sent[file]

    def note_submission(self, key: str, sent: Sent) -> None:
        """Write a submission: before sbatch is called, and again with what it answered."""
        file = self.array(key) / "submitted" / f"{sent.number}.json"
        self._sent.pop(file, None)
        write_json(file, to_data(sent))

    # Nodes.

    def note_node(self, node: str, gpu: str, seen: str) -> None:
        """Note what nvidia-smi told of a GPU on a node (one line of its CSV), at a time in UTC.

        What is no line of it is left out. Under the lock: two clients may tell of one node.
        """
        file = self.root / "nodes" / f"{_file_name(node)}.json"
        known = _node(read_json(file) or {})
        if known.name != node:
            known = Node(name=node)
        try:
            new = add_board(known, gpu, seen)
        except BoardError:
            return
        if new != known:
            make_folder(file.parent)
            write_json(file, to_data(new))

    def boards(self) -> list[Node]:
        """Return what jobs found on each node: lines of nvidia-smi's CSV, one for each GPU, and when."""
        folder = self.root / "nodes"
        read = (read_json(folder / name) for name in names_in(folder) if name.endswith(".json"))
        return [_node(data) for data in read if data is not None]

    def clean(self, days: float) -> list[str]:
        """Remove what nobody needs any more: arrays that have been over so long and the like; tell what."""
        with self.lock():
            old = shared_clean.set_aside(self.root, days)
        for path in old.values():  # it may take long: nobody waits for it
            shared_clean.remove(path)
        return list(old)


def _has_size(file: str, size: int) -> bool:
    """Whether an image's file is the one that was noted; one in engines of nodes has none."""
    try:
        return not file or Path(file).stat().st_size == size
    except OSError:
        return False


def _file_name(node: str) -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in node).lstrip(".") or "_"
    )


def _node(data: Mapping[str, Any]) -> Node:
    gpus = data.get("gpus")
    lines = tuple(str(line) for line in gpus) if isinstance(gpus, list) else ()
    return Node(name=str(data.get("name", "")), gpus=lines, seen=str(data.get("seen", "")))
