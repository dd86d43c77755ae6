"""Which versions are asked whether they are right, where none was named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_cell, make_entry, make_reported, make_unknown

from trtmatrix.bugs.trials import nearby_versions
from trtmatrix.core.entry import Entry
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Outcome, Verdict


def judged(cell: Cell, verdict: Verdict) -> Entry:
    return replace(make_entry(cell), outcome=Outcome(verdict=verdict))


def entry_of(letter: str, cell: Cell) -> Entry:
    """P, F: recorded; r, f: reported right or wrong; i: says nothing; anything else: not known."""
    if letter in "rf":
        return make_reported(cell, Verdict.PASS if letter == "r" else Verdict.FAIL)
    verdicts = {"P": Verdict.PASS, "F": Verdict.FAIL, "X": Verdict.FAIL, "i": Verdict.INVALID}
    return judged(cell, verdicts[letter]) if letter in verdicts else make_unknown(cell)


@pytest.mark.parametrize(
    ("row", "lacking", "nearby"),
    [
        ("PPXPP", "", "1304"),
        ("P?X?P", "", "0413"),
        ("PFXfi", "", "0"),
        ("?rX?P", "", "4130"),
        ("PPXPP", "13", "04"),
        ("X", "", ""),
    ],
)
def test_the_nearest_that_can_be_run_here_and_may_be_right_come_first(
    row: str, lacking: str, nearby: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [make_cell(version=f"10.{n}.0") for n in range(len(row))]
    entries = tuple(entry_of(letter, cell) for letter, cell in zip(row, cells, strict=True))
    launches = [SimpleNamespace(version=cell.version, cells=(cell,)) for cell in cells]

    def is_here(launch: Any) -> bool:
        return launch.version.name.split(".")[1] not in lacking

    monkeypatch.setattr("trtmatrix.perform.here", lambda _: is_here)
    found: Any = SimpleNamespace(
        row=entries, entry=entries[row.index("X")], context=SimpleNamespace(project=None),
        scene=SimpleNamespace(plan=SimpleNamespace(launches=launches)),
    )  # fmt: skip
    assert nearby_versions(found) == tuple(f"10.{n}.0" for n in nearby)
