"""What a report tells of the user's own model: reference, floor, samples, cases at both versions."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_entry, make_loaded, make_record, make_repro
from model.test_own_model import Opened, opened
from onnxmodels import mlp, saved

from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.noise import NO_FLOOR, Calibration, noise_troubles
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import Context
from trtmatrix.records.store import keep_outputs
from trtmatrix.suite.model import Cause, CellId, Outcome, Product, Verdict
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.model_section import (
    add_extras,
    floor_words,
    make_model_section,
    make_samples,
    reference_words,
    tell_cpu,
)
from trtmatrix.upgrade.report import ModelSection, SampleFigure

__all__ = ["opened"]

OUTPUTS = {"y": "out/y"}
TOLD = {
    "by": "ONNX Runtime 1.31.1 on the CPU", "precision": "float64 (Erf in float32)", "why_not": "",
    "own_error": {"y": 1.2e-7}, "own_error_means": "float32 against float64",
}  # fmt: skip
NOISE = {"precision": "tf32", "outputs": {"y": {"fp32": 1e-7, "tf32": 2e-4}}, "reference": TOLD}


def test_the_reference_is_told_with_its_own_error_or_why_there_is_none() -> None:
    told = "ONNX Runtime 1.31.1 on the CPU, float64 (Erf in float32); its own relative L2 error: at most"
    assert (reference_words(NOISE), noise_troubles(NOISE)) == (f"{told} 1.2e-7", ())
    none = {"outputs": {}, "reference": {**TOLD, "by": "", "why_not": "no kernel of Strange"}}
    assert reference_words(none) == "none: no kernel of Strange"
    none = {"outputs": {}, "reference": {**TOLD, "why_not": "its opset is 9"}}
    assert noise_troubles(none) == ("no noise floor: its opset is 9",)


@pytest.mark.parametrize(
    ("noise", "outputs", "product", "words"),
    [
        (NOISE, OUTPUTS, Product.TENSORRT,
         "the same graph computed in tf32 on the CPU: relative L2 error up to 2.0e-4"),
        (NOISE, OUTPUTS, Product.ONNXRUNTIME,
         "the same graph computed in fp32 on the CPU: relative L2 error up to 1.0e-7"),
        (NOISE, {**OUTPUTS, "k": "class"}, Product.TENSORRT,
         "the same graph computed in tf32 on the CPU: relative L2 error up to 2.0e-4; none of class"),
        ({"outputs": {}}, OUTPUTS, Product.TENSORRT, NO_FLOOR),
    ],
)  # fmt: skip
def test_the_floor_is_told_by_its_worst_member(noise: Any, outputs: Any, product: Any, words: str) -> None:
    assert floor_words(noise, outputs, product) == words


def figure_of(*errors: float, noise: Any, bad: int = -1) -> SampleFigure:
    """The figure of an output's error in each sample; ``bad``: the sample that is NaN."""
    cell = make_cell(make_repro(make_case(keep=True, limits={})))
    seen = [{"count": 4, "nan_unexpected": int(i == bad), "rel_l2": e} for i, e in enumerate(errors)]
    outputs = {f"y.s{i}": values for i, values in enumerate(seen)}
    entry = make_entry(cell, noise=noise, measurements={"outputs": outputs, "scalars": {}})
    (found,) = make_samples([entry], OUTPUTS, Calibration())
    return found


def floors_of(*floors: float) -> dict[str, Any]:
    return {"precision": "tf32", "outputs": {f"y.s{i}": {"tf32": floor} for i, floor in enumerate(floors)}}


def test_samples_are_told_in_floors_with_the_worst_named() -> None:
    floors = floors_of(1e-4, 2e-4, 3e-4, 4e-4)
    found = figure_of(1e-4, 4e-4, 3e-4, 2e-4, noise=floors)
    assert (found.output, found.version, found.unit, found.samples) == ("out/y", "10.7.0", "floors", 4)
    assert found.worst_sample == 1
    assert [found.median, found.p90, found.worst] == pytest.approx([1.0, 2.0, 2.0])
    found = figure_of(1e-4, 1e-4, 1e-4, 1e-4, noise=floors, bad=2)
    assert (found.worst, found.worst_sample) == (math.inf, 2), "NaN is infinitely wrong"
    assert found.median < 1.1


def test_a_floor_that_hides_too_much_is_no_unit() -> None:
    useful = make_case(keep=True, limits={}).useful
    for floor, unit in ((useful, "floors"), (useful * 1.01, "relative L2 error")):
        assert figure_of(1e-4, 1e-4, noise=floors_of(floor, floor)).unit == unit


@pytest.fixture
def made(opened: Opened, tmp_path: Path) -> tuple[Context, ModelSection]:
    """A model that is open, and its section where nothing has run."""
    context = opened(saved(mlp(), tmp_path / "my.onnx"))
    wanted = ModelOptions(model=tmp_path / "my.onnx", limit=1.1)
    return context, make_model_section(context, Entries(()), "10.7.0", "10.8.0", wanted)


def test_a_section_is_made_of_what_there_is(made: tuple[Context, ModelSection]) -> None:
    context, section = made
    assert (section.name, section.floor) == ("my.onnx", NO_FLOOR)
    assert dict(section.facts)["inputs"] == "x float32 [batch, 64]"
    assert dict(section.facts)["samples"].startswith("1, drawn with seed 0")
    assert section.reference == "none: nothing has run"
    (case,) = context.repros[section.repro].repro.cases
    assert [line.case for line in section.cases] == [case.id]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rel_l2": 1e-7}, "PASS: the graph is sound, which says nothing of TensorRT"),
        ({"rel_l2": 1.0}, "FAIL: y: 1.0e7 noise floors"),
        ({"ended": "crashed", "detail": "no kernel"}, "NO VERDICT (crashed): no kernel"),
    ],
)
def test_the_newest_record_of_the_cpu_is_told(
    made: tuple[Context, ModelSection], fields: dict[str, Any], told: str
) -> None:
    context, section = made
    (case,) = context.repros[section.repro].repro.cases
    cpu = CellId(repro=section.repro, case=case.id, version="onnxruntime-1.31.1", gpu="cpu")
    newest = make_record(cpu, product="onnxruntime", noise=NOISE, **fields)
    older = make_record(cpu, product="onnxruntime", started="2020-01-01T00:00:00Z", ended="crashed")
    other = make_record(replace(cpu, repro="other"), product="onnxruntime", ended="crashed")
    stored = [Stored(record=record, local=True) for record in (newest, older, other)]
    ((name, words),) = tell_cpu(context, stored, Calibration())
    assert name == "onnxruntime-1.31.1 on the CPU"
    assert words.startswith(told)


# What a report tells of a user's model beside its verdicts, also where little of it is there.
BEFORE, AFTER = "8.6.1", "10.8.0"
REPRO = make_repro(make_case("fp32", keep=True), id="my-0")
SECTION = ModelSection(name="my.onnx", repro="my-0", facts=(), reference="", floor="", cases=())


def make_context(folder: Path, samples: int = 1) -> Any:
    module = ModuleType("my")
    module.OUTPUTS, module.SAMPLES = {"y_0": "y/0"}, samples  # type: ignore[attr-defined]
    loaded = make_loaded(REPRO, module)
    return SimpleNamespace(repros={"my-0": loaded}, project=SimpleNamespace(cache=folder))


def kept_entry(folder: Path, version: str, *arrays: Any, **fields: Any) -> Entry:
    """A cell of the user's model whose record kept these samples' outputs."""
    kept: dict[str, Any] = {}
    for number, array in enumerate(arrays):
        name = f"y_0.s{number}" if len(arrays) > 1 else "y_0"
        np.save(folder / f"{name}.npy", array)
        kept |= keep_outputs(folder, folder, {name: {}})
    more: dict[str, Any] = {"kept": kept} if kept else {}
    return make_entry(make_cell(REPRO, REPRO.cases[0], version), **more, **fields)


def extras(folder: Path, entries: list[Entry], samples: int = 1, code: str = "") -> ModelSection:
    """Return the section with what is added; ``code``: what the acceptance script returns."""
    script = folder / "accept.py"
    script.write_text(f"def check(before, after, reference):\n    return {code}\n")
    options = ModelOptions(check=script if code else None)
    return add_extras(SECTION, make_context(folder, samples), entries, (BEFORE, AFTER), options)


def test_kept_outputs_of_all_samples_are_compared(tmp_path: Path) -> None:
    one, two = np.ones(3, np.float32), np.zeros(3, np.float32)
    entries = [kept_entry(tmp_path, BEFORE, one, two), kept_entry(tmp_path, AFTER, one, two + 1)]
    section = extras(tmp_path, entries, samples=2)
    (found,) = section.differences
    assert (found.output, found.max_abs, found.worst_sample, found.samples) == ("y/0", 1.0, 1, 2)
    assert section.troubles == ()


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (np.float32, []),
        (np.int64, ["integers could not be held against their reference: there is none in the cache"]),
    ],
)
def test_only_integers_are_missing_a_reference(dtype: Any, told: list[str], tmp_path: Path) -> None:
    entries = [kept_entry(tmp_path, version, np.ones(3, dtype)) for version in (BEFORE, AFTER)]
    void = [replace(each, outcome=Outcome(verdict=Verdict.INVALID)) for each in entries]
    assert list(extras(tmp_path, void).troubles) == told
    shutil.rmtree(tmp_path / "outputs")
    assert [trouble for trouble in extras(tmp_path, void).troubles if trouble in told] == told


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ended": Cause.BUILD_FAILED.value}, "at 10.8.0 it ended with: build failed; python -m trtmatrix"),
        ({}, "at 10.8.0 none were kept; python -m trtmatrix run --model … --trt 10.8.0 --rerun"),
    ],
)
def test_a_version_without_outputs_is_told(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    entries = [kept_entry(tmp_path, BEFORE, np.ones(3)), kept_entry(tmp_path, AFTER, **fields)]
    section = extras(tmp_path, entries, code="True")
    assert section.differences == ()
    assert section.troubles[0].startswith(f"the two versions' outputs cannot be compared: {words}")
    assert section.check is not None
    assert section.check.passed is None
    assert section.check.error.startswith(f"accept.py was not run: {words}")


def test_the_script_is_given_both_versions_and_no_reference_where_there_is_none(tmp_path: Path) -> None:
    entries = [kept_entry(tmp_path, BEFORE, np.ones(3)), kept_entry(tmp_path, AFTER, np.full(3, 2.0))]
    given = "bool((before[0]['y/0'] == 1).all()), float(after[0]['y/0'][0])"
    section = extras(tmp_path, entries, code=f"reference is None and {given}")
    assert section.check is not None
    assert (section.check.passed, section.check.figure, section.check.error) == (True, 2.0, "")
    assert list((tmp_path / "checks").iterdir()) == []
