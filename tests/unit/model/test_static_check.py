"""A model's file held against the rules of the repros: what is found in it, what not, and how it is told."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_cell
from judge.test_published import entries as published
from onnx import AttributeProto, ModelProto, TensorProto, helper
from onnxmodels import FLOAT, HALF, INT64, make_model, node, saved

from trtmatrix.cli import entry as cli
from trtmatrix.judge.entry import find_expectation
from trtmatrix.model.static_check import NodeGroup, check_model
from trtmatrix.suite.model import NO_GPU, Cause, Control, Verdict, release_of
from trtmatrix.suite.repro_files import LoadedRepro, read_facts, read_repro
from trtmatrix.suite.repros import Case, Effect

ROOT = Path(__file__).parents[3]
Check = Callable[..., tuple[int, str]]
REPROS = ROOT / "repros"
FACTS = read_facts(REPROS)
VERSIONS = (
    "8.5.1.7", "8.5.2.2", "8.5.3.1", "8.6.0", "8.6.1", "9.2.0", "9.3.0", "10.0.0", "10.0.1.6", "10.3",
    "10.7.0", "10.8.0", "10.9.0", "10.11.0", "10.13.3", "10.16.1", "11.2.1",
)  # fmt: skip
SMALL = (
    "parser_drops", "transpose_constant", "gathered_linear", "norm_fp16", "clip_after_linear", "cumsum_axes",
    "gemv_pair", "shared_input_linears", "deformable_plugin",
)  # fmt: skip
"""Repros whose graphs are made in a moment, and whose failures a file shows."""

MEASURED = {"8.5.1.7": 531, "8.5.2.2": 531, "8.5.3.1": 531, "8.6.0": 542}
"""Versions with published records of an H200, and how many of ONNX's node tests are right and not flagged."""

COUNTS = {
    ("wrong", "known"): 45, ("wrong", "feared"): 62, ("wrong", "silent"): 4,
    ("right", "known"): 20, ("right", "feared"): 6,
}  # fmt: skip
"""ONNX's node tests that each of them built and ran, by how they came out and what the check says of the
file; the same at all four."""

UNKNOWN_TO_THE_RULES = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad", "test_lppool_2d_dilations",
    "test_maxpool_2d_ceil_output_size_reduce_by_one", "test_spacetodepth_crd_mode_example",
}  # fmt: skip
"""What they get wrong without a rule: see the causes in docs/operators.md."""

ALIKE = {
    "norm-fp16/control-small-typed": "its graph is that of layernorm-typed: only its values are small",
    "norm-fp16/control-overflow-typed": "it is layernorm-typed, multiplied by 0",
    "gemv-pair/control-no-bias-fp32": "it is mlp-relu without the last bias",
}
"""Controls that hold what their repro is about: a rule fears for them, and none is sure."""

RMSNORM = {
    f"shared-input-linears/{name}-fp16"
    for name in ("qkv-1", "qkv-16", "swiglu-1", "swiglu-16", "workaround-outputs-1")
}
"""They hold the RMSNorm of norm-fp16, which fears for them; they are right, with no value beyond 256."""

SURENESS = ("measured", "reported", "read", "assumed")
"""How a rule's entry is known, the surest first."""


def cases_of(name: str) -> Iterator[tuple[LoadedRepro, Case]]:
    loaded = read_repro(REPROS / f"{name}.py")
    yield from ((loaded, case) for case in loaded.repro.cases)


@cache
def graphs_of(name: str) -> tuple[tuple[LoadedRepro, Case, ModelProto], ...]:
    return tuple(
        (loaded, case, loaded.module.prepare(dict(case.params))["model"]) for loaded, case in cases_of(name)
    )


def found(model: ModelProto, *versions: str, compute: str = "") -> tuple[NodeGroup, ...]:
    return check_model(model, "m.onnx", FACTS, versions or VERSIONS, compute).groups


def expected(loaded: LoadedRepro, case: Case, version: str) -> Verdict | None:
    """What a repro says of a case; work-arounds and controls are right."""
    said = find_expectation(make_cell(loaded.repro, case, version, NO_GPU))
    right = case.control is not None or case.id.startswith("workaround")
    return said.verdict if said else Verdict.PASS if right else None


@pytest.mark.parametrize("name", SMALL)
def test_each_graph_that_fails_is_found_at_the_versions_where_it_does(name: str) -> None:
    """And nothing is told of work-arounds, controls, and what passes."""
    for loaded, case, model in graphs_of(name):
        groups = found(model, compute="11.0")
        for version in VERSIONS:
            told = [i for g in groups if g.repro == loaded.repro.id and (i := g.at.get(version))]
            others = [i for g in groups if g.repro != loaded.repro.id and (i := g.at.get(version))]
            assert not any(item.is_sure for item in others)
            where = f"{loaded.repro.id}/{case.id}"
            match expected(loaded, case, version):
                case Verdict.FAIL:
                    assert told, (where, version)
                case Verdict.NO_VERDICT:
                    assert Effect.REFUSED in [item.effect for item in told], (where, version)
                case Verdict.PASS if where in ALIKE:
                    assert not any(item.is_sure for item in told), (where, version)
                case Verdict.PASS:
                    assert not told, (where, version)


@pytest.mark.parametrize("name", SMALL)
def test_what_the_published_records_show_is_told_as_measured(name: str) -> None:
    """Of the same graph, version and GPU; what passed is not known to fail."""
    outcomes = {str(entry.cell.id): entry.outcome for entry in published()}
    elsewhere, seen = set(), 0
    for loaded, case, model in graphs_of(name):
        groups = found(model, *MEASURED, compute="9.0")
        for version in MEASURED:
            where = f"{loaded.repro.id}/{case.id}"
            outcome = outcomes.get(f"{where}@{version}#nvidia-h200")
            if outcome is None or case.control is Control.NEGATIVE:
                continue
            seen += 1
            told = [(group.repro, item) for group in groups if (item := group.at.get(version))]
            refused = outcome.cause is Cause.UNSUPPORTED_BY_VERSION
            if refused or outcome.verdict is Verdict.FAIL:
                right = [i for _, i in told if (i.effect is Effect.REFUSED) is refused]
                assert [(i.known, i.on) for i in right] == [("measured", "H200")], (where, version)
                # A norm overflows only where its values are large, which no file tells.
                assert right[0].is_sure or "a value is beyond 256" in right[0].depends, (where, version)
            elif outcome.verdict is Verdict.PASS:
                assert not any(item.is_sure for _, item in told), (where, version)
                elsewhere |= {where for repro, _ in told if repro != loaded.repro.id}
    assert seen
    assert elsewhere == {where for where in RMSNORM if where.startswith(name.replace("_", "-"))}


def test_of_what_is_known_of_a_version_a_rule_tells_the_surest() -> None:
    """The first entry that fits counts: one that was measured must not stand behind what others report."""
    for repro, facts in FACTS.items():
        for rule in facts.rules:
            for release in map(release_of, VERSIONS):
                fits = [SURENESS.index(item.basis) for item in rule.at if item.versions.contains(release)]
                assert fits[:1] == sorted(fits)[:1], (repro, rule.what, str(release))


def test_the_product_that_is_wrong_without_transposes_has_help_of_its_own() -> None:
    (model,) = (m for _, case, m in graphs_of("transpose_constant") if case.id == "onehot-identity")
    (group,) = found(model, "8.6.0")
    assert group.operator == "MatMul"
    assert "make the factor an input" in group.instead
    assert "Transpose" not in group.instead


def test_the_lost_scale_is_found_in_both_of_torch_s_exports_alone() -> None:
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.randoms import TorchRandom

    size = block.Size(batch=1, length=16, heads=2, head_size=8)
    weights = block.Weights.draw(TorchRandom(0), size.embed)
    for wrong in (block.build(size, weights, "sdpa"), block.build(size, weights, "sdpa-default")):
        (group,) = found(wrong, "10.3.0", "10.7.0", "10.8.0")
        assert (group.repro, group.operator, len(group.nodes)) == ("sdpa-scale", "MatMul", 1)
        assert [(version, item.is_sure) for version, item in group.at.items()] == [
            ("10.3.0", False),
            ("10.7.0", True),
        ]
    on_q = block.build(size, weights, "sdpa", factors=(size.scale, 1.0))
    for right in (block.build(size, weights), block.build(size, weights, "mha"), on_q):
        assert not found(right, "10.7.0")


@pytest.fixture(scope="module")
def node_tests() -> dict[str, ModelProto]:
    """ONNX's tests of nodes; what no rule reads of them, sources and pooled numbers, would take seconds."""
    from onnx.backend.test.case import base
    from onnx.backend.test.loader import load_model_tests
    from onnx.reference.ops import op_pool_common

    def pool(padded: Any, *shapes: Any, **_: Any) -> Any:
        return np.zeros([*shapes[0][:2], *shapes[3]], padded.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "process_snippet", lambda *_: ("", ""))
        patch.setattr(op_pool_common, "pool", pool)
        return {test.name: test.model or ModelProto() for test in load_model_tests(kind="node")}


@pytest.mark.parametrize("version", MEASURED)
def test_it_agrees_with_a_real_version_on_onnx_s_tests(
    version: str, node_tests: dict[str, ModelProto]
) -> None:
    """The published record of an H200 (docs/operators.md): of 8.6.0 679 of these tests were built and run."""
    file = ROOT / f"results/nvidia-h200/{version}/operators.json.gz"
    ended = {name: row[0] for name, row in json.loads(gzip.decompress(file.read_bytes()))["cases"].items()}
    told: dict[tuple[str, str], list[str]] = {}
    for name in ended.keys() & node_tests.keys():
        nodes = [at for group in found(node_tests[name], version) for at in group.at.values()]
        word = "known" if any(at.is_sure for at in nodes) else "feared" if nodes else "silent"
        told.setdefault((ended[name], word), []).append(name)
        if ended[name] in {"wrong", "refused by the parser"}:
            assert all((at.known, at.on) == ("measured", "H200") for at in nodes), name
    counts = {key: len(names) for key, names in told.items() if key[0] in {"right", "wrong"}}
    assert counts == {**COUNTS, ("right", "silent"): MEASURED[version]}
    assert set(told["wrong", "silent"]) == UNKNOWN_TO_THE_RULES
    harmless = "layer_normalization|softmax|scatter_elements_with_reduction_min|triu_zero"
    assert all(re.search(harmless, name) for name in told["right", "known"])


def reduction(axes: list[int], dims: list[int | str | None] | None, opset: int = 18) -> ModelProto:
    return make_model(
        [node("ReduceMean", "x axes", "y")], {"x": (FLOAT, dims or [None])}, {"y": (FLOAT, None)},
        {"axes": np.array(axes, np.int64)}, opset=opset,
    )  # fmt: skip


def test_what_makes_no_difference_is_not_told() -> None:
    assert found(reduction([1], [2, 3]), "8.6.0")
    assert not found(reduction([0, -1], [2, 3]), "8.6.0"), "all axes"
    assert not found(reduction([0, 1], [2, 3]), "10.0.0"), "another version"
    for start, fails in ((0, False), (-1, True)):
        nodes = [node("Shape", "x", "y", start=start)]
        assert bool(found(make_model(nodes, {"x": (FLOAT, [2, 3])}, {"y": (INT64, None)}), "8.6.0")) is fails
    custom = make_model(
        [helper.make_node("ReduceMean", ["x", "x"], ["y"], domain="mine")], {"x": (FLOAT, [2])},
        {"y": (FLOAT, None)}, opset=18, domains=["mine"],
    )  # fmt: skip
    assert not found(custom, "8.6.0"), "another operator of the same name"


@pytest.mark.parametrize("perm", [1, [0, 9], [0.0, 1.0], ["x", "y"]])
def test_an_attribute_that_its_operator_cannot_have_stops_nothing(perm: object) -> None:
    chain = make_model(
        [
            node("Transpose", "x", "a", perm=perm), node("Mul", "a c", "b"),
            node("Transpose", "b", "y", perm=perm),
        ],
        {"x": (FLOAT, [30, 39])}, {"y": (FLOAT, None)}, {"c": np.ones((39, 30), np.float32)},
    )  # fmt: skip
    found(chain, "8.6.0")


def split(size: int | str) -> ModelProto:
    return make_model(
        [node("Split", "x", "a b", num_outputs=2)], {"x": (FLOAT, [size])},
        {"a": (FLOAT, None), "b": (FLOAT, None)}, opset=18,
    )  # fmt: skip


def test_what_the_file_does_not_tell_is_feared_and_not_known() -> None:
    assert not found(split(4), "8.6.0")
    assert [item.is_sure for group in found(split(5), "8.6.0") for item in group.at.values()] == [True]
    (group,) = found(split("n"), "8.6.0")
    assert not group.at["8.6.0"].is_sure
    assert "the file does not tell" in group.at["8.6.0"].depends


def test_nodes_inside_of_branches_and_of_local_functions_are_found() -> None:
    axes = list(reduction([1], [2, 3]).graph.initializer)
    out = [helper.make_tensor_value_info("z", FLOAT, None)]
    branch = helper.make_graph([node("ReduceMean", "x axes", "z")], "then", [], out, axes)
    other = helper.make_graph([node("Identity", "x", "z")], "else", [], out)
    chosen = node("If", "c", "y", then_branch=branch, else_branch=other)
    inputs = {"x": (FLOAT, [2, 3]), "c": (TensorProto.BOOL, [])}
    assert found(make_model([chosen], inputs, {"y": (FLOAT, None)}, opset=18), "8.6.0")
    nodes, opsets = [node("ReduceMean", "x axes", "y")], [helper.make_opsetid("", 18)]
    function = helper.make_function("mine", "Mean", ["x", "axes"], ["y"], nodes, opsets)
    calling = reduction([1], [2, 3])
    calling.graph.node[0].CopyFrom(helper.make_node("Mean", ["x", "axes"], ["y"], domain="mine"))
    calling.functions.append(function)
    calling.opset_import.append(helper.make_opsetid("mine", 1))
    assert [group.operator for group in found(calling, "8.6.0")] == ["ReduceMean"]
    resize = node("Resize", "x axes", "y", mode="linear")
    resize.attribute.add(name="antialias", type=AttributeProto.INT, ref_attr_name="a")
    function.node[0].CopyFrom(resize)
    function.opset_import[0].version = 17  # another than the model's: it is looked at as it stands
    calling.functions[0].CopyFrom(function)
    assert [item.is_sure for group in found(calling, "8.6.0") for item in group.at.values()] == [False]


def test_a_rule_for_some_gpus_is_told_with_them_or_of_them_alone() -> None:
    weights = {name: np.zeros((8, 8), np.float16) for name in ("q", "k")}
    model = make_model(
        [node("MatMul", "x q", "a"), node("MatMul", "x k", "b"), node("Add", "a b", "y")],
        {"x": (HALF, [1, 8])}, {"y": (HALF, [1, 8])}, weights,
    )  # fmt: skip
    assert [i.is_sure for g in found(model, "10.13.3", compute="11.0") for i in g.at.values()] == [True]
    assert [i.depends for g in found(model, "10.13.3") for i in g.at.values()] == ["compute capability 11.0"]
    assert not found(model, "10.13.3", compute="9.0")


def large(nodes: int) -> ModelProto:
    """A chain of so many nodes, a tenth of them an opset-18 ReduceMean."""
    made, last = [], "x"
    for i in range(nodes):
        op, inputs = ("ReduceMean", f"{last} axes") if i % 10 == 9 else ("Tanh", last)
        made.append(helper.make_node(op, inputs.split(), [f"t{i}"], name=f"/{op}_{i}"))
        last = f"t{i}"
    return make_model(
        made, {"x": (FLOAT, [2, 3])}, {last: (FLOAT, None)}, {"axes": np.array([1], np.int64)}, opset=18
    )


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Return what runs ``trtmatrix check`` of a model in the project: its code, and what it printed."""
    monkeypatch.chdir(ROOT)

    def call(model: ModelProto | str, *words: str) -> tuple[int, str]:
        file = model if isinstance(model, str) else str(saved(model, tmp_path / "my.onnx"))
        code = cli.run(["check", file, *words])
        return code, "".join(capsys.readouterr())

    return call


def test_names_send_no_escapes(check: Check, tmp_path: Path) -> None:
    model = split(5)
    assert "\x1b" not in check(str(saved(model, tmp_path / "a\x1b.onnx")), "--trt=8.6.0")[1]
    model.graph.node[0].name = "up\x1b[31m\nred"
    assert "Split ×1 (up [31m red)" in check(model, "--trt=8.6.0")[1]


def test_it_tells_which_nodes_fail_where_and_what_helps(check: Check) -> None:
    code, printed = check(large(50), "--trt=10.8.0,8.6.1,8.6.0")
    told = " ".join(printed.split())
    assert code == 1
    assert "my.onnx · opset 18 · 50 nodes · held against" in told
    assert "ReduceMean ×5 (/ReduceMean_9, /ReduceMean_19, /ReduceMean_29, …): the axes input" in told
    assert "ignored: 8.6.0 (measured on H200), 8.6.1 (reported)" in told
    assert "instead: export at opset 17" in told
    assert "parser-drops: NVIDIA/TensorRT#3467" in told
    assert "8.6.0, 8.6.1: 5 nodes known to fail; 10.8.0: nothing known against it." in told
    assert "Not looked at: operators that" in told
    assert "no rules for flash-attention" in told
    code, printed = check(large(50), "--trt=8.6.0", "--json")
    data: dict[str, Any] = json.loads(printed)
    assert (code, data["exit_code"], data["versions"], data["nodes"]) == (1, 1, ["8.6.0"], 50)
    (group,) = data["groups"]
    assert len(group["nodes"]) == 5
    source = "https://github.com/NVIDIA/TensorRT/issues/3467"
    at = {"effect": "ignored", "known": "measured", "on": "H200", "source": source}
    assert group["at"] == {"8.6.0": {**at, "depends": ""}}


def test_all_versions_of_the_matrix_fit_one_screen_and_full_has_every_group(check: Check) -> None:
    whole = ModelProto()
    wanted = "reduce-max$|scatter-nd-add|resize-linear$|split-uneven|shape-scale|gridsample-l"
    for loaded, case in cases_of("parser_drops"):
        if re.match(wanted, case.id):
            model = loaded.module.prepare(dict(case.params))["model"]
            whole.MergeFrom(onnx.compose.add_prefix(model, f"{case.id}/"))
    del whole.opset_import[1:]
    whole.opset_import[0].version = 20
    (code, screen), (_, full) = check(whole), check(whole, "--full")
    lines = screen.splitlines()
    assert (code, len(lines) <= 40, max(map(len, lines)) <= 80) == (1, True, True)
    assert "more groups of nodes: --full" in screen
    assert all(f"{op} ×" in full for op in ("ReduceMax", "ScatterND", "Resize", "Split", "Shape"))


@pytest.mark.parametrize(
    ("model", "words", "code", "said"),
    [
        (large(50), "--trt=10.8.0", 0, "nothing known"), (split("n"), "--trt=8.6.0", 0, "may fail"),
        (large(10), "--trt=onnxruntime", 2, "--trt onnxruntime: no release of TensorRT such as 8.6.1"),
        (str(Path(__file__)), "", 2, "is no ONNX file"), ("none.onnx", "", 2, "none.onnx: cannot be read"),
        (large(10), "--repros=docs", 2, "no repro here"),
    ],
)  # fmt: skip
def test_what_is_no_failure_and_what_is_a_mistake(
    model: ModelProto | str, words: str, code: int, said: str, check: Check
) -> None:
    ended, told = check(model, *words.split())
    assert (ended, said in told) == (code, True), told
