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
from types import ModuleType
from typing import Any

CALL = "check(before, after, reference)"


def main() -> None:
    """Run the job that the last argument names; its answer goes into the file that the job names."""
    job = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    script = Path(job["script"])
    sys.argv[:] = [str(script)]
    sys.path.insert(0, str(script.parent))
    sys.dont_write_bytecode = True
    answer = _answer(script, job)
    sys.stdout.flush()
    target = Path(job["answer"])
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    partial.rename(target)


class Refused(Exception):
    """What the script is or gives cannot be used; the message says why."""


def _answer(script: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Return what the script says, or how it went wrong."""
    try:
        module = _load(script)
        check = _function(module, script)
        samples = [_samples(job[key]) for key in ("before", "after", "reference")]
        try:
            said = check(*samples)
        except BaseException as error:
            raise Refused(_raised("check()", error, script) + _key_hint(error, samples)) from error
        return read_answer(said)
    except Refused as refused:
        return {"error": str(refused)}


def _load(script: Path) -> ModuleType:
    """Import the script; not as ``__main__``, so that what it does when run by hand is left out."""
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
    return module


def _function(module: ModuleType, script: Path) -> Any:  # noqa: ANN401 - anything that can be called
    """Return the script's ``check``."""
    check = getattr(module, "check", None)
    if not callable(check):
        raise Refused(f"{script.name}: there is no function {CALL}")
    try:
        inspect.signature(check).bind(None, None, None)
    except TypeError:
        line = getattr(getattr(check, "__code__", None), "co_firstlineno", 1)
        shown = f"check{inspect.signature(check)}"
        raise Refused(f"{script.name}:{line}: {shown} cannot be called as {CALL}") from None
    except ValueError:  # what has no signature is simply called
        pass
    return check


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


def _raised(doing: str, error: BaseException, script: Path) -> str:
    """Say what was raised, with the script's own line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == script.resolve()]
    what = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {_words(error)}"
    if isinstance(error, ImportError):
        what += f" (it runs in {sys.executable}: install what it needs there)"
    if not lines:
        return f"{script.name}: {doing} {what}"
    source = linecache.getline(str(script), lines[-1] or 1).strip()
    return f"{script.name}:{lines[-1]}: {doing} {what} at: {source[:120]}"


def _key_hint(error: BaseException, samples: list[Any]) -> str:
    """Say how outputs are called, where one was asked for that is not there."""
    before, after, reference = ({name for sample in part or () for name in sample} for part in samples)
    if not isinstance(error, KeyError) or error.args[:1] == () or error.args[0] in before & after & reference:
        return ""
    if samples[2] is None and not before ^ after:
        reference = before
    if before == after == reference:
        return f"; the outputs are called {', '.join(sorted(before))}"
    named = {"before": before, "after": after, "reference": reference}
    return "".join(f"; {part} has {', '.join(sorted(names)) or 'none'}" for part, names in named.items())


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def read_answer(said: object) -> dict[str, Any]:
    """Read what ``check`` returned: a bool, or (passed, figure), or (passed, figure, label).

    NumPy's bools and numbers will do. :class:`Refused` where it is anything else.
    """
    parts = list(said) if isinstance(said, (tuple, list)) else [said]
    if not 1 <= len(parts) <= 3 or (isinstance(said, (tuple, list)) and len(parts) == 1):
        raise Refused(_nonsense(said))
    passed = _plain(parts[0])
    if not isinstance(passed, bool):
        raise Refused(_nonsense(said))
    answer: dict[str, Any] = {"passed": passed, "figure": None, "label": ""}
    if len(parts) > 1:
        answer["figure"] = _figure(_plain(parts[1]), said)
    if len(parts) > 2:
        if not isinstance(parts[2], str):
            raise Refused(_nonsense(said))
        answer["label"] = " ".join(parts[2].split())[:200]
    return answer


def _figure(figure: object, said: object) -> float:
    if isinstance(figure, bool) or not isinstance(figure, (int, float)):
        raise Refused(_nonsense(said))
    try:
        number = float(figure)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused(
            f"check() gave the figure {number}, which is no finite number: its arithmetic went wrong"
        )
    return number


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever the script returned
    """Return NumPy's scalars, and arrays without dimensions, as Python's own."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _nonsense(said: object) -> str:
    hint = ""
    if getattr(said, "shape", None) and getattr(getattr(said, "dtype", None), "kind", "") == "b":
        hint = "; a comparison of arrays is an array: did you mean .all()?"
    if said is None:
        hint = "; is a return missing?"
    shown = " ".join(repr(said).split())
    shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
    return (
        f"check() returned {shown} ({type(said).__name__}): it must return True or False, (passed, figure) "
        f'or (passed, figure, "label"){hint}'
    )
