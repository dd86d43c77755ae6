"""One cell: load the repro, run it once for each build, hand over. Called in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import traceback
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Optional, Protocol

import numpy as np

from trtprobe import ends, observe
from trtprobe.answer import Answer, which_build
from trtprobe.backends import Backend, Opened
from trtprobe.files import CaseFiles
from trtprobe.plans import Plans

TROUBLE = "trouble"
"""Where a result tells of an error that the GPU's context reports after the cell."""


class Taker(Protocol):
    """Who is told what comes of a cell: :class:`trtprobe.answer.Answer`, or a channel to one."""

    def tell(self, result: Dict[str, Any], *, final: bool = False) -> None:
        """Take the result, or what it is so far, so that a crash does not lose what was observed."""

    def hand(self, number: int, outputs: Dict[str, np.ndarray]) -> None:
        """Take the outputs of a build, from 0 on."""


def run_and_measure(spec: Dict[str, Any]) -> Dict[str, Any]:
    """Return the result of one cell, run and measured in this process."""
    answer = Answer(spec.get("builds", 1))
    run_cell(spec, answer)
    return answer.measured(spec)


def run_cell(spec: Dict[str, Any], taker: Taker, opened: Optional[Opened] = None) -> Dict[str, Any]:
    """Return the result of one cell, and tell it; every exception becomes a way of ending.

    ``spec`` has ``product``, ``repro`` (path of the file), ``params``, ``files`` (the case's folder),
    ``keep_outputs`` and, if there are any, ``needs`` (modules whose absence is no fault of the repro),
    ``memo`` (:attr:`Backend.memo`), ``plans`` (the folder of :class:`Plans`, for the ``cell`` of this name)
    and ``builds``: how often the repro is run, over one backend that keeps its Builder and forgets all else.
    ``opened``: the product as this process keeps it open from cell to cell.

    The result's ``measurements`` and ``engine`` are the first build's; where several were asked for,
    ``builds`` holds those of each that ended. ``counts`` tells which of the first's scalars are counts.
    Outputs are not measured here, but handed to ``taker``.
    """
    result: Dict[str, Any] = {"observed": observe.observed(), "environment": observe.environment()}
    result.update(ended=ends.PROBE_FAILED, detail="", counts={}, **nothing_yet())
    opened = opened or Opened(spec["product"])
    try:
        _run_builds(spec, taker, result, opened)
        result["ended"] = ends.RAN
    except ends.CellEnd as end:
        result.update(ended=end.ended, detail=str(end))
    except MemoryError:
        result.update(ended=ends.OUT_OF_HOST_MEMORY, detail="MemoryError: " + _last_line())
    except BaseException as error:
        result.update(ended=_blame(error, spec), detail="raised " + _last_line())
        traceback.print_exc()
    result["observed"].update(observe.loaded())
    if result["ended"] != ends.BUILT:
        ended = len(result.get("builds", ()))
        result["detail"] = (
            which_build(spec.get("builds", 1) if "builds" in result else 1, ended) + result["detail"]
        )
    trouble = opened.trouble()
    if trouble:
        result[TROUBLE] = trouble
        if result["ended"] == ends.RAN:
            detail = "the GPU's context reports an error after it: " + trouble
            result.update(ended=ends.CRASHED, detail=detail)
    taker.tell(result, final=True)
    return result


def nothing_yet() -> Dict[str, Any]:
    """Return what is known of a build before it has started."""
    return {"measurements": {"outputs": {}, "signatures": {}, "scalars": {}, "remark": ""}, "engine": {}}


def _run_builds(spec: Dict[str, Any], taker: Taker, result: Dict[str, Any], opened: Opened) -> None:
    """Run the repro for each build; what each gave goes into the result at once."""
    backend, memo, plans = opened.backend(), spec.get("memo"), spec.get("plans")
    own_memo = Path(memo, str(os.getpid())) if memo else None  # what another process left is not believed
    backend.begin(own_memo, Plans(Path(plans) if plans else None, spec.get("cell", "")))
    result["observed"].update(backend.observed())
    taker.tell(result)
    repro, builds = load_repro(Path(spec["repro"])), spec.get("builds", 1)
    if builds > 1:
        result["builds"] = []
    for number in range(builds):
        if builds > 1:
            taker.tell(result)
        backend.reset()
        build = nothing_yet()
        if number == 0:
            result.update(build, counts=backend.counts)
        taker.hand(number, _run_build(repro, spec, backend, build))
        if builds > 1:
            result["builds"].append(build)
        if number == 0 and builds > 1:  # the last is told after them all
            result["observed"].update(observe.loaded())


def _run_build(
    repro: ModuleType, spec: Dict[str, Any], backend: Backend, build: Dict[str, Any]
) -> Dict[str, np.ndarray]:
    """Run the repro once and return its outputs; what it measured by itself is noted also where it raises."""
    files, started = CaseFiles(Path(spec["files"])), time.perf_counter()
    try:
        outputs = repro.run(dict(spec["params"]), files, backend)
    finally:
        build["engine"].update(backend.facts, run_seconds=time.perf_counter() - started)
        build["measurements"].update(scalars={**backend.scalars, **backend.counts}, remark=backend.word)
    return {name: np.asarray(output) for name, output in outputs.items()}


def load_repro(path: Path) -> ModuleType:
    """Import a repro's file by its path, anew each time."""
    spec = importlib.util.spec_from_file_location("trtmatrix_repro", str(path))
    if spec is None or spec.loader is None:
        raise ends.CellEnd("no Python file at %s" % path)
    module = importlib.util.module_from_spec(spec)
    seen = path.stat()
    exec(_compiled(path, seen.st_mtime_ns, seen.st_size), vars(module))  # noqa: S102 - what an import does
    return module


@lru_cache(maxsize=64)
def _compiled(path: Path, _modified: int, _size: int) -> Any:
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def _blame(error: BaseException, spec: Dict[str, Any]) -> str:
    """Say whose trouble an exception is: the image's that lacks what the case needs, the repro's, ours."""
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] in spec.get("needs", ()):
        return ends.COMPONENT_MISSING
    files = [Path(frame.filename).resolve() for frame in traceback.extract_tb(error.__traceback__)]
    return ends.CRASHED if Path(spec["repro"]).resolve() in files else ends.PROBE_FAILED


def _last_line() -> str:
    """Return the exception being handled in one line."""
    return "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip()[-500:]
