"""Runs a deployer's own acceptance in a process of its own: a job as JSON in, what it says as JSON out."""

from __future__ import annotations

import importlib.util
import inspect
import json
import linecache
import math
import sys
import traceback
from pathlib import Path
from typing import Any

CALL = "check(before, after, reference)"


class Refused(Exception):
    """What the script is or gives cannot be used; the message says why."""


def main() -> None:
    """Run the job that the last argument names; its answer goes into the file that the job names."""
    job = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    script = Path(job["script"])
    sys.argv[:] = [str(script)]
    sys.path.insert(0, str(script.parent))
    sys.dont_write_bytecode = True
    try:
        answer = _check(script, [_samples(job[key]) for key in ("before", "after", "reference")])
    except Refused as refused:
        answer = {"error": str(refused)}
    sys.stdout.flush()
    target = Path(job["answer"])
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    partial.rename(target)


def _samples(given: list[dict[str, str]] | None) -> list[dict[str, Any]] | None:
    """Return samples as the script gets them; arrays are read where they are used, and may be written to."""
    if given is None:
        return None
    return [{name: _array(Path(file)) for name, file in sample.items()} for sample in given]


def _array(file: Path) -> Any:  # noqa: ANN401 - a NumPy array
    import numpy as np

    try:
        return np.load(file, mmap_mode="c", allow_pickle=False).view(np.ndarray)
    except ValueError:  # nothing of an array without elements can be mapped
        return np.load(file, allow_pickle=False)


def _check(script: Path, samples: list[Any]) -> dict[str, Any]:
    """Import the script, not as ``__main__``, and return what its ``check`` says of the samples."""
    spec = importlib.util.spec_from_file_location("trtmatrix_check", script)
    if spec is None or spec.loader is None:
        raise Refused(f"{script.name}: no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        at = f"{Path(error.filename or script).name}:{error.lineno or 1}"
        raise Refused(f"{at}: not valid Python: {error.msg}") from error
    except BaseException as error:
        raise Refused(_raised("loading it", error, script)) from error
    check = getattr(module, "check", None)
    if not callable(check):
        raise Refused(f"{script.name}: there is no function {CALL}")
    try:
        inspect.signature(check).bind(*samples)
    except TypeError:
        line = getattr(getattr(check, "__code__", None), "co_firstlineno", 1)
        shown = f"check{inspect.signature(check)}"
        raise Refused(f"{script.name}:{line}: {shown} cannot be called as {CALL}") from None
    try:
        said = check(*samples)
    except BaseException as error:
        names = ", ".join(sorted({name for sample in samples[0] for name in sample}))
        hint = f"; the outputs are called {names}" if isinstance(error, KeyError) else ""
        raise Refused(_raised("check()", error, script) + hint) from error
    return read_answer(said)


def _raised(doing: str, error: BaseException, script: Path) -> str:
    """Say what was raised, with the script's own line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == script.resolve()]
    text = " ".join(str(error).split())[:300]
    what = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, SystemExit):
        what = f"called sys.exit({error.code!r})"
    if isinstance(error, ImportError):
        what += f" (it runs in {sys.executable}: install what it needs there)"
    if not lines:
        return f"{script.name}: {doing} {what}"
    source = linecache.getline(str(script), lines[-1] or 1).strip()
    return f"{script.name}:{lines[-1]}: {doing} {what} at: {source[:120]}"


def read_answer(said: object) -> dict[str, Any]:
    """Read what ``check`` returned: a bool, or (passed, figure), or (passed, figure, label).

    NumPy's bools and numbers will do. :class:`Refused` where it is anything else.
    """
    match [_plain(part) for part in said] if isinstance(said, (tuple, list)) else _plain(said):
        case bool() as passed:
            return {"passed": passed, "figure": None, "label": ""}
        case [bool() as passed, int() | float() as figure] if not isinstance(figure, bool):
            return {"passed": passed, "figure": _finite(figure), "label": ""}
        case [bool() as passed, int() | float() as figure, str() as label] if not isinstance(figure, bool):
            return {"passed": passed, "figure": _finite(figure), "label": " ".join(label.split())[:200]}
    hint = (
        "; a comparison of arrays is an array: did you mean .all()?" if getattr(said, "shape", None) else ""
    )
    shown = " ".join(repr(said).split())
    shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
    raise Refused(
        f"check() returned {shown} ({type(said).__name__}): it must return True or False, (passed, figure) "
        f'or (passed, figure, "label"){hint}'
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever the script returned
    """Return NumPy's scalars, and arrays without dimensions, as Python's own."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _finite(figure: float) -> float:
    try:
        number = float(figure)
    except OverflowError:
        number = math.inf
    if math.isfinite(number):
        return number
    raise Refused(f"check() gave the figure {number}, which is no finite number: its arithmetic went wrong")
