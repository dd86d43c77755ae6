"""What can be smaller of a graph: each cut, size and number gives a model that runs, and what it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto
from onnxmodels import FLOAT, INT64, make_model, mlp, node, normal, saved, saved_outside

from trtmatrix.core.minimise import Move
from trtmatrix.onnxmodel import shrink
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.onnxmodel.shrink import Shrinker
from trtmatrix.onnxmodel.subject import CannotShrinkError, Subject, Values, read_subject, write_model

Array = NDArray[Any]
HEADS, SIZE = 3, 4
WIDTH = HEADS * SIZE


def attention() -> tuple[ModelProto, dict[str, Array]]:
    """Self-attention as torch exports it: one product for q, k and v, heads, a mask, a residual."""
    random = np.random.RandomState(3)
    weights = {
        "w": random.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32), "b": normal(3 * WIDTH),
        "split": np.array([0, 0, 3, HEADS, SIZE]), "merged": np.array([2, 5, WIDTH]),
        "scale": np.float32(SIZE**-0.5), **{f"n{i}": np.array(i) for i in range(3)},
        "out": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("MatMul", "x w", "all"), node("Add", "all b", "biased"),
        node("Reshape", "biased split", "parts"), node("Transpose", "parts", "apart", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"apart n{i}", "qkv"[i], axis=0) for i in range(3)),
        node("Mul", "q scale", "qs"), node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "qs kt", "scores"), node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "p", axis=-1), node("MatMul", "p v", "heads"),
        node("Transpose", "heads", "back", perm=[0, 2, 1, 3]), node("Reshape", "back merged", "flat"),
        node("MatMul", "flat out", "proj"), node("Add", "proj x", "y"),
    ]  # fmt: skip
    fed = {"x": normal(2, 5, WIDTH), "mask": normal(1, 1, 1, 5)}
    inputs = {name: (FLOAT, array.shape) for name, array in fed.items()}
    return make_model(nodes, inputs, {"y": (FLOAT, (2, 5, WIDTH))}, weights), fed


def convolution() -> tuple[ModelProto, dict[str, Array]]:
    """Two convolutions around a normalisation, pooling, a split and a dense layer of two outputs."""
    weights = {
        "w1": normal(6, 3, 3, 3), "b1": normal(6), "w2": normal(4, 6, 1, 1), "dense": normal(4, 7),
        "bias": normal(7), **{f"bn{i}": abs(normal(6, seed=i)) + 1 for i in range(4)},
    }  # fmt: skip
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 bn0 bn1 bn2 bn3", "n1"), node("Relu", "n1", "r1"),
        node("Conv", "r1 w2", "c2"), node("Split", "c2", "left right", axis=1),
        node("Concat", "right left", "swapped", axis=1), node("GlobalAveragePool", "swapped", "pooled"),
        node("Flatten", "pooled", "flat"), node("Gemm", "flat dense bias", "y"),
        node("ReduceMean", "r1", "features", axes=[2, 3], keepdims=0),
    ]  # fmt: skip
    fed = {"x": normal(2, 3, 8, 8)}
    outputs = {"y": (FLOAT, (2, 7)), "features": (FLOAT, (2, 6))}
    return make_model(nodes, {"x": (FLOAT, (2, 3, 8, 8))}, outputs, weights, opset=13), fed


GRAPHS = {"attention": attention, "convolution": convolution}


@pytest.fixture(params=GRAPHS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    model, fed = GRAPHS[request.param]()
    onnx.checker.check_model(model)
    return read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})


def run(subject: Subject, folder: Path) -> dict[str, Array]:
    """Check a subject as ONNX does, and run its first sample."""
    file = write_model(subject, folder / "run" / "model.onnx")
    onnx.checker.check_model(str(file), full_check=True)
    return Session(file).run(subject.samples[0])


def every_move(shrinker: Shrinker) -> Iterator[Move]:
    for axis in shrinker.axes():
        for level in axis.levels:
            yield Move(axis=axis.name, level=level)


def test_every_level_of_every_axis_gives_a_model_that_runs_and_is_another(
    subject: Subject, tmp_path: Path
) -> None:
    shrinker, made = Shrinker(subject, tmp_path), 0
    for move in every_move(shrinker):
        try:
            smaller = shrinker.make(move)
        except CannotShrinkError:
            continue
        assert run(smaller, tmp_path), move
        assert smaller.digest != subject.digest, move
        assert smaller.size.nodes <= subject.size.nodes
        made += 1
    assert made > 40
    assert (
        subject.digest == read_subject(tmp_path / "model.onnx", subject.samples, {}).digest
    )  # nobody changed it


def test_a_cut_computes_what_the_whole_model_does(subject: Subject, tmp_path: Path) -> None:
    shrinker = Shrinker(subject, tmp_path)
    inner = [n for node in subject.model.graph.node for n in node.output]
    right = Values(subject, tmp_path).of(inner)[0]
    cuts = 0
    for move in every_move(shrinker):
        if move.axis not in {shrink.OUTPUT, shrink.EARLIER, shrink.LATER, shrink.AT}:
            continue
        smaller = shrinker.make(move)
        for name, found in run(smaller, tmp_path).items():
            np.testing.assert_array_equal(found, right[name], err_msg=str(move))
        assert smaller.size.nodes < subject.size.nodes
        cuts += 1
    assert cuts >= 10


def sizes(subject: Subject) -> dict[str, int]:
    return {a.name.removeprefix(shrink.DIM): len(a.levels) for a in Shrinker(subject, Path()).axes()
            if a.name.startswith(shrink.DIM)}  # fmt: skip


def test_batch_length_heads_and_head_size_of_an_attention_are_found_and_nothing_else(tmp_path: Path) -> None:
    model, fed = attention()
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})
    assert list(sizes(subject)) == ["x[0]", "x[1]", "x[2]", "w[1] factor 2", "w[1] factor 3"]


@pytest.mark.parametrize(
    ("name", "size", "x", "w"),
    [
        ("x[0]", 1, (1, 5, WIDTH), (WIDTH, 3 * WIDTH)),
        ("x[1]", 2, (2, 2, WIDTH), (WIDTH, 3 * WIDTH)),
        ("x[2]", 4, (2, 5, 4), (4, 3 * WIDTH)),
        ("w[1] factor 2", 1, (2, 5, WIDTH), (WIDTH, 3 * SIZE)),
        ("w[1] factor 3", 2, (2, 5, WIDTH), (WIDTH, 6 * HEADS)),
    ],
)
def test_a_size_changes_in_all_that_share_it(
    name: str, size: int, x: tuple[int, ...], w: tuple[int, ...], tmp_path: Path
) -> None:
    model, fed = attention()
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})
    smaller = Shrinker(subject, tmp_path).make(Move(axis=shrink.DIM + name, level=str(size)))
    assert smaller.samples[0]["x"].shape == x
    weights = {t.name: tuple(t.dims) for t in smaller.model.graph.initializer}
    assert weights["w"] == w
    assert weights["b"] == w[1:]
    assert run(smaller, tmp_path)["y"].shape == x


def test_of_several_heads_the_first_is_computed_as_it_was(tmp_path: Path) -> None:
    """What is left of a sliced weight belongs together: q, k and v of the first head are those of before."""
    model, fed = attention()
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})
    before = Shrinker(subject, tmp_path).make(Move(axis=shrink.EARLIER, level="apart"))
    after = Shrinker(before, tmp_path).make(Move(axis=shrink.DIM + "w[1] factor 2", level="1"))
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    w = weights["w"].reshape(WIDTH, 3, HEADS, SIZE)[:, :, 0].reshape(WIDTH, 3 * SIZE)
    b = weights["b"].reshape(3, HEADS, SIZE)[:, 0].reshape(-1)
    expected = (fed["x"] @ w + b).reshape(2, 5, 3, 1, SIZE).transpose(2, 0, 3, 1, 4)
    np.testing.assert_allclose(run(after, tmp_path)["apart"], expected, rtol=1e-5)


def test_sizes_that_something_looks_at_stay(tmp_path: Path) -> None:
    """Kernels, rows of a table, what is concatenated or sliced."""
    model, fed = convolution()
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})
    found = sizes(subject)
    assert {"x[0]", "x[1]", "w1[0]"} <= set(found)
    assert not {"x[2]", "x[3]", "w1[2]"} & set(found)


def test_an_operator_that_is_not_known_keeps_all_its_sizes(tmp_path: Path) -> None:
    model = make_model([node("CumSum", "x axis", "c"), node("Relu", "c", "y")],
                       {"x": (FLOAT, (4, 6))}, {"y": (FLOAT, (4, 6))}, {"axis": np.array(0)})  # fmt: skip
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [{"x": normal(4, 6)}], {})
    assert sizes(subject) == {}


def test_integers_before_a_cut_become_constants_and_real_numbers_inputs(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"), node("Mul", "ids two", "doubled"), node("Relu", "x", "r"),
        node("Gather", "r doubled", "g", axis=0), node("Exp", "g", "y"),
    ]  # fmt: skip
    model = make_model(
        nodes, {"x": (FLOAT, (8, 3)), "ids": (INT64, (2,))}, {"y": (FLOAT, (2, 3))}, {"two": np.array(2)}
    )
    fed = {"x": normal(8, 3), "ids": np.array([1, 3])}
    subject = read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})
    smaller = Shrinker(subject, tmp_path).make(Move(axis=shrink.LATER, level="r"))
    assert smaller.inputs == ("r",)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in smaller.model.graph.initializer}
    np.testing.assert_array_equal(constants["doubled"], [2, 6])


def test_what_depends_on_no_input_is_computed_beforehand(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "rows"), node("Unsqueeze", "rows axes", "rows1"),
        node("Concat", "rows1 rest", "shape", axis=0), node("Reshape", "x shape", "y"),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = make_model(nodes, {"x": (FLOAT, ["n", 2, 3])}, {"y": (FLOAT, ["n", 6])}, weights)
    subject = read_subject(
        saved(model, tmp_path / "model.onnx"),
        [{"x": normal(4, 2, 3)}],
        {"x": ((1, 2, 3), (4, 2, 3), (8, 2, 3))},
    )
    assert shrink.FOLD not in {axis.name for axis in Shrinker(subject, tmp_path).axes()}  # n is any
    fixed = Shrinker(subject, tmp_path).make(Move(axis=shrink.STATIC, level="the sample's"))
    assert fixed.profile == {}
    folded = Shrinker(fixed, tmp_path).make(Move(axis=shrink.FOLD, level="constants"))
    assert [n.op_type for n in folded.model.graph.node] == ["Reshape"]
    assert run(folded, tmp_path)["y"].shape == (4, 6)


def test_one_sample_is_left_the_worst_first(tmp_path: Path) -> None:
    samples = [{"x": normal(2, 64, seed=seed)} for seed in range(3)]
    subject = read_subject(saved(mlp(), tmp_path / "model.onnx"), samples, {"x": ((1, 64), (2, 64), (4, 64))})
    shrinker = Shrinker(subject, tmp_path, worst=2)
    axis = next(shrinker.axes())
    assert (axis.name, axis.levels) == (shrink.SAMPLE, ("2", "0", "1"))
    left = shrinker.make(Move(axis=shrink.SAMPLE, level="2"))
    np.testing.assert_array_equal(left.samples[0]["x"], samples[2]["x"])
    assert left.profile == subject.profile


def test_numbers_are_offered_from_the_simplest_on_and_only_what_is_simpler(tmp_path: Path) -> None:
    subject = read_subject(saved(mlp(), tmp_path / "model.onnx"), [{"x": normal(2, 64)}], {})
    shrinker = Shrinker(subject, tmp_path)
    axis = next(a for a in shrinker.axes() if a.name == shrink.FED + "x")
    assert axis.levels == ("zeros", "ones", "a single one", "powers of two", "three bits")
    rounded = shrinker.make(Move(axis=axis.name, level="powers of two"))
    left = next(a for a in Shrinker(rounded, tmp_path).axes() if a.name == shrink.FED + "x")
    assert left.levels == ("zeros", "ones", "a single one")
    exact = np.abs(rounded.samples[0]["x"])
    assert np.all(np.log2(exact) == np.rint(np.log2(exact)))


def test_weights_outside_of_the_model_are_read_and_cut_away(tmp_path: Path) -> None:
    file = saved_outside(mlp(layers=3), tmp_path / "model.onnx")
    subject = read_subject(file, [{"x": normal(2, 64)}], {})
    smaller = Shrinker(subject, tmp_path).make(Move(axis=shrink.EARLIER, level="h0"))
    assert [t.name for t in smaller.model.graph.initializer] == ["w0"]
    assert run(smaller, tmp_path)["h0"].shape == (2, 64)


def test_weights_too_large_for_memory_stay_in_their_files_until_a_cut_leaves_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtmatrix.onnxmodel.subject.INLINE", 64 * 64 * 4)
    file = saved_outside(mlp(layers=3), tmp_path / "model.onnx")
    subject = read_subject(file, [{"x": normal(2, 64)}], {})
    assert set(subject.files) == {"weights.bin"}
    assert sizes(subject) == {}
    smaller = Shrinker(subject, tmp_path).make(Move(axis=shrink.EARLIER, level="m0"))
    assert smaller.files == {}
    np.testing.assert_array_equal(run(smaller, tmp_path)["m0"], Values(subject, tmp_path).of(["m0"])[0]["m0"])


def test_the_same_search_makes_the_same_bytes(subject: Subject, tmp_path: Path) -> None:
    again = read_subject(tmp_path / "model.onnx", subject.samples, {})
    first, second = Shrinker(subject, tmp_path), Shrinker(again, tmp_path)
    assert list(every_move(first)) == list(every_move(second))
    for move in list(every_move(first))[::7]:
        try:
            assert first.make(move).digest == second.make(move).digest
        except CannotShrinkError:
            continue
