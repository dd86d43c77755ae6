"""minimise beside its containers: what it keeps, what it refuses, what it says, what Polygraphy is asked."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from goldenfile import check_golden
from onnxmodels import mlp, normal, saved

from trtmatrix import cli
from trtmatrix.bugs.recipe import read_recipe
from trtmatrix.core.errors import UsageError
from trtmatrix.core.minimise import Answer, Move, Trial
from trtmatrix.core.model import Cause, Product
from trtmatrix.core.render_minimise import Minimised, commands, minimised_data, render_minimised, step_line
from trtmatrix.effects.minimised import check_target, write_minimised
from trtmatrix.effects.polygraphy_reduce import reduce_nodes, why_not
from trtmatrix.effects.repro_files import read_repro
from trtmatrix.onnxmodel.subject import Subject, Values, read_subject
from trtmatrix.onnxmodel.writing import Page, write_page

MOVE = Move(axis="size of x[0]", level="1")


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A chain of eight nodes."""
    model = mlp(layers=4)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = 2
    return read_subject(saved(model, tmp_path / "chain.onnx"), [{"x": normal(2, 64)}], {})


def operators(subject: Subject) -> list[str]:
    return [node.output[0] for node in subject.model.graph.node]


@pytest.mark.parametrize("mode", ["bisect", "linear"])
@pytest.mark.parametrize("needed", ["m0", "h1", "y"])
def test_polygraphy_asks_here_and_gets_what_the_whole_model_has_at_its_inputs(
    mode: str, needed: str, subject: Subject, tmp_path: Path
) -> None:
    kept: list[Subject] = []

    def check(candidate: Subject) -> bool:
        whole = Values(subject, tmp_path).of(candidate.inputs)[0]
        for name, array in candidate.samples[0].items():
            np.testing.assert_array_equal(array, whole[name])
        if needed in operators(candidate):
            kept.append(candidate)
        return needed in operators(candidate)

    assert reduce_nodes(subject, mode, check, lambda: True, tmp_path) == ""
    smallest = operators(min(kept, key=lambda one: one.size.nodes))
    assert needed in smallest
    assert len(smallest) <= 2  # its halving never tries the very first node alone


def test_polygraphy_is_ended_when_the_budget_is_spent(subject: Subject, tmp_path: Path) -> None:
    asked: list[Subject] = []

    def check(candidate: Subject) -> bool:
        asked.append(candidate)
        return True

    assert reduce_nodes(subject, "linear", check, lambda: not asked, tmp_path) == "the budget is spent"
    assert len(asked) == 1


def test_an_interrupt_while_polygraphy_runs_goes_through_and_leaves_nothing(
    subject: Subject, tmp_path: Path
) -> None:
    def check(_: Subject) -> bool:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        reduce_nodes(subject, "linear", check, lambda: True, tmp_path)
    assert time.monotonic() - started < 30
    assert [path.name for path in tmp_path.iterdir()] == ["chain.onnx"]


def test_polygraphy_that_ends_with_an_error_is_told(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtmatrix.effects.polygraphy_reduce.MAIN", "raise SystemExit('out of order')")
    told = reduce_nodes(subject, "bisect", lambda _: True, lambda: True, tmp_path)
    assert told == "exit code 1: out of order"


def test_polygraphy_takes_no_part_where_it_is_not_installed(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_not(subject) == ""
    monkeypatch.setitem(sys.modules, "onnx_graphsurgeon", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "surgeon" in name else name)
    assert why_not(subject) == "onnx-graphsurgeon not installed here: pip install onnx-graphsurgeon"


def test_polygraphy_takes_no_part_where_shapes_must_stay_dynamic(tmp_path: Path) -> None:
    dynamic = read_subject(saved(mlp(), tmp_path / "model.onnx"), [{"x": normal(2, 64)}], {})
    assert "dynamic shapes" in why_not(dynamic)


def report(cell: str = "a/b@1#cpu") -> dict[str, object]:
    return {"cell": cell, "schema": 1}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_our_files_of_a_folder_are_replaced(subject: Subject, tmp_path: Path) -> None:
    target = tmp_path / "out"
    several = replace(subject, samples=subject.samples * 2)
    write_minimised(target, several, report())
    assert names(target) == ["inputs", "minimised.json", "model.onnx"]
    (target / "more").write_text("mine")
    write_minimised(target, subject, report())
    assert names(target) == ["inputs.npz", "minimised.json", "model.onnx", "more"]
    assert (target / "more").read_text() == "mine"
    assert onnx.load(target / "model.onnx") == subject.model
    check_target(target, "a/b@1#cpu")
    assert names(tmp_path) == ["chain.onnx", "out"]


@pytest.mark.parametrize("at", range(1, 7))
def test_an_interrupt_while_files_are_moved_leaves_those_of_before(
    at: int, subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, calls, move = tmp_path / "out", list[str](), Path.rename
    write_minimised(target, replace(subject, samples=subject.samples * 2), report())

    def rename(item: Path, to: Path) -> Path:
        calls.append(item.name)
        if len(calls) == at:
            raise KeyboardInterrupt
        return move(item, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write_minimised(target, subject, report())
    assert names(target) == ["inputs", "minimised.json", "model.onnx"]
    assert names(tmp_path) == ["chain.onnx", "out"]


def test_a_folder_stays_as_it_was_where_the_new_one_cannot_be_written(
    subject: Subject, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    write_minimised(target, subject, report())
    with pytest.raises(ValueError, match="JSON"):
        write_minimised(target, subject, {"cell": float("nan")})
    check_target(target, "a/b@1#cpu")


@pytest.mark.parametrize("fill", ["other", "foreign", "file"])
def test_what_is_not_ours_is_not_replaced(fill: str, subject: Subject, tmp_path: Path) -> None:
    target = tmp_path / "out"
    if fill == "other":
        write_minimised(target, subject, report("a/b@2#cpu"))
    elif fill == "foreign":
        target.mkdir()
        (target / "minimised.json").write_text("[1]")
    else:
        target.write_text("mine")
    with pytest.raises(UsageError, match="is not of this cell: name another folder by --to"):
        check_target(target, "a/b@1#cpu")


def trials() -> tuple[Trial, ...]:
    return (
        Trial(move=MOVE, answer=Answer.SAME, said="y: wrong by 900 noise floors"),
        Trial(move=MOVE, answer=Answer.NOT, said="PASS 1"),
        Trial(move=MOVE, answer=Answer.CANNOT_SAY, said="ONNX Runtime cannot compute it", ran=False),
    )


def ended(**fields: object) -> Minimised:
    plain: dict[str, object] = {
        "cell": "sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4", "manner": "y: wrong by 900 noise floors",
        "good": "10.8.0", "before": "12 nodes, 1 input", "after": "3 nodes, 1 input", "trials": trials(),
        "sizes": {"before": {"nodes": 12}, "after": {"nodes": 3}}, "ended": "nothing else can be smaller",
        "is_smaller": True, "folder": "out", "smallest": "model-1a2b/tf32-3c4d@10.7.0#nvidia-l4",
        "last_said": "run once more: y: wrong by 900 noise floors", "notes": ("bf16: built as it is typed",),
        "model_words": "--model out/model.onnx --inputs out/inputs.npz --precision tf32",
    }  # fmt: skip
    return Minimised(**{**plain, **fields})  # type: ignore[arg-type] # as above, but for one


def test_the_end_is_told_with_the_commands_that_show_it() -> None:
    check_golden("minimised.txt", render_minimised(ended()))


def test_where_nothing_is_smaller_no_command_is_named() -> None:
    none = ended(trials=trials()[1:], is_smaller=False, folder="", smallest="", last_said="")
    text = render_minimised(none)
    assert text.endswith("nothing smaller fails in the same way\n")
    assert "Next" not in text


def test_what_asks_more_of_its_build_than_options_can_say_is_shown_by_its_archive_alone() -> None:
    end = ended(model_words="")
    assert commands(end) == [f"python -m trtmatrix bundle make {end.smallest}"]


def test_the_data_is_strict_json_with_every_trial() -> None:
    data = json.loads(json.dumps(minimised_data(ended()), allow_nan=False))
    assert [trial["answer"] for trial in data["trials"]] == [answer.value for answer in Answer]
    assert data["commands"][1].endswith("--trt 10.7.0 --gpu nvidia-l4")


@pytest.mark.parametrize("answer", Answer)
def test_each_answer_has_a_line(answer: Answer) -> None:
    line = step_line(3, Trial(move=MOVE, answer=answer, said="why"), "3 nodes")
    assert line.startswith("  [3] size of x[0]: 1 — ")
    assert line.endswith("(3 nodes)" if answer is Answer.SAME else "(why)")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a/b@1"], "is no cell id"),
        (["sdpa-scale/sdpa-tf32@10.7#none"], "perhaps you meant 10.7.0"),
        (["sdpa-scale/none@10.7.0#nvidia-l4"], "nothing is called so"),
        (["sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4"], "it is only reported"),
        (["sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4", "--steps", "0"], "is no number from 1"),
        (
            ["sdpa-scale/control-lost-scale-tf32@8.6.0#nvidia-h200"],
            "put into its graph, not into the version",
        ),
    ],
)
def test_what_cannot_be_minimised_is_told(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["minimise", *words, f"--cache={tmp_path}", f"--to={tmp_path / 'x'}"])
    assert code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def page(**fields: Any) -> Page:
    plain: dict[str, Any] = {
        "title": "your model a.onnx", "summary": "", "case": "tf32-1", "precision": "tf32", "floor": "tf32",
        "digests": {}, "samples": 1, "inputs": {"x": "x"}, "outputs": {"y": "y"}, "profile": {},
        "quantized": (), "tolerance": {},
    }  # fmt: skip
    return Page(**{**plain, **fields})


def test_what_a_cell_asks_of_its_build_is_asked_for_the_smaller_model_too(
    subject: Subject, tmp_path: Path
) -> None:
    options = {"level": 3, "keep_fp32": ("Softmax",)}
    file = tmp_path / "small.py"
    file.write_text(write_page(page(options=options, bug_is=["build failed"])))
    loaded = read_repro(file)
    (case,) = loaded.repro.cases
    assert case.bug_is == {Cause.BUILD_FAILED}
    (tmp_path / "inputs").mkdir()
    np.save(tmp_path / "inputs" / "x.npy", subject.samples[0]["x"])
    recipe = read_recipe(file, case.params, tmp_path, Product.TENSORRT)
    assert recipe is not None
    assert (recipe.level, recipe.keep_fp32, recipe.precision) == (3, ("Softmax",), "tf32")
    assert write_page(page()).count("options[") == 1  # what the model itself is quantized to
