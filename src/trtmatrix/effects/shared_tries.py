"""Reads what attempts left on the shared folder; what can no longer change is read once."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trtmatrix.core.model import Cause
from trtmatrix.core.slurm import layout
from trtmatrix.core.slurm.manifest import Asked, Try
from trtmatrix.core.slurm.shared_json import Wanted, parse_facts, parse_gone, parse_wanted
from trtmatrix.core.slurm.words import ENDED, GPU_FILE, LOG_FILE, STARTED, Trouble
from trtmatrix.effects.shared_files import names_in, read_text
from trtmatrix.effects.store import read_json

ALIVE = "alive"
"""What a script touches now and then while it runs."""

LOG_BYTES = 16_000
FACT_BYTES = 64_000
_NAME = re.compile(r"(\d+)\.(\d+)(?:\.(.+))?")
_OF_A_CELL = re.compile(r"(\d+)\.(record|started)\.json")
_TRUE = frozenset({"1", "true", "yes"})


@dataclass
class _Seen:
    """What was read of a folder that is still written to: records that are there, by number.

    The value: whether a record only says that the probe was cut off. ``sign``: the date of the last sign of
    life, as its writer or the folder's server dates it; ``heard``: when it was first seen, by our own clock.
    """

    records: dict[int, bool] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    gpu: str = ""
    sign: float = 0.0
    heard: float = 0.0


class ArrayTries:
    """The attempts of one array. ``folder``: the array's."""

    def __init__(self, folder: Path, tasks: tuple[tuple[Asked, ...], ...]) -> None:
        """Nothing is read yet."""
        self.folder, self.tasks = folder, tasks
        self._wanted: dict[str, Wanted] = {}
        self._done: dict[str, Try] = {}
        self._seen: dict[Path, _Seen] = {}

    def read(self) -> list[Try]:
        """Return all attempts, by task and attempt. :class:`MachineryError` where one is damaged.

        It costs a listing of ``tries`` and of ``ran``, and one of each folder that is still written to.
        """
        tries = names_in(self.folder / "tries")
        ran = self._ran() if any(name not in self._done for name in tries) else {}
        found = [self._done.get(name) or self._read(name, ran.get(name, [])) for name in tries]
        return sorted((left for left in found if left), key=lambda left: (left.task, left.attempt))

    def _ran(self) -> dict[str, list[str]]:
        """Return by attempt the folders in ``ran``: the published one first, then the newest job's."""
        found: dict[str, list[str]] = {}
        for name in names_in(self.folder / "ran"):
            if match := _NAME.fullmatch(name):
                found.setdefault(f"{match[1]}.{match[2]}", []).append(name)
        for names in found.values():
            names.sort(key=lambda name: (name.count(".") == 1, len(name), name), reverse=True)
        return found

    def ran(self, name: str) -> Path | None:
        """Return the folder of what an attempt left, if it left any; it may be renamed at any moment."""
        published = self.folder / "ran" / name
        if published.is_dir():
            return published
        names = self._ran().get(name, [])
        return self.folder / "ran" / names[0] if names else None

    def _read(self, name: str, ran: list[str]) -> Try | None:
        match = _NAME.fullmatch(name)
        if match is None or match[3]:
            return None
        task, attempt = int(match[1]), int(match[2])
        wanted = self._read_wanted(name, task)
        if wanted is None:
            return None
        left = Try(
            task=task, attempt=attempt, indices=wanted.indices, retry=wanted.retry, why=wanted.why,
            **read_gone(self.folder / "tries" / name / layout.GONE),
        )  # fmt: skip
        if ran:
            left = self._add(left, ran[0])
        if left.published and (left.gone or left.trouble != Trouble.CANCELLED):
            self._done[name] = left
        return left

    def _read_wanted(self, name: str, task: int) -> Wanted | None:
        if name not in self._wanted:
            file = self.folder / "tries" / name / layout.WANTED
            text = read_text(file)
            if text is None or not 0 <= task < len(self.tasks):
                return None
            self._wanted[name] = parse_wanted(text, str(file), self.tasks[task])
        return self._wanted[name]

    def _add(self, left: Try, name: str) -> Try:
        """Return an attempt with what lies in its folder."""
        folder = self.folder / "ran" / name
        names = names_in(folder)
        if not names and name.count(".") > 1 and not folder.is_dir():  # it was published just now
            name = f"{left.task}.{left.attempt}"
            folder = self.folder / "ran" / name
            names = names_in(folder)
        seen = self._seen.setdefault(folder, _Seen())
        numbers: dict[str, set[int]] = {"record": set(), "started": set()}
        for entry in names:
            if (match := _OF_A_CELL.fullmatch(entry)) and int(match[1]) < len(left.indices):
                numbers[match[2]].add(int(match[1]))
        for number in numbers["record"] - seen.records.keys():
            data = read_json(folder / f"{number}.record.json")
            if data is not None:  # else it comes with the next look
                seen.records[number] = data.get("ended") == Cause.INTERRUPTED.value
        left = add_facts(left, folder, seen_facts(folder, seen), published=name.count(".") == 1)
        left = replace(left, seconds=_silence(folder, seen))
        records = frozenset(number for number, cut in seen.records.items() if not cut)
        left = replace(
            left, records=records, started=frozenset(numbers["started"] | seen.records.keys()),
            interrupted=frozenset(seen.records) - records,
        )  # fmt: skip
        return _settled(left, folder) if left.published else left


def seen_facts(folder: Path, seen: _Seen) -> dict[str, str]:
    """Return what a script told at its start, and of its GPU (under ``gpu``)."""
    if not seen.started:
        seen.started = parse_facts(read_text(folder / STARTED, FACT_BYTES) or "")
    if not seen.gpu:
        seen.gpu = (read_text(folder / GPU_FILE, FACT_BYTES) or "").strip()
    return {**seen.started, "gpu": seen.gpu}


def add_facts(left: Try, folder: Path, started: dict[str, str], *, published: bool) -> Try:
    """Return an attempt with what its script told of its start and, where it is published, of its end."""
    left = replace(
        left, job=started.get("job", ""), node=started.get("node", "") or left.node,
        gpu=started.get("gpu", ""),
    )  # fmt: skip
    if not published:
        return left
    ended = parse_facts(read_text(folder / ENDED, FACT_BYTES) or "")
    code = ended.get("code", "")
    return replace(
        left, published=True, code=int(code) if re.fullmatch(r"-?\d{1,9}", code) else None,
        oom=ended.get("oom", "").lower() in _TRUE, trouble=ended.get("trouble", ""),
        detail=ended.get("detail", ""), log=read_text(folder / LOG_FILE, LOG_BYTES) or "",
    )  # fmt: skip


def read_gone(file: Path) -> dict[str, Any]:
    """Return the fields of an attempt that a client's note of its job's end gives."""
    text = read_text(file)
    if text is None:
        return {}
    gone = parse_gone(text, str(file))
    return {"gone": gone.state, "gone_why": gone.reason, "node": gone.node}


def _settled(left: Try, folder: Path) -> Try:
    """Return a published attempt with what matters where a cell was started and left no record."""
    cut = sorted(left.started - left.records)
    if not cut:
        return left
    told = left.oom and any(_told_of_memory(folder, number) for number in left.records)
    return replace(left, oom=left.oom and not told, running=_running(folder, cut[-1]))


def _told_of_memory(folder: Path, number: int) -> bool:
    """Whether a record tells of a kill for memory: then the engine's flag, of all its time, is no news."""
    return bool((read_json(folder / f"{number}.record.json") or {}).get("oom_kills"))


def _running(folder: Path, number: int) -> float:
    """Return the seconds from a cell's start to the job's end, both as the folder's server dates them."""
    try:
        began, ended = ((folder / name).stat().st_mtime for name in (f"{number}.started.json", ENDED))
    except OSError:
        return 0.0
    return max(0.0, ended - began)


def _silence(folder: Path, seen: _Seen) -> float:
    """Return for how long nothing was heard of a job.

    Clocks of hosts may differ: a sign that was seen to be a new one was given just now, whatever its date.
    """
    times = [0.0]
    for path in (folder, folder / ALIVE):
        with contextlib.suppress(OSError):
            times.append(os.stat(path).st_mtime)  # noqa: PTH116 - each second, of each job
    now, sign = time.monotonic(), max(times)
    if not seen.sign:
        seen.heard = now - max(0.0, time.time() - sign)
    elif sign != seen.sign:
        seen.heard = now
    seen.sign = sign
    return now - seen.heard
