"""Which changes a failing cell allows, and the repro that makes them: what it asks of a product's build."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_repro
from onnx import helper
from onnxmodels import FLOAT, make_model

from trtmatrix.changed_repro import write_changed
from trtmatrix.core.bundle.changes import Change, Seen, changed_id, find_equal, list_changes
from trtmatrix.core.model import Scalar
from trtmatrix.effects.repro_files import read_repro
from trtprobe import ends
from trtprobe.backends import open_backend
from trtprobe.backends.base import Backend, BuildOptions, Engine

ROOT = Path(__file__).resolve().parents[2]
SEEN = Seen(tensor="p", operator="Softmax", no_batch="fixed")


def changes_of(version: str = "10.7.0", seen: Seen = SEEN, **params: Scalar) -> dict[str, Change]:
    case = make_case(params={"precision": "tf32", **params})
    other = make_case("other", params={"precision": "fp32", **{k: v for k, v in params.items() if k == "x"}})
    cell = make_cell(make_repro(case, other), case, version)
    return {change.id: change for change in list_changes(cell, seen)}


def can(changes: Mapping[str, Change]) -> list[str]:
    """Those that can be measured."""
    return [name for name, change in changes.items() if not change.why_not and not change.as_it_is]


LISTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["tf32-off", "level-0", "level-5", "marked"]),
    ({"level": 0, "batch": 6}, ["tf32-off", "level-3", "level-5", "marked", "batch"]),
    ({"precision": "fp32"}, ["level-0", "level-5", "marked"]),
    ({"precision": "fp16-flag"}, ["tf32-off", "fp32", "level-0", "level-5", "marked"]),
    ({"precision": "fp16"}, ["tf32-off", "fp32", "level-0", "level-5", "marked"]),
    ({"precision": ""}, ["tf32-off", "level-0", "level-5", "marked"]),
    ({"version": "8.5.3.1"}, ["tf32-off", "marked"]),
    ({"version": "8.6.0"}, ["tf32-off", "level-0", "level-5", "marked"]),
    ({"version": "onnxruntime-1.31.1"}, ["optimized-basic", "optimized-all", "marked"]),
    ({"version": "tensorrt-rtx-1.7", "precision": "fp16"}, ["tf32-off", "level-0", "level-5", "marked"]),
    ({"seen": Seen(no_tensor="no tensor", own_batch=3)}, ["tf32-off", "level-0", "level-5", "batch"]),
    ({"seen": Seen(no_tensor="no tensor"), "batch": True}, ["tf32-off", "level-0", "level-5"]),
    ({"seen": Seen(no_tensor="no tensor", level=0)}, ["tf32-off", "level-3", "level-5"]),
]


@pytest.mark.parametrize(("given", "wanted"), LISTS)
def test_what_can_be_measured_depends_on_product_version_and_case(
    given: dict[str, Any], wanted: list[str]
) -> None:
    assert can(changes_of(**given)) == wanted


def test_what_cannot_be_had_is_a_line_that_says_why() -> None:
    assert "from 8.6 on" in changes_of("8.5.3.1")["level"].why_not
    assert "neither TF32" in changes_of("onnxruntime-1.31.1")["build"].why_not
    lines = changes_of(seen=Seen(no_tensor="no tensor", no_batch="fixed"))
    assert (lines["marked"].why_not, lines["batch"].why_not) == ("no tensor", "fixed")


@pytest.mark.parametrize(("asked", "as_it_is"), [({}, "level-3"), ({"level": 5}, "level-5")])
def test_the_level_that_the_case_is_built_with_is_told_as_it_is(asked: dict[str, Any], as_it_is: str) -> None:
    assert [name for name, change in changes_of(**asked).items() if change.as_it_is] == [as_it_is]


def test_a_case_of_the_repro_that_is_just_the_changed_one_is_found() -> None:
    case = make_case("a", params={"precision": "tf32", "level": 0})
    equal = make_case("b", params={"precision": "tf32", "level": 3})
    needs = make_case("c", params={"precision": "fp32", "level": 0}, needs=frozenset({"torch"}))
    repro = make_repro(case, equal, needs)
    changes = {change.id: change for change in list_changes(make_cell(repro, case), SEEN)}
    assert find_equal(repro, case, changes["level-3"]) is equal
    assert find_equal(repro, case, changes["tf32-off"]) is None, "it needs torch"
    assert find_equal(repro, case, changes["marked"]) is None


FILES = sorted(path for path in (ROOT / "repros").glob("*.py"))
CHANGES = (
    Change(id="level-5", words="level 5", level=5),
    Change(id="tf32-off", words="TF32 off", tf32_off=True),
    Change(id="fp32", words="FP32", params={"precision": "fp32"}),
    Change(id="optimized-all", words="all", optimisation="ORT_ENABLE_ALL"),
    Change(id="marked", words="marked", tensor="p"),
)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_repro_can_be_changed_and_keeps_its_own_cases(file: Path, tmp_path: Path) -> None:
    loaded = read_repro(file)
    case = loaded.repro.cases[0]
    target = tmp_path / file.name
    target.write_text(write_changed(file.read_text(), case, CHANGES, 3, {}))
    ast.parse(target.read_text(), feature_version=(3, 8))
    changed = {c.id: c for c in read_repro(target).repro.cases}
    assert {c.id for c in loaded.repro.cases} < set(changed)
    for change in CHANGES:
        made = changed[changed_id(case, change)]
        assert {**made.params, "change": change.id} == made.params
        assert made.params.items() >= change.params.items()
        assert (made.control, made.defect, made.defects) == (None, "", case.defects)
        assert made.builds == (1 if case.processes > 1 else 3)


REPRO = '''
"""A made-up repro."""

FACTS = {"title": "t", "upstream": "u", "url": "https://example.org", "summary": "s",
         "figure": {"measure": "sum_abs", "label": "l"}}


def cases():
    yield {"id": "case", "params": {"precision": "tf32", "model": "here"}}


def prepare(params):
    return {}


def run(params, files, trt):
    assert "change" not in params
    model = {"here": files.model, "other": files.model.with_name("other.onnx")}[params["model"]]
    engine = trt.build(model, params["precision"])
    return engine.run({})


if __name__ == "__main__":
    raise SystemExit("not by hand")
'''


class Product(Backend):
    """A product that notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[BuildOptions] = []
        self.cleared: list[str] = []
        self.trt = SimpleNamespace(BuilderFlag=SimpleNamespace(TF32="TF32"))

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        del model
        self.asked.append(options)
        self._configure(SimpleNamespace(clear_flag=self.cleared.append), options)
        return Given()

    def _configure(self, config: Any, options: BuildOptions) -> None:
        del config, options


class Given(Engine):
    """An engine of two outputs."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        del inputs
        return {"y": np.zeros(1), "p": np.ones(1)}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("repros") / "made_up.py"
    file.write_text(write_changed(REPRO, make_case("case"), CHANGES, 3, {}))
    return read_repro(file).module


def run(module: Any, product: Backend, change: str, model: str = "here") -> dict[str, Any]:
    params = {"precision": "tf32", "model": model, **({"change": change} if change else {})}
    outputs: dict[str, Any] = module.run(params, SimpleNamespace(model=Path("/case/model.onnx")), product)
    return outputs


ASKED: list[tuple[str, int | None, list[str], list[str]]] = [
    ("", None, [], ["y", "p"]),
    ("level-5", 5, [], ["y", "p"]),
    ("tf32-off", None, ["TF32"], ["y", "p"]),
    ("marked", None, [], ["y"]),
]


@pytest.mark.parametrize(("change", "level", "cleared", "outputs"), ASKED)
def test_a_change_is_asked_of_the_build_and_taken_back(
    module: Any, change: str, level: int | None, cleared: list[str], outputs: list[str]
) -> None:
    product = Product()
    before = dict(vars(product))
    assert list(run(module, product, change)) == outputs
    assert [(asked.precision, asked.level) for asked in product.asked] == [("tf32", level)]
    assert product.cleared == cleared
    assert vars(product) == before


def test_a_change_is_taken_back_where_the_build_fails(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Engine:
        raise ends.BuildFailed("no")

    product = Product()
    monkeypatch.setattr(product, "_build", refuse)
    before = dict(vars(product))
    with pytest.raises(ends.BuildFailed, match="no"):
        run(module, product, "tf32-off")
    assert vars(product) == before


def test_what_does_not_build_its_graph_says_that_it_cannot_be_changed(module: Any) -> None:
    with pytest.raises(ends.Unsupported, match="does not build its graph"):
        run(module, Product(), "level-5", "other")
    assert run(module, Product(), "", "other"), "unchanged it runs as it always did"


def test_onnxruntime_really_optimises_where_that_is_the_change(module: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = make_model(nodes, {"x": (FLOAT, (2,))}, {"y": (FLOAT, (2,))})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    files, levels = SimpleNamespace(model=tmp_path / "model.onnx"), []
    backend = open_backend("onnxruntime")
    backend.memo = tmp_path / "memo"
    own_build = backend._build

    def build(model: Path, options: BuildOptions) -> Engine:
        engine = own_build(model, options)
        levels.append(engine.session.get_session_options().graph_optimization_level.name)  # type: ignore[attr-defined]
        assert (backend.memo is None) == bool(change)
        return SimpleNamespace(run=lambda _: engine.run({"x": np.ones(2, np.float32)}))  # type: ignore[return-value]

    backend._build = build  # type: ignore[method-assign]
    for change in ("", "optimized-all", ""):
        params = {"precision": "tf32", "model": "here", **({"change": change} if change else {})}
        assert module.run(params, files, backend)["y"].tolist() == [1.0, 1.0]
    assert levels == ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL", "ORT_DISABLE_ALL"]
