"""The deployer's own acceptance of a model's outputs: a script, run in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.common.border import BorderError, read_json
from trtmatrix.model.outcomes import CheckOutcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Sequence[Mapping[str, NDArray[Any] | Path]]
    """Samples: each output by the model's own name, as an array or as the ``.npy`` file that holds it."""

SECONDS = 600.0
"""How long a script may take."""

CODE = "import sys; sys.path[:] = sys.argv[1:-1]; from trtmatrix.model.check_worker import main; main()"
"""What the process runs: it finds modules where this one does."""


def run_check(
    script: Path,
    outputs_before: Outputs,
    outputs_after: Outputs,
    reference: Outputs | None,
    *,
    seconds: float = SECONDS,
) -> CheckOutcome:
    """Run ``check(before, after, reference)`` of a script; see docs/acceptance.md for what it is given.

    What the script prints goes to the standard error, never to where a report goes. Whatever goes wrong with
    it is the outcome's ``error``, and nothing is left running.
    """
    if not script.is_file():
        what = "is no file" if script.exists() else "there is no such file"
        error = f"{script}: {what}: name your script by --check"
        return CheckOutcome(script=str(script), passed=None, error=error)
    with tempfile.TemporaryDirectory(prefix="trtmatrix-check-") as name:
        folder = Path(name)
        sides = {"before": outputs_before, "after": outputs_after, "reference": reference}
        job = {side: _files(folder, side, given) for side, given in sides.items()}
        answer = folder / "answer.json"
        text = json.dumps({**job, "script": str(script.resolve()), "answer": str(answer)})
        (folder / "job.json").write_text(text, encoding="utf-8")
        error = _run(folder / "job.json", script, seconds)
        try:  # an answer counts though the process did not end
            said = read_json(answer)
        except (OSError, BorderError):
            said = {"error": error}
    return CheckOutcome(script=str(script), **{"passed": None, **said})


def _files(folder: Path, side: str, samples: Outputs | None) -> list[dict[str, str]] | None:
    """Return each sample's files by output; what is no file yet is written."""
    import numpy as np

    if samples is None:
        return None
    written: list[dict[str, str]] = []
    for index, sample in enumerate(samples):
        files: dict[str, str] = {}
        for number, (output, given) in enumerate(sample.items()):
            file = given if isinstance(given, Path) else folder / f"{side}-{index}-{number}.npy"
            if not isinstance(given, Path):
                np.save(file, np.asarray(given), allow_pickle=False)
            files[output] = str(file.resolve())
        written.append(files)
    return written


def _run(job: Path, script: Path, seconds: float) -> str:
    """Run the process to its end or for so many seconds; returns what was wrong with it."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", CODE, *sys.path, str(job)], stdin=subprocess.DEVNULL,
        stdout=2, start_new_session=True,
    )  # fmt: skip
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"{script.name}: check() did not end within {seconds:g} s and was stopped"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it started and left behind
        process.wait()
    if process.returncode < 0:
        by = signal.strsignal(-process.returncode) or f"signal {-process.returncode}"
        return f"{script.name}: its process was ended ({by}): perhaps a crash or a lack of memory"
    return f"{script.name}: it ended its process with code {process.returncode} and said nothing"
