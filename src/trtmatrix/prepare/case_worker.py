"""One process that prepares cases for another: a task a line on its input, what came of it on its output.

It ends at once when its input ends, so that it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.common.offline import ENVIRONMENT, refuse_connections
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import LoadedRepro, read_repro


def main() -> None:
    """Prepare what is asked for, until nothing more is."""
    if os.environ.get(ENVIRONMENT):
        refuse_connections()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # who started this ends it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a repro prints is no answer
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, tasks), daemon=True).start()
    while True:
        task = json.loads(tasks.get())
        cases = _cases(task["cache"], task["tag"])
        for answer in _answers(task, cases):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _listen(stream: IO[str], tasks: queue.SimpleQueue[str]) -> None:
    last = ""
    for line in stream:
        last = line
        tasks.put(line)
    if last:
        task = json.loads(last)
        CaseCache(Path(task["cache"]), task["tag"]).remove_partial()
    os._exit(0)


@cache
def _cases(folder: str, tag: str) -> CaseCache:
    return CaseCache(Path(folder), tag)


def _answers(task: dict[str, Any], cases: CaseCache) -> Iterator[dict[str, Any]]:
    """Yield an answer for each case of a task, in order; the first trouble is the last."""
    try:
        loaded = _load(task["file"])
        for case_id, folder in task["cases"]:
            _prepare(loaded, case_id, folder, cases)
            yield {"prepared": case_id}
    except TrtMatrixError as error:
        yield {"usage": str(error), "traceback": traceback.format_exc()}
    except Exception as error:  # noqa: BLE001 - told to the process that waits
        yield {"trouble": repr(error), "traceback": traceback.format_exc()}
    yield {"done": True}


@cache
def _load(file: str) -> LoadedRepro:
    return read_repro(Path(file))


def _prepare(loaded: LoadedRepro, case_id: str, folder: str, cases: CaseCache) -> None:
    """Prepare a case in the folder that is meant; :class:`UsageError` where it would be another."""
    case = next((case for case in loaded.repro.cases if case.id == case_id), None)
    if case is None or cases.folder(loaded, case).name != folder:
        raise UsageError(f"{loaded.file} was changed since this run began: type the command again")
    cases.prepare(loaded, case)
