"""The deployer's own acceptance of a model's outputs: a script, run in a process of its own."""

from __future__ import annotations

import json
import linecache
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from trtmatrix.common.border import BorderError, read_json
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.text import one_line
from trtmatrix.model.outcomes import CheckOutcome

Outputs = Sequence[Mapping[str, Path]]
"""Samples: each output by the model's own name, as the ``.npy`` file that holds it."""

SECONDS = 600.0
"""How long a script may take."""

SHOWN = 20_000
"""Characters of what a script prints that are shown."""


def run_check(
    script: Path, before: Outputs, after: Outputs, reference: Outputs | None, *, seconds: float = SECONDS
) -> CheckOutcome:
    """Run ``check(before, after, reference)`` of a script; see docs/acceptance.md for what it is given.

    What the script prints goes to the standard error, never to where a report goes. Whatever goes wrong with
    it is the outcome's ``error``, and it is not left running.
    """
    with tempfile.TemporaryDirectory(prefix="trtmatrix-check-") as name:
        job, answer = Path(name, "job.json"), Path(name, "answer.json")
        told = {"samples": (before, after, reference), "script": script, "answer": answer}
        job.write_text(json.dumps(told, default=lambda path: str(path.resolve())), encoding="utf-8")
        command = [sys.executable, "-u", "-m", __name__, str(job)]
        code, printed = run_to_end(command, os.environ, seconds)
        sys.stderr.write(printed[:SHOWN])
        try:  # an answer counts though the process did not end
            said = read_json(answer)
        except (OSError, BorderError):
            why = f"it ended its process with code {code} and said nothing"
            if code == 124:
                why = f"check() did not end within {seconds:g} s and was stopped"
            said = {"error": f"{script.name}: {why}"}
    return CheckOutcome(script=str(script), **{"passed": None, **said})


def main() -> None:
    """Run the job that the last argument names; its answer goes into the file that the job names."""
    job = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    script = Path(job["script"])
    sys.argv[:] = [str(script)]
    sys.path.insert(0, str(script.parent))
    sys.dont_write_bytecode = True
    said = json.dumps(_ask(script, job["samples"]), allow_nan=False)
    sys.stdout.flush()
    Path(job["answer"]).write_text(said, encoding="utf-8")


def _ask(script: Path, sides: Sequence[list[dict[str, str]] | None]) -> dict[str, Any]:
    """Import the script, not as ``__main__``; return what its ``check`` says of the samples, or ``error``.

    Arrays are read where they are used, and may be written to.
    """
    import numpy as np

    def read(file: str) -> Any:  # noqa: ANN401 - an array
        try:
            return np.load(file, mmap_mode="c", allow_pickle=False).view(np.ndarray)
        except ValueError:  # nothing of an array without elements can be mapped
            return np.load(file, allow_pickle=False)

    doing, names = "loading it", sorted({name for sample in sides[0] or () for name in sample})
    try:
        if (spec := spec_from_file_location("trtmatrix_check", script)) is None or spec.loader is None:
            return {"error": f"{script.name}: its name must end in .py"}
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        if not callable(getattr(module, "check", None)):
            return {"error": f"{script.name}: there is no function check(before, after, reference)"}
        doing = "check()"
        return read_answer(module.check(*(
            side and [{name: read(file) for name, file in sample.items()} for sample in side]
            for side in sides
        )))  # fmt: skip
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the script may raise whatever it likes
        hint = f"; the outputs are called {', '.join(names)}" if isinstance(error, KeyError) else ""
        frames = reversed(traceback.extract_tb(error.__traceback__))
        line = next((f.lineno for f in frames if Path(f.filename).resolve() == script.resolve()), 0)
        where = f"{script.name}:{line}" if line else script.name
        source = f" at: {linecache.getline(str(script), line).strip()[:120]}" if line else ""
        told = one_line(f"{type(error).__name__}: {error}").removesuffix(":")
        return {"error": f"{where}: {doing} raised {told}{source}{hint}"}


def read_answer(said: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the script returned
    """Read what ``check`` returned: a bool, or (passed, figure), or (passed, figure, label); else ``error``.

    NumPy's bools and numbers, and arrays without dimensions, will do.
    """
    given = said if isinstance(said, (tuple, list)) else [said]
    parts = [p.item() if hasattr(p, "item") and getattr(p, "shape", None) == () else p for p in given]
    match [*parts, ""] if len(parts) == 2 else parts:
        case [bool() as passed]:
            return {"passed": passed}
        case [bool() as passed, int() | float() as figure, str() as label] if not isinstance(
            figure, bool
        ) and math.isfinite(figure):
            return {"passed": passed, "figure": float(figure), "label": one_line(label, 200)}
    wanted = 'True or False, (passed, figure) or (passed, figure, "label"), with a finite figure'
    got = f"{one_line(repr(said), 120)} ({type(said).__name__})"
    return {"error": f"check() returned {got}: it must return {wanted}"}


if __name__ == "__main__":
    main()
