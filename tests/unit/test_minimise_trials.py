"""What is kept and what is not: the same failure, not merely one; budgets, interrupts, the last run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnxmodels import mlp, normal, saved

from trtmatrix.core.errors import ExitCode, MachineryError
from trtmatrix.core.manner import Kind, Manner
from trtmatrix.core.minimise import Answer
from trtmatrix.minimise_trials import Ran, Trials
from trtmatrix.minimising import (
    INTERRUPTED,
    STEADY_BUILDS,
    UNSTEADY_BUILDS,
    Shrinking,
    choose_good,
    find_baseline,
)
from trtmatrix.onnxmodel.subject import Subject, read_subject

WRONG = Manner(kind=Kind.WRONG, outputs=("y",), sizes=(900.0,), errors=(0.5,), words="y: wrong")
RIGHT = Ran(manner=None, right=True, said="PASS 1")


def fails(kind: Kind = Kind.WRONG, error: float = 0.5, output: str = "y", *, unsteady: bool = False) -> Ran:
    manner = Manner(
        kind=kind, outputs=(output,), sizes=(900.0,), errors=(error,), words=f"{output}: {kind.value}",
        unsteady=unsteady,
    )  # fmt: skip
    return Ran(manner=manner, right=False, said=manner.words, cell="model-1/tf32-2@2#cpu")


class Stub(Trials):
    """Runs nothing: at version 2 a model fails as long as it computes ``needs``."""

    def __init__(self, start: Any, scratch: Path, needs: str = "h1", ends: int = 10**6) -> None:
        super().__init__(start, scratch)
        self.needs, self.ends, self.runs = needs, ends, list[str]()
        self.ahead, self.batches = False, list[int]()

    def run(self, subject: Subject, version: str, *, keep: bool = False, builds: int | None = None) -> Ran:
        """Say what a model does."""
        del keep, builds
        self.runs.append(version)
        if len(self.runs) >= self.ends:
            raise KeyboardInterrupt
        return self.say(subject, version)

    def run_ahead(self, subjects: Sequence[Subject]) -> None:
        """Know what models do before they are asked about."""
        if self.ahead:
            self.batches.append(len(subjects))
            self._ahead |= {one.digest: self.say(one, "2") for one in subjects}

    def say(self, subject: Subject, version: str) -> Ran:
        """Return what a model does at a version."""
        made = {name for node in subject.model.graph.node for name in node.output}
        return fails() if version == "2" and self.needs in made else RIGHT


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """A chain of eight nodes that fails at version 2 and is right at 1."""
    subject = read_subject(saved(mlp(layers=4), tmp_path / "chain.onnx"), [{"x": normal(2, 64)}], {})
    cell = SimpleNamespace(id="chain/tf32@2#cpu", version=SimpleNamespace(name="2"))
    return SimpleNamespace(
        subject=subject, good="1", manner=WRONG, notes=(), every=True,
        found=SimpleNamespace(entry=SimpleNamespace(cell=cell)),
        asked={"build": {}, "bug_is": [], "precision": "tf32", "atol": None, "rtol": None},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "good", "answer"),
    [
        (fails(), RIGHT, Answer.SAME),
        (fails(output="another"), RIGHT, Answer.SAME),  # a smaller graph has other names
        (fails(Kind.NOT_FINITE), RIGHT, Answer.NOT),
        (fails(error=1e-6), RIGHT, Answer.NOT),
        (fails(), fails(), Answer.NOT),
        (fails(), Ran(manner=None, right=False, said="INVALID"), Answer.CANNOT_SAY),
        (fails(), Ran(manner=None, right=False, said="NO VERDICT"), Answer.CANNOT_SAY),
        (RIGHT, RIGHT, Answer.NOT),
        (Ran(manner=None, right=False, said="NO VERDICT (crashed)"), RIGHT, Answer.CANNOT_SAY),
    ],
)
def test_only_the_same_failure_is_kept(
    bad: Ran, good: Ran, answer: Answer, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Stub(start, tmp_path)
    monkeypatch.setattr(trials, "run", lambda _, version: bad if version == "2" else good)
    assert trials.check(WRONG, start.subject)[0] is answer


def test_what_onnxruntime_cannot_compute_is_not_run(start: Any, tmp_path: Path) -> None:
    trials = Stub(start, tmp_path)
    broken = read_subject(saved(mlp(), tmp_path / "b.onnx"), [{"x": normal(2, 63)}], {})
    answer, said, ran = trials.check(WRONG, broken)
    assert (answer, ran, trials.runs) == (Answer.CANNOT_SAY, False, [])
    assert said.startswith("ONNX Runtime cannot compute it")


@pytest.mark.parametrize(
    ("needs", "good", "told"),
    [("none", "", "run as a plain model does not: PASS 1"), ("h1", "2", "--good 2: it is not right there")],
)
def test_a_cell_that_is_more_than_its_graph_is_told(
    needs: str, good: str, told: str, start: Any, tmp_path: Path
) -> None:
    start.good = good
    with pytest.raises(MachineryError, match=told):
        find_baseline(start, Stub(start, tmp_path, needs))


def test_a_defect_that_a_plain_model_has_no_name_for_is_its_wrong_numbers(start: Any, tmp_path: Path) -> None:
    start.manner = Manner(kind=Kind.DEFECT, what="lost-scale")
    assert find_baseline(start, Stub(start, tmp_path))[0].kind is Kind.WRONG
    zeros = Manner(kind=Kind.ZEROS, outputs=("y",), errors=(0.5,))
    for other in (Manner(kind=Kind.LIMIT, what="rows_differ"), zeros):
        start.manner = other
        with pytest.raises(MachineryError, match="fails otherwise"):
            find_baseline(start, Stub(start, tmp_path))


@pytest.mark.parametrize(
    ("cell", "plain", "told"),
    [
        (fails(Kind.DEFECT).manner, fails(), "may be wrong for another reason"),
        (fails(error=1e23, unsteady=True).manner, fails(error=1.04), "any garbage in its outputs"),
        (fails(error=1e23).manner, fails(error=1e9, unsteady=True), "instead of 1.0e23"),
        (WRONG, fails(), ""),
    ],
)
def test_what_a_plain_model_may_drift_to_is_told_loudly(
    cell: Manner, plain: Ran, told: str, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.manner = cell
    trials = Stub(start, tmp_path)
    monkeypatch.setattr(trials, "run", lambda _, version, **__: plain if version == "2" else RIGHT)
    if told.startswith("instead of"):
        with pytest.raises(MachineryError, match=told):
            find_baseline(start, trials)
        return
    wanted, notes = find_baseline(start, trials)
    assert [told in note for note in notes] == [True] * bool(told)
    assert wanted.unsteady == cell.unsteady
    assert trials.builds == (UNSTEADY_BUILDS if wanted.unsteady else 1)


def test_the_start_is_run_with_several_engines_and_some_that_fail_need_as_many(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, asked = Stub(start, tmp_path), list[int]()
    some = replace(fails(), some=True)

    def run(_: Subject, version: str, *, builds: int | None = None) -> Ran:
        asked.append(builds or 0)
        return some if version == "2" else RIGHT

    monkeypatch.setattr(trials, "run", run)
    find_baseline(start, trials)
    assert asked == [STEADY_BUILDS, 0]
    assert trials.builds == 0


@pytest.mark.parametrize(
    ("nearby", "chosen", "told"),
    [
        (("1",), "1", "must be right at 1"),
        (("2", "1"), "1", "must be right at 1"),
        (("2", "2", "2", "1"), "", "no other version is asked"),
        ((), "", "no other version is asked"),
    ],
)
def test_the_nearest_version_that_is_right_is_the_good_one(
    nearby: tuple[str, ...], chosen: str, told: str, start: Any, tmp_path: Path
) -> None:
    start.good, start.nearby = "", nearby
    trials = Stub(start, tmp_path)
    (note,) = choose_good(start, trials)
    assert trials.good == chosen
    assert told in note


def shrink(start: Any, trials: Stub, target: Path, *, steps: int = 500, seconds: float = 600.0) -> Any:
    told: list[str] = []
    shrinking = Shrinking(start, WRONG, trials, target, steps, time.monotonic() + seconds, told.append)
    return *shrinking.run(polygraphy=False), told


def test_what_is_left_is_what_fails_and_lies_in_the_folder(start: Any, tmp_path: Path) -> None:
    end, code, told = shrink(start, Stub(start, tmp_path), tmp_path / "out")
    assert code is ExitCode.AS_EXPECTED
    assert end.after.startswith("1 node, 1 input, 1 sample, 1 numbers fed")
    left = read_subject(tmp_path / "out" / "model.onnx", [{}], {})
    assert [node.output[0] for node in left.model.graph.node] == ["h1"]
    report = json.loads((tmp_path / "out" / "minimised.json").read_text())
    assert (report["smallest"], report["smaller"]) == ("model-1/tf32-2@2#cpu", True)
    assert any("kept (" in line for line in told)


def test_what_is_run_ahead_changes_nothing_but_the_launches(start: Any, tmp_path: Path) -> None:
    start.good = ""
    alone, together = Stub(start, tmp_path), Stub(start, tmp_path)
    together.ahead = True
    ends = [shrink(start, trials, tmp_path / "out")[0] for trials in (alone, together)]
    assert ends[0] == ends[1]
    assert len(together.runs) == 1, "only the last, as a cell of its own"
    assert len(together.batches) < len(alone.runs)
    assert max(together.batches) > 1
    assert sum(together.batches) >= len(alone.runs) - 1


@pytest.mark.parametrize("ends", [3, 6, 9])
def test_an_interrupt_at_any_time_keeps_the_best_so_far(ends: int, start: Any, tmp_path: Path) -> None:
    end, code, _ = shrink(start, Stub(start, tmp_path, ends=ends), tmp_path / "out")
    assert (code, end.ended) == (ExitCode.INTERRUPTED, INTERRUPTED)
    left = read_subject(tmp_path / "out" / "model.onnx", [{}], {})
    assert "h1" in {node.output[0] for node in left.model.graph.node}
    assert (
        len(left.model.graph.node)
        == json.loads((tmp_path / "out" / "minimised.json").read_text())["after"]["nodes"]
    )


def test_no_more_is_run_than_allowed(start: Any, tmp_path: Path) -> None:
    start.good = ""
    trials = Stub(start, tmp_path)
    end, code, _ = shrink(start, trials, tmp_path / "out", steps=2)
    assert code is ExitCode.AS_EXPECTED
    assert len(trials.runs) == 3  # and the last, as a cell of its own
    assert end.ended == "all of its 2 moves are judged: more by --steps"


def test_nothing_is_tried_once_time_is_over_and_nothing_is_written(start: Any, tmp_path: Path) -> None:
    end, code, _ = shrink(start, Stub(start, tmp_path), tmp_path / "out", seconds=0.0)
    assert (code, end.trials) == (ExitCode.SURPRISE, ())
    assert end.ended == "its time is over: more by --seconds"
    assert not (tmp_path / "out").exists()


def test_where_nothing_smaller_fails_there_is_no_folder(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Stub(start, tmp_path)
    monkeypatch.setattr(trials, "run", lambda *_: RIGHT)
    end, code, _ = shrink(start, trials, tmp_path / "out")
    assert (code, end.is_smaller) == (ExitCode.SURPRISE, False)
    assert not (tmp_path / "out").exists()
