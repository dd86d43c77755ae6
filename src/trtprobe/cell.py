"""One cell: load the repro, run it once for each build, hand over. Called in a process of its own."""

from __future__ import annotations

import importlib.util
import time
import traceback
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Optional

import numpy as np

from trtprobe import ends, observe
from trtprobe.answer import Answer, last_line, which_build
from trtprobe.backends import open_backend
from trtprobe.backends.base import Backend
from trtprobe.files import CaseFiles
from trtprobe.plans import Plans

TROUBLE = "trouble"
"""Where a result tells of an error that the GPU's context reports after the cell."""


def run_and_measure(spec: Dict[str, Any]) -> Dict[str, Any]:
    """Return the result of one cell, run and measured in this process."""
    answer = Answer(spec.get("builds", 1))
    run_cell(spec, answer, lambda: open_backend(spec["product"]))
    return answer.measured(spec)


def run_cell(spec: Dict[str, Any], taker: Any, opened: Callable[[], Backend]) -> Dict[str, Any]:
    """Return the result of one cell, and tell it; every exception becomes a way of ending.

    ``spec`` has ``repro`` (path of the file), ``params``, ``files`` (the case's folder) and, if there are
    any, ``needs`` (modules whose absence is no fault of the repro), ``plans`` (the folder of :class:`Plans`,
    for the ``cell`` of this name) and ``builds``: how often the repro is run, over one backend that keeps its
    Builder and forgets all else. ``opened`` returns the product as this process keeps it open. ``taker`` is
    an :class:`Answer`, or hands over to one: it is told the result, also before it is final, so that a crash
    does not lose what was observed.

    The result's ``measurements`` and ``engine`` are the first build's; where several were asked for,
    ``builds`` holds those of each that ended. ``counts`` tells which of the first's scalars are counts.
    Outputs are not measured here, but handed to ``taker``.
    """
    result: Dict[str, Any] = {"observed": observe.observed(), "environment": observe.environment()}
    result.update(ended=ends.PROBE_FAILED, detail="", counts={}, **nothing_yet())
    backend: Optional[Backend] = None
    try:
        backend = opened()
        _run_builds(spec, taker, result, backend)
        result["ended"] = ends.RAN
    except ends.CellEnd as end:
        result.update(ended=end.ended, detail=str(end))
    except MemoryError:
        result.update(ended=ends.OUT_OF_HOST_MEMORY, detail="MemoryError: " + last_line())
    except BaseException as error:
        result.update(ended=_blame(error, spec), detail="raised " + last_line())
        traceback.print_exc()
    result["observed"].update(observe.loaded())
    if "builds" in result and result["ended"] != ends.BUILT:
        result["detail"] = which_build(spec["builds"], len(result["builds"])) + result["detail"]
    trouble = "" if backend is None else backend.trouble()
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


def _run_builds(spec: Dict[str, Any], taker: Any, result: Dict[str, Any], backend: Backend) -> None:
    """Run the repro for each build; what each gave goes into the result at once."""
    plans, builds = spec.get("plans"), spec.get("builds", 1)
    backend.begin(Plans(Path(plans) if plans else None, spec.get("cell", "")))
    result["observed"].update(backend.observed())
    taker.tell(result)
    repro = load_repro(Path(spec["repro"]))
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
