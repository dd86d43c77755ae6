"""A user's models become repros: ids by content, profiles, precisions, lists, and clear words where not."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnxmodels import FLOAT, INT64, Array, make_model, mlp, node, normal, saved, saved_outside

from trtmatrix.cli import entry as cli
from trtmatrix.cli.entry import parse
from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.judge.noise import noise_troubles
from trtmatrix.model import page
from trtmatrix.model.own_model import (
    Listing,
    ModelOptions,
    find_models,
    model_repro,
    notes_of,
    open_model,
    read_about,
)
from trtmatrix.onnxmodel.computing import compute
from trtmatrix.onnxmodel.reading import read_model
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.plan import context
from trtmatrix.plan.context import Context, open_context
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.suite.keys import parse_keys
from trtprobe.files import CaseFiles

ROOT = Path(__file__).parents[3]
Opened = Callable[..., Context]
READ_MATRIX = cache(context.read_matrix)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Open a model in the project without repros, with a cache of the test's own."""
    monkeypatch.setattr(context, "read_repros", lambda _: [])
    monkeypatch.setattr(context, "read_matrix", READ_MATRIX)

    def open_it(model: ModelProto | Path | None, *words: str) -> Context:
        model = saved(model, tmp_path / "m.onnx") if isinstance(model, ModelProto) else model
        more = ["--model", str(model)] if model else []
        places = [f"--matrix={ROOT / 'matrix.yaml'}", f"--cache={tmp_path / 'cache'}"]
        options = parse(["run", *places, *more, *words])[1]
        return open_model(open_context(options.project), options.model)

    return open_it


def ids(model: Context) -> tuple[str, str]:
    repro = model_repro(model).repro
    (case,) = repro.cases
    return repro.id, case.id


class Prepared(NamedTuple):
    """A model's case as it lies on the disk."""

    module: ModuleType
    folder: Path
    files: CaseFiles
    noise: Mapping[str, Any]


def prepared(model: Context) -> Prepared:
    loaded = model_repro(model)
    folder = CaseCache(model.project.cache).prepare(loaded, loaded.repro.cases[0])
    return Prepared(loaded.module, folder, CaseFiles(folder), read_noise_file(folder))


def npz(path: Path, **arrays: Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, allow_pickle=True, **arrays)
    return path


def test_the_ids_are_of_the_content_not_of_the_path(opened: Opened, tmp_path: Path) -> None:
    one, two = (opened(saved(mlp(), tmp_path / name / "My Net.onnx")) for name in "ab")
    other = opened(saved(mlp(layers=3), tmp_path / "c" / "My Net.onnx"))
    assert ids(one) == ids(two)
    assert model_repro(one).digest == model_repro(two).digest
    assert ids(one)[0].startswith("my-net-")
    assert ids(other)[0] != ids(one)[0]


def test_other_inputs_are_another_case_and_a_tolerance_is_not(opened: Opened, tmp_path: Path) -> None:
    model, inputs = saved(mlp(), tmp_path / "m.onnx"), npz(tmp_path / "in.npz", x=normal(3, 64, seed=9))
    drawn, given, judged = opened(model), opened(model, f"--inputs={inputs}"), opened(model, "--atol", "1e-3")
    assert [a == b for a, b in zip(ids(drawn), ids(given), strict=True)] == [True, False]
    assert ids(opened(model, "--precision", "fp16"))[1].startswith("fp16-")
    (case,) = model_repro(judged).repro.cases
    assert (case.tolerance, case.limits) == ({"atol": 1e-3, "rtol": 0.0}, {"beyond": 0.0})
    assert (ids(judged), model_repro(judged).digest) == (ids(drawn), model_repro(drawn).digest)


def awkward() -> Any:
    names = ["a/b", "a:b", "a b", "A_b", "…"]
    total = [helper.make_node("Sum", names, ["out/1"]), helper.make_node("Neg", ["out/1"], ["out 1"])]
    return make_model(total, {n: (FLOAT, [2]) for n in names}, {n: (FLOAT, [2]) for n in ("out/1", "out 1")})


@pytest.mark.parametrize(
    ("dtype", "asked", "built"),
    [(np.float32, "fp32", "fp32"), (np.float32, "fp16", "fp16-flag"), (np.float16, "tf32", "fp16")],
)
def test_the_graph_has_a_precision(dtype: Any, asked: str, built: str, opened: Opened) -> None:
    opening = opened(mlp(dtype=dtype), "--precision", asked)
    (case,) = model_repro(opening).repro.cases
    assert case.precision == built
    assert any("built as it is" in text for text in read_about(opening)["troubles"]) == (dtype is np.float16)


def two_inputs() -> Any:
    nodes = [
        node("Gather", "table ids", "e"), node("Unsqueeze", "mask axes", "u"),
        node("Cast", "u", "f", to=FLOAT), node("Mul", "e f", "y"),
    ]  # fmt: skip
    weights = {"table": normal(10, 8), "axes": np.array([2], np.int64)}
    inputs = {"ids": (INT64, ["batch", "seq"]), "mask": (INT64, ["batch", "seq"])}
    return make_model(nodes, inputs, {"y": (FLOAT, ["batch", "seq", 8])}, weights)


def counting() -> Any:
    """The numbers from 0 up to an input."""
    ends = {"zero": np.array(0), "one": np.array(1)}
    return make_model([node("Range", "zero n one", "y")], {"n": (INT64, [])}, {"y": (INT64, None)}, ends)


def top_k() -> Any:
    """Values and indices of the k + 1 largest, where k is an input."""
    nodes = [node("Add", "k one", "more"), node("TopK", "x more", "values indices")]
    outputs: Any = {"values": (FLOAT, [2, None]), "indices": (INT64, [2, None])}
    weights = {"one": np.array([1], np.int64)}
    return make_model(nodes, {"x": (FLOAT, [2, 9]), "k": (INT64, [1])}, outputs, weights)


@pytest.mark.parametrize(
    ("operator", "inputs", "shape", "sets"),
    [
        ("Expand", "x n", [3], "Expand's shape"), ("Slice", "x n n", [2], "Slice's starts"),
        ("ConstantOfShape", "n", [2], "ConstantOfShape's shape"), ("Gather", "x n", [2], ""),
        ("Expand", "x n", [3, 1], ""),
    ],
)  # fmt: skip
def test_what_sets_shapes(operator: str, inputs: str, shape: list[int], sets: str, tmp_path: Path) -> None:
    given: Any = {"x": (FLOAT, [2, 9]), "n": (INT64, shape)}
    model = make_model([node(operator, inputs, "y")], given, {"y": (FLOAT, None)})
    assert [tensor.sets for tensor in read_model(saved(model, tmp_path / "m.onnx")).inputs] == ["", sets]


def test_awkward_names_become_files_of_their_own(opened: Opened) -> None:
    made = prepared(opened(awkward()))
    names = {"a_b": "a/b", "a_b-2": "a:b", "a_b-3": "a b", "A_b-4": "A_b", "tensor": "…"}
    assert names == made.module.INPUTS
    assert made.module.OUTPUTS == {"out_1": "out/1", "out_1-2": "out 1"}
    assert made.files.inputs.keys() == names.keys()
    assert np.allclose(made.files.reference["out_1"], -np.asarray(made.files.reference["out_1-2"]))


def test_a_case_has_inputs_references_and_a_floor_for_each_sample(opened: Opened, tmp_path: Path) -> None:
    for number, batch in enumerate((2, 5, 2)):
        npz(tmp_path / "in" / f"{number}.npz", x=normal(batch, 64, seed=number))
    made = prepared(opened(mlp(), "--inputs", str(tmp_path / "in")))
    assert made.module.PROFILE == {"x": ((2, 64), (2, 64), (5, 64))}
    assert set(made.files.inputs) == {"x.s0", "x.s1", "x.s2"}
    shapes = {name: array.shape for name, array in made.files.reference.items()}
    assert shapes == {"y.s0": (2, 64), "y.s1": (5, 64), "y.s2": (2, 64)}
    assert set(made.noise["outputs"]) == set(shapes)
    assert (made.noise["precision"], made.noise["reference"]["precision"]) == ("tf32", "float64")
    assert 0 < made.noise["reference"]["own_error"]["y"] < 1e-6


def test_weights_beside_a_model_come_along(opened: Opened, tmp_path: Path) -> None:
    made = prepared(opened(saved_outside(mlp(), tmp_path / "m.onnx", "weights.bin")))
    assert (made.folder / "weights.bin").read_bytes() == (tmp_path / "weights.bin").read_bytes()
    assert (tmp_path / "weights.bin").stat().st_nlink == 1  # the user's file is nobody's link
    assert (made.folder / "model.onnx").stat().st_size < 2000
    assert (made.folder / "reference" / "y.npy").exists()


def test_symbols_that_inputs_share_are_drawn_alike(opened: Opened) -> None:
    made = prepared(opening := opened(two_inputs(), "--profile", "ids=1x2:4x6:8x12"))
    assert made.module.PROFILE["mask"] == ((1, 2), (4, 6), (8, 12))
    inputs = made.files.inputs
    assert [inputs[name].shape for name in ("ids.s0", "mask.s0", "ids.s2")] == [(4, 6), (4, 6), (8, 12)]
    assert 4 < inputs["ids.s2"].max() < 10
    assert np.all(inputs["mask.s2"] == 1)
    assert any("drawn with seed 0" in note for note in notes_of(opening))


def test_a_model_that_the_host_cannot_compute_is_still_run(opened: Opened) -> None:
    strange = helper.make_node("Strange", ["x"], ["y"], domain="my.own\x1b")
    model = make_model([strange], {"x": (FLOAT, [4])}, {"y": (FLOAT, [4])}, domains=["my.own\x1b"])
    made = prepared(opening := opened(model))
    assert not made.files.reference
    assert "Strange" in made.noise["reference"]["why_not"]
    assert any("my.own ::Strange" in text for text in read_about(opening)["troubles"])


@pytest.mark.parametrize("words", [("--inputs", "in"), ("--profile", "k=1:3:3")])
def test_what_sets_a_shape_takes_its_values_from_the_samples_or_the_profile(
    words: tuple[str, str], opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, k in enumerate((3, 1, 3)):
        npz(tmp_path / "in" / f"{number}.npz", x=normal(2, 9), k=np.array([k], np.int64))
    monkeypatch.chdir(tmp_path)
    made = prepared(opening := opened(top_k(), *words))
    assert made.module.PROFILE == {"k": ((1,), (3,), (3,))}
    assert "k int64 [1] (TopK's k)" in dict(read_about(opening)["facts"])["inputs"]
    assert [made.files.reference[f"values.s{n}"].shape for n in range(2)] == [(2, 4), (2, 2)]


@pytest.mark.parametrize(("value", "silent"), [(np.nan, True), (1.0, False)])
def test_zeros_and_nan_give_no_floor(opened: Opened, tmp_path: Path, value: float, silent: bool) -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])})
    inputs = npz(tmp_path / "x.npz", x=np.full((2, 3), value, np.float32))
    noise = prepared(opened(model, "--inputs", str(inputs))).noise
    assert (noise["reference"]["silent"] == ["y"]) is silent
    assert ("y" in noise["outputs"]) is not silent


@pytest.mark.parametrize(
    ("versions", "by"),
    [("onnxruntime,tensorrt-rtx", "onnx.reference"), ("10.7.0,onnxruntime", "ONNX Runtime")],
)
def test_onnx_runtime_is_not_judged_by_itself(versions: str, by: str, opened: Opened) -> None:
    told = prepared(opened(mlp(), f"--trt={versions}")).noise
    assert told["reference"]["by"].startswith(by)
    assert told["reference"]["instead"] == ""


@pytest.mark.parametrize(
    ("model", "versions", "counts"),
    [
        (mlp(), "onnxruntime", True), (mlp(), "10.7.0,onnxruntime", False),
        (make_model([node("LRN", "x", "y", size=3)], {"x": (FLOAT, [1, 4, 2, 2])}, {"y": (FLOAT, None)}),
         "10.7.0", True),
    ],
    ids=["onnxruntime", "tensorrt", "lrn"],
)  # fmt: skip
def test_a_correction_of_the_evaluator_counts_where_it_changes_the_reference(
    model: ModelProto, versions: str, counts: bool, opened: Opened
) -> None:
    params = model_repro(opened(model, f"--trt={versions}")).repro.cases[0].params
    assert ("reference" in params) is counts


def fused() -> Any:
    made = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)
    inputs, outputs = {"x": (FLOAT, [4, 4])}, {"y": (FLOAT, [4, 4])}
    return make_model([made], inputs, outputs, domains=["com.microsoft"])


def looped() -> Any:
    """A loop whose body gives scalars: ONNX's evaluator makes [n, 1] of them, and the graph says [n]."""
    kinds = {"i": INT64, "c": TensorProto.BOOL, "out": TensorProto.BOOL, "one": FLOAT}
    info = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()}
    nodes = [node("Identity", "c", "out"), node("Cast", "i", "f", to=FLOAT), node("Add", "f s", "one")]
    body = helper.make_graph(nodes, "body", [info["i"], info["c"]], [info["out"], info["one"]])
    loop = helper.make_node("Loop", ["count", "go"], ["y"], body=body)
    weights = {"count": np.array(3, np.int64), "go": np.array(True)}
    return make_model([loop], {"s": (FLOAT, [])}, {"y": (FLOAT, [3])}, weights)


@pytest.mark.parametrize(
    ("model", "why"),
    [(fused(), "FusedMatMul"), (looped(), "it gives y the shape [3, 1], and the graph says [3]")],
    ids=["unknown operator", "wrong shape"],
)
def test_where_the_evaluator_cannot_another_does(model: Any, why: str, opened: Opened) -> None:
    told = prepared(opened(model, "--trt=onnxruntime")).noise
    assert told["reference"]["by"].startswith("ONNX Runtime")
    assert why in told["reference"]["instead"]
    assert any("the reference is no independent one" in text for text in noise_troubles(told))


@pytest.mark.parametrize(("off", "counts"), [(1e-6, True), (1e-4, False)])
def test_a_plainer_sum_raises_the_floor_and_an_error_of_onnx_runtime_does_not(
    off: float, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no model shows on demand: the float32 of ONNX Runtime is made to be off."""
    run = Session.run

    def off_by(self: Session, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {name: y * np.float32(1 + off) for name, y in run(self, feeds).items()}

    monkeypatch.setattr(Session, "run", off_by)
    model = make_model([node("Tanh", "x", "y")], {"x": (FLOAT, [2, 64])}, {"y": (FLOAT, [2, 64])})
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": normal(2, 64)}], "fp32", independent=True)
    assert computed.by.startswith("onnx.reference")
    seen = computed.errors[0]["y"].get("fp32-runtime")
    assert seen == (pytest.approx(off, rel=0.5) if counts else None)


@pytest.mark.parametrize(
    ("y", "r", "off"), [(1.05, 1, 0), (2, 1, 1), (1, np.inf, 1), (np.inf, np.inf, 0), (np.nan, np.nan, 1)]
)
def test_a_tolerance_forgives_no_infinity(y: float, r: float, off: int) -> None:
    assert page.beyond(np.array([y]), np.array([r]), {"atol": 0.1, "rtol": 0.1}) == off


# A user's model, its inputs or its profile that cannot be used: what is said, and exit code 2.
def refused(opened: Opened, model: ModelProto | Path | None, *words: str) -> str:
    with pytest.raises(UsageError) as caught:
        opened(model, *words)
    assert caught.value.exit_code == 2
    return str(caught.value)


CONTENTS = {
    "is no ONNX file": b"", "truncated": mlp().SerializeToString()[:-100], "cannot be read": None,
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
}  # fmt: skip


@pytest.mark.parametrize("words", CONTENTS)
def test_no_onnx_is_refused(words: str, opened: Opened, tmp_path: Path) -> None:
    if (content := CONTENTS[words]) is not None:
        (tmp_path / "m.onnx").write_bytes(content)
    assert words in refused(opened, tmp_path / "m.onnx")


def test_weights_that_are_not_there_are_named(opened: Opened, tmp_path: Path) -> None:
    path, weights = saved_outside(mlp(), tmp_path / "in" / "m.onnx"), tmp_path / "in" / "weights.bin"
    weights.rename(tmp_path / "secret.bin")
    assert "'weights.bin', which is not there" in refused(opened, path)
    weights.symlink_to(tmp_path / "secret.bin")
    assert "a link out of the model's folder" in refused(opened, path)
    weights.unlink()
    weights.write_bytes(b"\0" * 100)
    assert "it is truncated" in refused(opened, path)


@pytest.mark.parametrize("location", ["/etc/passwd", "sub/../../w.bin", "inputs/w.bin", "case.json"])
def test_weights_outside_of_the_folder_are_refused(location: str, opened: Opened, tmp_path: Path) -> None:
    path = saved_outside(mlp(), tmp_path / "in" / "m.onnx", "weights.bin")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    assert "save it again" in refused(opened, path)


def made_of(kind: int) -> Callable[[Any], object]:
    """What gives a model's input another type; of other types and sizes: tests/models/test_published.py."""
    return lambda model: model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(kind, [4]))


ODD: dict[str, Callable[[Any], object]] = {
    "has no inputs": lambda model: model.graph.ClearField("input"),
    "cast it inside of the graph": made_of(TensorProto.BFLOAT16),
    "the node 0 (MatMul) has 0 inputs and needs 2: export it again":
        lambda model: model.graph.node[0].ClearField("input"),
    "the tensor x has the element type 99, which ONNX does not have": made_of(99),
    "the tensor w0 has the element type 99":
        lambda model: setattr(model.graph.initializer[0], "data_type", 99),
    "it has a name that is no text in UTF-8":
        lambda model: model.graph.node[0].MergeFromString(b"\x22\x01\xff"),  # its op_type
    "its nodes wait for each other: MatMul":
        lambda model: model.graph.node[0].input.append(model.graph.node[-1].output[0]),
    "two of its nodes give a tensor of the same name":
        lambda model: model.graph.node[0].output.append(model.graph.node[-1].output[0]),
    "it has the opset -1, which ONNX does not have":
        lambda model: setattr(model.opset_import[0], "version", -1),
}  # fmt: skip


@pytest.mark.parametrize("words", ODD)
def test_graphs_that_cannot_be_fed_are_refused(words: str, opened: Opened, tmp_path: Path) -> None:
    model = mlp()
    ODD[words](model)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert words in refused(opened, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("model", "profile", "words"),
    [
        (two_inputs(), "ids", "expected INPUT=MIN:OPT:MAX"), (two_inputs(), "ids=2x3:1x3:4x3", "growing"),
        (two_inputs(), "ids=1:1x2:3", "of one rank"),
        (counting(), "n=", "n is int64 [] (Range's limit)"),
        (counting(), "n=1x2", "n is int64 [] (Range's limit)"),
        (two_inputs(), "ids=0x3", "at least 1"), (two_inputs(), "ids=-1x3", "at least 1"),
        (two_inputs(), f"ids={'9' * 9}x{'9' * 12}", "can be made"),
        (two_inputs(), "idz=1x2", "its inputs are ids, mask"),
        (two_inputs(), "ids=1x2x3", "ids is int64 [batch, seq]"),
        (top_k(), "k=1x2", "--profile k=1x2: k is int64 [1] (TopK's k)"),
        (top_k(), "", "(TopK's k)\n  name them: --profile k=MIN:OPT:MAX (least, usual, largest values)"),
    ],
)  # fmt: skip
def test_profiles_that_do_not_fit_are_refused(model: Any, profile: str, words: str, opened: Opened) -> None:
    given = ("--profile", profile) if profile else ()
    assert words in refused(opened, model, *given)


def test_samples_of_several_ranks_are_refused(opened: Opened, tmp_path: Path) -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (FLOAT, [])}, {"y": (FLOAT, None)})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    for rank in (1, 2):
        npz(tmp_path / "in" / f"{rank}.npz", x=np.ones((1,) * rank, np.float32))
    words = refused(opened, model, "--inputs", str(tmp_path / "in"))
    assert "different numbers of dimensions in x" in words


def test_a_profile_must_hold_the_samples(opened: Opened, tmp_path: Path) -> None:
    path = npz(tmp_path / "in.npz", **dict.fromkeys(("ids", "mask"), np.zeros((9, 3), np.int64)))
    words = refused(opened, two_inputs(), "--inputs", str(path), "--profile", "ids=1x2:4x6:8x12")
    assert "sample 0 of --inputs has [9, 3], which is outside" in words


def test_every_array_that_does_not_fit_is_told_at_once(opened: Opened, tmp_path: Path) -> None:
    npz(tmp_path / "in" / "0.npz", ids=np.zeros((1, 64), np.float32), maks=np.zeros((1, 64), np.int64))
    npz(tmp_path / "in" / "1.npz", ids=np.zeros((2, 3), np.int64), mask=np.zeros((2, 4), np.int64))
    message = refused(opened, two_inputs(), "--inputs", str(tmp_path / "in"))
    assert "0.npz: input ids: graph wants int64 [batch, seq], the file has float32 [1, 64]" in message
    assert "input mask is missing: the graph wants int64 [batch, seq]" in message
    assert "maks is no input of the graph; perhaps you meant mask" in message
    assert "1.npz: seq is 3 in input ids, and 4 in input mask" in message


INPUTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the file has float64 [1, 64]; cast it: array.astype(np.float32)":
        ("in.npz", lambda file: npz(file, x=np.zeros((1, 64)))),
    "No such file": ("in.npz", str), "no .npz file is there": ("in", lambda folder: folder.mkdir()),
    "; write one with np.savez('in.npz', x=…)":
        ("in.npy", lambda file: np.save(file, np.zeros((1, 64), np.float32))),
}  # fmt: skip


@pytest.mark.parametrize("words", INPUTS)
def test_inputs_that_cannot_be_fed_are_told_with_a_remedy(words: str, opened: Opened, tmp_path: Path) -> None:
    name, write = INPUTS[words]
    write(tmp_path / name)
    assert words in refused(opened, mlp(), "--inputs", str(tmp_path / name))


# Several models of one's own: models.yaml with its mistakes, folders, files, and what they share.
DOCS = Path(__file__).parents[3] / "docs"
USUAL = ModelOptions(precision="fp16", check=Path("usual.py"), limit=1.1)
GOOD = """\
schema: 1
models:
  - file: a.onnx
  - {name: b, file: deep/b.onnx, inputs: deep/samples, precision: fp32, atol: 0.1, check: accept.py,
     max_slowdown: 1.5, max_build_slowdown: 3, tags: [nightly], profile: {ids: "1x16:4x128:8x512"}}
  - {file: c.onnx, performance: false, tags: [nightly, slow]}
"""
BROKEN = """\
schema: 1
models:
  - {name: a, fil: a.onnx}
  - {file: b.onnx, precision: fp8, max_slowdown: 0.9}
  - {file: c.onnx, profile: {k: 1:3:5}, tags: nightly}
"""


def names(folder: Path, *places: Path, tags: tuple[str, ...] = ()) -> list[str]:
    return [one.name for one in find_models(places or [folder], USUAL, tags)]


def test_what_a_list_does_not_say_the_command_line_says(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(GOOD)
    a, b, c = find_models([tmp_path], USUAL)
    assert (a.name, a.model, a.inputs) == ("a", tmp_path / "a.onnx", None)
    assert (a.precision, a.check, a.limit) == ("fp16", Path("usual.py"), 1.1)
    assert (b.model, b.inputs) == (tmp_path / "deep/b.onnx", tmp_path / "deep/samples")
    assert (b.precision, b.atol, b.rtol) == ("fp32", 0.1, None)
    assert (b.check, b.limit, b.build_limit) == (tmp_path / "accept.py", 1.5, 3)
    assert b.profile == ("ids=1x16:4x128:8x512",)
    assert c.limit == 0, "its performance is left out"
    assert names(tmp_path, tags=("slow",)) == ["c"]
    with pytest.raises(UsageError, match="no model has it; tags are: nightly, slow"):
        names(tmp_path, tags=("weekly",))


def test_all_mistakes_are_told_at_once_with_line_and_suggestion() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_keys(Listing, BROKEN, "models.yaml")
    told = str(raised.value)
    for line, words in (
        (3, "unknown key; perhaps you meant 'file'"), (3, "is missing: write file here"),
        (4, "must be 'tf32', 'fp32' or 'fp16' (found 'fp8')"), (4, "greater than or equal to 1"),
        (5, '1:3:5 without quotes is no text to YAML but 3785: write "1:3:5"'), (5, "must be a valid list"),
    ):  # fmt: skip
        found = [row for row in told.splitlines() if row.startswith(f"models.yaml:{line}:")]
        assert any(words in row for row in found), words


def test_a_folder_has_files_or_a_folder_for_each_model_with_inputs_beside(tmp_path: Path) -> None:
    (tmp_path / "vit" / "inputs").mkdir(parents=True)
    for file in ("plain.onnx", "fed.onnx", "vit/model.onnx"):
        (tmp_path / file).touch()
    for file in ("fed.npz", "vit/inputs/0.npz"):
        np.savez(tmp_path / file, x=np.zeros(1))
    found = {one.name: one.inputs for one in find_models([tmp_path], USUAL)}
    assert found == {"plain": None, "fed": tmp_path / "fed.npz", "vit": tmp_path / "vit" / "inputs"}
    assert names(tmp_path, tmp_path / "plain.onnx", tmp_path / "vit" / "model.onnx") == ["plain", "vit"]
    with pytest.raises(UsageError, match="plain stands twice"):
        names(tmp_path, tmp_path, tmp_path / "plain.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no model is there: put NAME\.onnx"):
        names(tmp_path / "empty")


def test_the_schema_is_the_one_that_the_code_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema", "--models"]) == 0
    shipped = (DOCS / "models.schema.json").read_text()
    assert capsys.readouterr().out == shipped, "python -m trtmatrix schema --models > docs/models.schema.json"
    jsonschema.Draft202012Validator.check_schema(json.loads(shipped))


def test_there_is_one_model_and_of_several_each_says_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--model", "a.onnx", "--model", "b.onnx"]) == 2
    assert "--model b.onnx: one model at a time" in capsys.readouterr().err
    words = ["upgrade", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4", "--models", "b.onnx"]
    assert cli.run([*words, "--inputs", "x.npz"]) == 2
    told = capsys.readouterr().err
    assert (
        "--inputs is about one model: name it by --model FILE.onnx; of several, models.yaml says it" in told
    )
    assert "--models b.onnx: there is no such file" in told


def test_the_list_in_the_documents_can_be_read() -> None:
    block = (DOCS / "upgrade.md").read_text().partition("schema: 1\nmodels:")[2].partition("```")[0]
    listing = parse_keys(Listing, f"schema: 1\nmodels:{block}", "models.yaml")
    assert [one.name or one.file for one in listing.models] == ["vit.onnx", "encoder", "detector.onnx"]
