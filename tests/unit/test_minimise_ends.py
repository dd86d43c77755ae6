"""How a search ends: the last run, interrupts where something is kept, trouble with the machinery."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_minimise_trials import RIGHT, WRONG, Stub, fails, shrink, start

from trtmatrix import minimising
from trtmatrix.core.errors import ExitCode, MachineryError
from trtmatrix.core.manner import Kind
from trtmatrix.core.minimise import Answer, Move
from trtmatrix.minimise_trials import Ran
from trtmatrix.minimising import INTERRUPTED, Shrinking, choose_good, find_baseline
from trtmatrix.onnxmodel.shrink import EARLIER, Shrinker
from trtmatrix.onnxmodel.subject import Subject, read_subject

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


def interrupts(wrapped: Any, *, at: int) -> Any:
    """Return a function that is interrupted when it is called for the ``at``-th time."""
    calls: list[None] = []

    def call(*args: Any) -> Any:
        calls.append(None)
        if len(calls) == at:
            raise KeyboardInterrupt
        return wrapped(*args)

    return call


@pytest.mark.parametrize("name", ["learn", "write_minimised"])
@pytest.mark.parametrize("last", [False, True])
def test_an_interrupt_while_something_is_kept_or_written_loses_nothing(
    name: str, last: bool, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time, when the first smaller model was just kept; the last time, after the search."""
    seen, wrapped = list[Any](), getattr(minimising, name)

    def watched(*args: Any) -> Any:
        seen.append(args)
        return wrapped(*args)

    monkeypatch.setattr(minimising, name, watched)
    start.good = ""
    shrink(start, Stub(start, tmp_path), tmp_path / "first")
    same = [number for number, args in enumerate(seen, 1) if name != "learn" or args[1].answer is Answer.SAME]
    at = same[0] if not last else same[-2] if name == "write_minimised" else same[-1]
    monkeypatch.setattr(minimising, name, interrupts(wrapped, at=at))
    end, code, _ = shrink(start, Stub(start, tmp_path), tmp_path / "out")
    assert (code, end.ended, end.is_smaller) == (ExitCode.INTERRUPTED, INTERRUPTED, True)
    report = json.loads((tmp_path / "out" / "minimised.json").read_text())
    left = read_subject(tmp_path / "out" / "model.onnx", [{}], {})
    assert report["smaller"]
    assert len(left.model.graph.node) == report["after"]["nodes"]


class Troubled(Stub):
    """After some runs the machinery fails, for ever or for a while."""

    well, ill = 6, 10**6

    def run(self, subject: Subject, version: str, *, keep: bool = False, builds: int | None = None) -> Ran:
        """Say what a model does, or that nothing can be run."""
        ran = super().run(subject, version, keep=keep, builds=builds)
        troubled = self.well < len(self.runs) <= self.well + self.ill
        return Ran(manner=None, right=False, said="no space left", trouble=True) if troubled else ran


def test_trouble_that_stays_ends_the_search_and_keeps_the_best(start: Any, tmp_path: Path) -> None:
    trials = Troubled(start, tmp_path)
    with pytest.raises(MachineryError, match=r"(?s)no space left.*stays in .*out.*doctor"):
        shrink(start, trials, tmp_path / "out")
    assert len(trials.runs) == trials.well + minimising.MOST_TROUBLES
    report = json.loads((tmp_path / "out" / "minimised.json").read_text())
    assert report["smaller"]
    assert "came to nothing by the machinery" in report["ended"]


def test_trouble_that_passes_is_no_answer(start: Any, tmp_path: Path) -> None:
    trials = Troubled(start, tmp_path)
    trials.ill = minimising.MOST_TROUBLES - 1
    end, code, _ = shrink(start, trials, tmp_path / "out")
    assert code is ExitCode.AS_EXPECTED
    assert end.after.startswith("1 node, 1 input, 1 sample, 1 numbers fed")


def test_a_smaller_result_of_an_earlier_run_stays(start: Any, tmp_path: Path) -> None:
    target = tmp_path / "out"
    shrink(start, Stub(start, tmp_path), target)
    before = {file.name: file.read_bytes() for file in target.iterdir()}
    end, code, _ = shrink(start, Stub(start, tmp_path, ends=6), target)
    assert (code, end.is_smaller, end.folder) == (ExitCode.INTERRUPTED, True, "")
    assert "keeps a smaller model of an earlier run" in end.notes[-1]
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before
    end, code, _ = shrink(start, Stub(start, tmp_path), target)
    assert (code, end.folder) == (ExitCode.AS_EXPECTED, str(target))


def test_what_polygraphy_finds_is_kept_where_it_is_smaller(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, shrinker = start.subject, Shrinker(start.subject, tmp_path)
    small, large = (shrinker.make(Move(axis=EARLIER, level=level)) for level in ("h1", "h2"))
    answers = list[bool]()

    def reduce(base: Subject, mode: str, check: Any, *_: Any) -> str:
        assert (base, mode) == (whole, "bisect")
        answers.extend(check(one) for one in (small, large, small))
        return ""

    monkeypatch.setattr("trtmatrix.effects.polygraphy_reduce.reduce_nodes", reduce)
    monkeypatch.setattr("trtmatrix.effects.polygraphy_reduce.why_not", lambda _: "")
    trials = Stub(start, tmp_path)
    shrinking = Shrinking(
        start, WRONG, trials, tmp_path / "out", 9, time.monotonic() + 60, list[str]().append
    )
    assert shrinking._by_polygraphy("bisect")
    assert answers == [True, False, False]
    assert shrinking.best is small


def test_once_time_is_over_no_version_is_asked_and_nothing_run_once_more(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.good, start.nearby = "", ("1",)
    trials = Stub(start, tmp_path)
    (note,) = choose_good(start, trials, deadline=0.0)
    assert (trials.runs, trials.good) == ([], "")
    assert "no other version is asked" in note
    now = SimpleNamespace(monotonic=lambda: float(len(trials.runs)))
    monkeypatch.setattr(minimising, "time", now)
    end, code = Shrinking(start, WRONG, trials, tmp_path / "out", 99, 6.0, list[str]().append).run(
        polygraphy=False
    )
    assert len(trials.runs) == 6
    assert (code, end.smallest) == (ExitCode.AS_EXPECTED, "")
    assert end.last_said.startswith("its time was over")


def test_nothing_is_run_where_time_is_over_before(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.found.context = SimpleNamespace(project=SimpleNamespace(cache=tmp_path))
    monkeypatch.setattr(minimising, "find_start", lambda _: start)
    args = argparse.Namespace(cell="chain/tf32@2#cpu", to=tmp_path / "out", seconds=0.0, steps=9)
    with pytest.raises(MachineryError, match="time was over before anything was run"):
        minimising.minimise_command(args)


@pytest.mark.parametrize(
    ("errors", "some", "unsteady"),
    [((1.04, 1.04, 1.03), False, False), ((1.04, 1.6), False, True), ((1.04,), False, True),
     ((1.04, 1.04), True, True)],
)  # fmt: skip
def test_the_engines_of_now_decide_where_they_agree(
    errors: tuple[float, ...], some: bool, unsteady: bool, start: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The records may be of memory that nothing wrote."""
    start.manner = fails(error=1e23, unsteady=True).manner
    trials, bad = Stub(start, tmp_path), fails()
    assert bad.manner is not None
    manner = replace(bad.manner, errors=errors)
    bad = replace(bad, manner=manner, some=some)
    monkeypatch.setattr(trials, "run", lambda _, version, **__: bad if version == "2" else RIGHT)
    wanted, notes = find_baseline(start, trials)
    assert (wanted.unsteady, bool(notes)) == (unsteady, unsteady)
    bad = replace(bad, manner=replace(manner, unsteady=True))  # NaN in one of them
    assert find_baseline(start, trials)[0].unsteady


def test_what_the_machinery_kept_from_running_is_not_remembered(start: Any, tmp_path: Path) -> None:
    trials = Troubled(start, tmp_path)
    trials.well, trials.ill = 0, 1
    move = Move(axis=EARLIER, level="h1")
    small = Shrinker(start.subject, tmp_path).make(move)
    told = list[str]()
    shrinking = Shrinking(start, WRONG, trials, tmp_path / "out", 9, time.monotonic() + 60, told.append)
    assert shrinking.try_subject(move, small) is Answer.CANNOT_SAY
    assert shrinking.try_subject(move, small) is Answer.SAME
