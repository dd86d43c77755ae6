"""The deployer's own acceptance of a model's outputs: a script, run in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import linecache
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtmatrix.common.border import BorderError, read_json
from trtmatrix.common.processes import run_to_end
from trtmatrix.model.outcomes import CheckOutcome

Outputs = Sequence[Mapping[str, Path]]
"""Samples: each output by the model's own name, as the ``.npy`` file that holds it."""

SECONDS = 600.0
"""How long a script may take."""

SHOWN = 20_000
"""Characters of what a script prints that are shown."""

CODE = "import sys; sys.path[:] = sys.argv[1:-1]; from trtmatrix.model.acceptance import main; main()"
"""What the process runs: it finds modules where this one does."""


def run_check(
    script: Path, before: Outputs, after: Outputs, reference: Outputs | None, *, seconds: float = SECONDS
) -> CheckOutcome:
    """Run ``check(before, after, reference)`` of a script; see docs/acceptance.md for what it is given.

    What the script prints goes to the standard error, never to where a report goes. Whatever goes wrong with
    it is the outcome's ``error``, and it is not left running.
    """
    if not script.is_file():
        error = f"{script}: there is no such file: name your script by --check"
        return CheckOutcome(script=str(script), passed=None, error=error)
    with tempfile.TemporaryDirectory(prefix="trtmatrix-check-") as name:
        job, answer = Path(name, "job.json"), Path(name, "answer.json")
        files = [
            [{output: str(file.resolve()) for output, file in sample.items()} for sample in side]
            if side is not None else None
            for side in (before, after, reference)
        ]  # fmt: skip
        told = {"samples": files, "script": str(script.resolve()), "answer": str(answer)}
        job.write_text(json.dumps(told), encoding="utf-8")
        command = [sys.executable, "-u", "-c", CODE, *sys.path, str(job)]
        code, printed = run_to_end(command, os.environ, seconds)
        sys.stderr.write(printed[:SHOWN])
        try:  # an answer counts though the process did not end
            said = read_json(answer)
        except (OSError, BorderError):
            why = f"it ended its process with code {code} and said nothing"
            if code == 124:
                why = f"check() did not end within {seconds:g} s and was stopped"
            elif code < 0:
                why = f"its process was ended by signal {-code}: perhaps a crash or a lack of memory"
            said = {"error": f"{script.name}: {why}"}
    return CheckOutcome(script=str(script), **{"passed": None, **said})


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
        answer = _check(script, job["samples"])
    except Refused as refused:
        answer = {"error": str(refused)}
    sys.stdout.flush()
    target = Path(job["answer"])
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    partial.rename(target)


def _check(script: Path, sides: Sequence[list[dict[str, str]] | None]) -> dict[str, Any]:
    """Import the script, not as ``__main__``, and return what its ``check`` says of the samples.

    Arrays are read where they are used, and may be written to.
    """
    import numpy as np

    def read(file: str) -> Any:  # noqa: ANN401 - an array
        try:
            return np.load(file, mmap_mode="c", allow_pickle=False).view(np.ndarray)
        except ValueError:  # nothing of an array without elements can be mapped
            return np.load(file, allow_pickle=False)

    spec = importlib.util.spec_from_file_location("trtmatrix_check", script)
    if spec is None or spec.loader is None:
        raise Refused(f"{script.name}: no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise Refused(_raised("loading it", error, script)) from error
    check = getattr(module, "check", None)
    if not callable(check):
        raise Refused(f"{script.name}: there is no function check(before, after, reference)")
    try:
        said = check(*(
            side and [{name: read(file) for name, file in sample.items()} for sample in side]
            for side in sides
        ))  # fmt: skip
    except (Exception, SystemExit) as error:
        names = ", ".join(sorted({name for sample in sides[0] or () for name in sample}))
        hint = f"; the outputs are called {names}" if isinstance(error, KeyError) else ""
        raise Refused(_raised("check()", error, script) + hint) from error
    return read_answer(said)


def _raised(doing: str, error: BaseException, script: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"{script.name}:{error.lineno or 1}: not valid Python: {error.msg}"
    text = " ".join(str(error).split())[:300]
    what = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, ImportError):
        what += f" (it runs in {sys.executable}: install what it needs there)"
    frames = traceback.extract_tb(error.__traceback__)
    line = next((f.lineno for f in reversed(frames) if Path(f.filename).resolve() == script.resolve()), 0)
    if not line:
        return f"{script.name}: {doing} {what}"
    source = linecache.getline(str(script), line).strip()
    return f"{script.name}:{line}: {doing} {what} at: {source[:120]}"


def read_answer(said: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the script returned
    """Read what ``check`` returned: a bool, or (passed, figure), or (passed, figure, label).

    NumPy's bools and numbers, and arrays without dimensions, will do; else :class:`Refused`.
    """
    given = said if isinstance(said, (tuple, list)) else [said]
    parts = [p.item() if hasattr(p, "item") and getattr(p, "shape", None) == () else p for p in given]
    match parts:
        case [bool() as passed]:
            return {"passed": passed}
        case [bool() as passed, int() | float() as figure, *label] if not isinstance(figure, bool) and [
            *map(type, label)
        ] in ([], [str]):
            if not math.isfinite(figure):
                raise Refused(f"check() gave the figure {figure}, which is no finite number")
            words = " ".join("".join(label).split())
            return {"passed": passed, "figure": float(figure), "label": words[:200]}
    hint = "; a comparison of arrays is an array: did you mean .all()?" * bool(getattr(said, "shape", None))
    raise Refused(
        f"check() returned {' '.join(repr(said).split())[:120]} ({type(said).__name__}): it must return True "
        f'or False, (passed, figure) or (passed, figure, "label"){hint}'
    )
