"""How a search ends: the last run, interrupts where something is kept, trouble with the machinery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_minimise_trials import RIGHT, Stub, fails, shrink, start

from trtmatrix.core.errors import ExitCode
from trtmatrix.core.manner import Kind
from trtmatrix.minimise_trials import Ran
from trtmatrix.onnxmodel.subject import Subject

__all__ = ["start"]


class Last(Stub):
    """Says something else when it is run once more, as a cell of its own."""

    last = RIGHT

    def run(self, subject: Subject, version: str, *, keep: bool = False, builds: int | None = None) -> Ran:
        """Say what a model does."""
        return self.last if keep else super().run(subject, version, builds=builds)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (RIGHT, "run once more, it does not fail: PASS 1"),
        (Ran(manner=None, right=False, said="INVALID"), "run once more, it cannot say: INVALID"),
        (fails(error=1e-6), "run once more, it fails otherwise: relative error 1.0e-6 instead of 0.5"),
        (fails(Kind.NOT_FINITE), "run once more, it fails otherwise: y: not finite; before: y: wrong"),
        (replace(fails(), some=True), ""),
        (fails(), ""),
    ],
)
def test_the_last_run_must_fail_as_the_whole_does(last: Ran, told: str, start: Any, tmp_path: Path) -> None:
    trials = Last(start, tmp_path)
    trials.last = last
    end, code, _ = shrink(start, trials, tmp_path / "out")
    assert code is (ExitCode.SURPRISE if told else ExitCode.AS_EXPECTED)
    assert bool(end.smallest) is not bool(told)
    assert told in end.last_said
    assert ("in some of its engines only" in end.last_said) is last.some
