"""Prepares cases in processes of their own: as many side by side as there are processors and memory for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trtmatrix.common.errors import MachineryError, TrtMatrixError, UsageError
from trtmatrix.common.offline import ENVIRONMENT, refuse_connections
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import LoadedRepro, read_repro
from trtmatrix.suite.repros import Case

if TYPE_CHECKING:  # a run that is served starts without it
    from multiprocessing.queues import SimpleQueue

MEMORY = 2 << 30
"""Bytes that a process may need; the largest case of the project takes a little less."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS")}
"""Processes side by side with threads of their own wait for each other for most of their time."""

POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A case that is to be prepared, of the repro that it belongs to."""

    loaded: LoadedRepro
    case: Case


class Preparer(Protocol):
    """Prepares cases."""

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        """Yield each case once it is prepared, until all are or ``stop`` is set; no group is torn apart.

        :class:`UsageError` where a repro's ``prepare`` or ``emulate`` raises. Nothing is left running.
        """


@dataclass(frozen=True)
class CasePool:
    """Prepares the cases of a cache by processes that are started for it, and ended on every path."""

    cache: Path

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        """Yield each case once it is prepared; see :class:`Preparer`."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        tag, context = f"{os.urandom(6).hex()}-", multiprocessing.get_context("spawn")
        cases, told = CaseCache(self.cache, tag), context.SimpleQueue()
        pool = ProcessPoolExecutor(
            count_processes(len(groups)), context, initializer=_begin, initargs=(self.cache, tag, told)
        )
        try:
            left = {(str(item.loaded.file), item.case.id): item for group in groups for item in group}
            futures = [
                pool.submit(_prepare_group, [
                    (str(item.loaded.file), item.case.id, cases.folder(item.loaded, item.case).name)
                    for item in group
                ])
                for group in groups
            ]  # fmt: skip
            while left and not stop.is_set():
                futures = [future for future in futures if not _is_done(future)]
                while not told.empty():
                    yield left.pop(told.get())
                stop.wait(POLL_SECONDS if left else 0)
        finally:
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown(cancel_futures=True)
            cases.remove_partial()


def _is_done(future: Future[None]) -> bool:
    """Whether a group is prepared; raises what went wrong, caused by its traceback in the other process."""
    if not future.done():
        return False
    try:
        future.result()
    except BrokenExecutor:
        raise MachineryError("a process that prepared cases was killed: perhaps for lack of memory") from None
    except (TrtMatrixError, OSError):  # a full disk, for one: what was wrong in the repro is an error of ours
        raise
    except Exception as error:
        raise MachineryError(f"a case could not be prepared: {error!r}") from error
    return True


class _Here:
    """What one of the processes works with."""

    cases: CaseCache
    told: SimpleQueue[tuple[str, str]]


def _begin(folder: Path, tag: str, told: SimpleQueue[tuple[str, str]]) -> None:
    """Begin a process: it ends with the one that started it, and what a repro prints is no output of ours."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # who started this ends it
    os.environ.update(ONE_THREAD)  # before NumPy is imported
    if os.environ.get(ENVIRONMENT):
        refuse_connections()
    os.dup2(2, 1)
    _Here.cases, _Here.told = CaseCache(folder, tag), told
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        _Here.cases.remove_partial()
        os._exit(0)


def _prepare_group(task: Sequence[tuple[str, str, str]]) -> None:
    """Prepare cases in the folders that are meant; :class:`UsageError` where one would be another."""
    for file, case_id, folder in task:
        loaded = _load(file)
        case = next((case for case in loaded.repro.cases if case.id == case_id), None)
        if case is None or _Here.cases.folder(loaded, case).name != folder:
            raise UsageError(f"{file} was changed since this run began: type the command again")
        _Here.cases.prepare(loaded, case)
        _Here.told.put((file, case_id))


@cache
def _load(file: str) -> LoadedRepro:
    return read_repro(Path(file))


def count_processes(tasks: int) -> int:
    """Return how many processes prepare so many tasks: one a processor, as far as memory allows."""
    return max(1, min(tasks, len(os.sched_getaffinity(0)), free_memory() // MEMORY))


def free_memory() -> int:
    """Return the bytes that this process and its children may still take, of the host and of its cgroup."""

    def numbers(file: str) -> dict[str, int]:
        """Return the number in each line by the line's first word; of a lone number by nothing."""
        try:
            lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines()]
        except OSError:
            return {}
        return {
            " ".join(words[:-1]): int(words[-1])
            for words in ([word for word in line if word != "kB"] for line in lines)
            if words and words[-1].isdecimal()
        }

    free = [numbers("/proc/meminfo").get("MemAvailable:", MEMORY >> 10) << 10]
    group = "/sys/fs/cgroup/memory"
    if most := numbers(f"{group}.max").get("", 0):  # files' memory is given back
        files = numbers(f"{group}.stat").get("inactive_file", 0)
        free.append(most - numbers(f"{group}.current").get("", 0) + files)
    return max(0, min(free))
