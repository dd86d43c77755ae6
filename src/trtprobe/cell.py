"""One cell: load the repro, run it, measure. Called in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Dict

import numpy as np

from trtprobe import ends, observe
from trtprobe.backends import open_backend
from trtprobe.files import CaseFiles, write_json
from trtprobe.measure import measure_output


def run_cell(spec: Dict[str, Any], out: Path) -> Dict[str, Any]:
    """Return the result of one cell; every exception becomes a way of ending.

    ``spec`` has ``product``, ``repro`` (path of the file), ``params``, ``files`` (the case's folder),
    ``keep_outputs`` and, if there are any, ``needs`` (modules whose absence is no fault of the repro)
    and ``memo`` (:attr:`Backend.memo`). What was observed is also written to ``observed.json`` before the
    repro runs, so that a crash does not lose it.
    """
    result: Dict[str, Any] = {"observed": observe.observed(), "environment": observe.environment()}
    result.update(ended=ends.PROBE_FAILED, detail="", outputs={}, scalars={}, remark="", engine={}, kept={})
    try:
        backend = open_backend(spec["product"])
        backend.memo = Path(spec["memo"]) if spec.get("memo") else None
        result["observed"].update(backend.observed())
        write_json(out / "observed.json", {"observed": result["observed"]})
        files = CaseFiles(Path(spec["files"]))
        started = time.perf_counter()
        try:
            outputs = load_repro(Path(spec["repro"])).run(dict(spec["params"]), files, backend)
        finally:
            result["engine"] = dict(backend.facts, run_seconds=time.perf_counter() - started)
            result.update(scalars=dict(backend.scalars), remark=backend.word)
            result["observed"].update(observe.loaded())
        result["outputs"] = measure_all(outputs, files)
        result["kept"] = keep_outputs(outputs, out) if spec["keep_outputs"] else {}
        result["ended"] = ends.RAN
    except ends.CellEnd as end:
        result.update(ended=end.ended, detail=str(end))
    except MemoryError:
        result.update(ended=ends.OUT_OF_HOST_MEMORY, detail="MemoryError: " + last_line())
    except BaseException as error:
        result.update(ended=blame(error, spec), detail="raised " + last_line())
        traceback.print_exc()
    return result


def blame(error: BaseException, spec: Dict[str, Any]) -> str:
    """Say whose trouble an exception is: the image's that lacks what the case needs, the repro's, ours."""
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] in spec.get("needs", ()):
        return ends.COMPONENT_MISSING
    return ends.CRASHED if in_file(error, spec["repro"]) else ends.PROBE_FAILED


def load_repro(path: Path) -> ModuleType:
    """Import a repro's file by its path."""
    spec = importlib.util.spec_from_file_location("trtmatrix_repro", str(path))
    if spec is None or spec.loader is None:
        raise ends.CellEnd("no Python file at %s" % path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_all(outputs: Dict[str, np.ndarray], files: CaseFiles) -> Dict[str, Any]:
    """Measure each output against the reference of its name."""
    reference = files.reference
    unknown = sorted(set(outputs) - set(reference))
    if unknown:
        raise ends.CellEnd("run() returned %s, which has no reference" % ", ".join(unknown))
    return {name: measure_output(np.asarray(y), reference[name]) for name, y in outputs.items()}


def keep_outputs(outputs: Dict[str, np.ndarray], out: Path) -> Dict[str, Any]:
    """Write each output as ``<name>.npy`` for the host, which keeps or drops it."""
    kept = {}
    for name, output in outputs.items():
        array = np.ascontiguousarray(output)
        np.save(str(out / (name + ".npy")), array)
        kept[name] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    return kept


def last_line() -> str:
    """Return the exception being handled in one line."""
    return "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip()[-500:]


def in_file(error: BaseException, path: str) -> bool:
    """Whether an exception passed through the repro's own code."""
    wanted = Path(path).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).resolve() == wanted for frame in frames)
