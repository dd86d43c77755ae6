"""Prepares cases in processes of their own: as many side by side as there are processors and memory for."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case

MEMORY = 2 << 30
"""Bytes that a process may need; the largest case of the project takes a little less."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS")}
"""Processes side by side with threads of their own wait for each other for most of their time."""

POLL_SECONDS = 0.1
CODE = "import sys; sys.path[:] = sys.argv[1:]; from trtmatrix.prepare.case_worker import main; main()"
"""What a process runs: it finds modules where this one does."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A case that is to be prepared, of the repro that it belongs to."""

    loaded: LoadedRepro
    case: Case


Told = queue.SimpleQueue[Wanted | Exception]
TaskOf = Callable[[Sequence[Wanted]], dict[str, Any]]


class Preparer(Protocol):
    """Prepares cases."""

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        """Yield each case once it is prepared, until all are or ``stop`` is set; no group is torn apart.

        :class:`UsageError` where a repro's ``prepare`` or ``emulate`` raises. Nothing is left running.
        """


class CasePool:
    """Prepares cases by processes that are started for it, and ended on every path."""

    def __init__(self, cache: Path) -> None:
        """Name the cache."""
        self.cache, self.cases = cache, CaseCache(cache)

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        """Yield each case once it is prepared; see :class:`Preparer`."""
        if not groups:
            return
        tag = f"{os.urandom(6).hex()}-"
        tasks = deque(groups)
        workers: list[_Worker] = []
        told: Told = queue.SimpleQueue()
        try:
            for _ in range(count_processes(len(groups))):
                worker = _Worker(lambda group: self._task(group, tag), tasks, told)
                workers.append(worker)  # one at a time: those before are ended where the next cannot start
            yield from _prepared(told, sum(map(len, groups)), stop)
        finally:
            for worker in workers:
                worker.end()
            CaseCache(self.cache, tag).remove_partial()

    def _task(self, group: Sequence[Wanted], tag: str) -> dict[str, Any]:
        cases = [(item.case.id, self.cases.folder(item.loaded, item.case).name) for item in group]
        where = {"cache": str(self.cache), "tag": tag}
        return {"file": str(group[0].loaded.file), "cases": cases, **where}


def _prepared(told: Told, count: int, stop: threading.Event) -> Iterator[Wanted]:
    """Yield what the processes tell; raises what went wrong in one."""
    while count and not stop.is_set():
        try:
            item = told.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(item, Exception):
            raise item
        count -= 1
        yield item


class _Worker:
    """A process that takes one group after another, and the thread that listens to it."""

    def __init__(self, task_of: TaskOf, tasks: deque[Sequence[Wanted]], told: Told) -> None:
        self._task_of, self._tasks, self._told, self._ended = task_of, tasks, told, False
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Give the process its tasks, and tell what it answers."""
        try:
            while True:
                try:
                    group = self._tasks.popleft()
                except IndexError:
                    return
                self._perform(group)
        except Exception as error:  # noqa: BLE001 - raised where the cases are waited for
            self._told.put(error)

    def _perform(self, group: Sequence[Wanted]) -> None:
        assert self.process.stdin is not None  # noqa: S101 - both were asked for
        assert self.process.stdout is not None  # noqa: S101
        by_id = {item.case.id: item for item in group}
        try:
            self.process.stdin.write(json.dumps(self._task_of(group)) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                answer = json.loads(line)
                if "done" in answer:
                    return
                self._told.put(by_id[answer["prepared"]] if "prepared" in answer else _error(answer))
        except OSError:
            pass  # it is gone, which is told now
        if not self._ended:
            raise MachineryError(self._died(group))

    def _died(self, group: Sequence[Wanted]) -> str:
        code = self.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        of = f"{group[0].loaded.repro.id} ({', '.join(item.case.id for item in group[:3])} …)"
        return f"the process that prepared cases of {of} {how}: perhaps for lack of memory"

    def end(self) -> None:
        """End the process, whatever it does."""
        self._ended = True
        self.process.kill()
        self.process.wait()
        self._thread.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class RemoteError(Exception):
    """What was raised in another process, with its traceback as text."""


def _error(answer: dict[str, Any]) -> Exception:
    """Return what a process told of as an exception, caused by its own traceback."""
    kind = UsageError if "usage" in answer else MachineryError
    error = kind(answer.get("usage") or f"a case could not be prepared: {answer['trouble']}")
    error.__cause__ = RemoteError(f"\n{answer['traceback']}")
    return error


def count_processes(tasks: int) -> int:
    """Return how many processes prepare so many tasks: one a processor, as far as memory allows."""
    processors = len(os.sched_getaffinity(0))
    return max(1, min(tasks, processors, free_memory() // MEMORY))


def free_memory() -> int:
    """Return the bytes that this process and its children may still take, of the host and of its cgroup."""
    free = [_number(line) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    groups = Path("/sys/fs/cgroup")
    for limit, used, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        most, now = (_number(" ".join(_lines(str(groups / file)))) for file in (limit, used))
        files = [line for line in _lines(str(groups / stat)) if line.startswith("inactive_file ")]
        free += [most - now + sum(map(_number, files))] if most else []  # files' memory is given back
    return max(0, min(free, default=MEMORY))


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _number(text: str) -> int:
    """Return the first number in a text; 0 where there is none (``max``)."""
    return next((int(word) for word in text.split() if word.isdecimal()), 0)
