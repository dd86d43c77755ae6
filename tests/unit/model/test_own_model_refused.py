"""A user's model, its inputs or its profile that cannot be used: what is said, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model.test_own_model import Opened, npz, opened, top_k, two_inputs
from onnx import TensorProto, helper
from onnxmodels import FLOAT, mlp, saved, saved_outside

from trtmatrix.common.errors import UsageError

__all__ = ["opened"]


def refused(opened: Opened, model: Path | None, *words: str) -> str:
    with pytest.raises(UsageError) as caught:
        opened(model, *words)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no ONNX file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_what_is_no_onnx_is_refused(content: bytes, words: str, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert words in refused(opened, tmp_path / "m.onnx")


def test_a_truncated_model_is_refused(opened: Opened, tmp_path: Path) -> None:
    path = saved(mlp(), tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:-100])
    assert "truncated" in refused(opened, path)
    assert "cannot be read" in refused(opened, tmp_path / "nowhere.onnx")


def test_weights_that_are_not_there_are_named(opened: Opened, tmp_path: Path) -> None:
    path = saved_outside(mlp(), tmp_path / "m.onnx", "weights.bin")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    assert "it is truncated" in refused(opened, path)
    (tmp_path / "weights.bin").unlink()
    message = refused(opened, path)
    assert "'weights.bin', which is not there" in message


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../w.bin", "sub/../../w.bin", "inputs/w.bin", "case.json"]
)
def test_weights_outside_of_the_folder_are_refused(location: str, opened: Opened, tmp_path: Path) -> None:
    path = saved_outside(mlp(), tmp_path / "in" / "m.onnx", "weights.bin")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    assert "save it again" in refused(opened, path)


def test_a_link_out_of_the_folder_is_refused(opened: Opened, tmp_path: Path) -> None:
    path = saved_outside(mlp(), tmp_path / "in" / "m.onnx", "weights.bin")
    (tmp_path / "in" / "weights.bin").rename(tmp_path / "secret.bin")
    (tmp_path / "in" / "weights.bin").symlink_to(tmp_path / "secret.bin")
    assert "a link out of the model's folder" in refused(opened, path)


def input_of(model: Any) -> Any:
    return model.graph.input[0].type


TENSOR = helper.make_tensor_type_proto(FLOAT, None)
ODD: dict[str, tuple[Callable[[Any], object], str]] = {
    "no inputs": (lambda m: m.graph.ClearField("input"), "has no inputs"),
    "sequence": (
        lambda m: input_of(m).CopyFrom(helper.make_sequence_type_proto(TENSOR)),
        "input x is no tensor (sequence)",
    ),
    "string": (
        lambda m: setattr(input_of(m).tensor_type, "elem_type", TensorProto.STRING),
        "input x is string, which cannot be fed or compared: turn texts into numbers",
    ),
    "bfloat16": (
        lambda m: setattr(input_of(m).tensor_type, "elem_type", TensorProto.BFLOAT16),
        "cast it inside of the graph",
    ),
    "size 0": (
        lambda m: setattr(input_of(m).tensor_type.shape.dim[0], "dim_value", 0),
        "a dimension of size 0",
    ),
    "a node without inputs": (
        lambda m: m.graph.node[0].ClearField("input"),
        "the node 0 (MatMul) has 0 inputs and needs 2: export it again",
    ),
    "type of an input": (
        lambda m: setattr(input_of(m).tensor_type, "elem_type", 99),
        "the tensor x has the element type 99, which ONNX does not have",
    ),
    "type of a weight": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 99),
        "the tensor w0 has the element type 99",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_graphs_that_cannot_be_fed_are_refused(name: str, opened: Opened, tmp_path: Path) -> None:
    change, words = ODD[name]
    model = mlp()
    change(model)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert words in refused(opened, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ids", "expected INPUT=MIN:OPT:MAX"), ("ids=2x3:1x3:4x3", "must grow"),
        ("ids=1:1x2:3", "different ranks"),
        ("idz=1x2", "its inputs are ids, mask"), ("ids=1x2x3", "ids is int64 [batch, seq]"),
    ],
)  # fmt: skip
def test_profiles_that_do_not_fit_are_refused(text: str, words: str, opened: Opened, tmp_path: Path) -> None:
    assert words in refused(opened, saved(two_inputs(), tmp_path / "m.onnx"), "--profile", text)


def test_a_profile_must_hold_the_samples(opened: Opened, tmp_path: Path) -> None:
    path = npz(tmp_path / "in.npz", ids=np.zeros((9, 3), np.int64), mask=np.zeros((9, 3), np.int64))
    model = saved(two_inputs(), tmp_path / "m.onnx")
    words = refused(opened, model, "--inputs", str(path), "--profile", "ids=1x2:4x6:8x12")
    assert "sample 0 of --inputs has [9, 3], which is outside" in words


def test_every_array_that_does_not_fit_is_told_at_once(opened: Opened, tmp_path: Path) -> None:
    npz(tmp_path / "in" / "0.npz", ids=np.zeros((1, 64), np.float32), maks=np.zeros((1, 64), np.int64))
    npz(tmp_path / "in" / "1.npz", ids=np.zeros((2, 3), np.int64), mask=np.zeros((2, 4), np.int64))
    message = refused(opened, saved(two_inputs(), tmp_path / "m.onnx"), "--inputs", str(tmp_path / "in"))
    assert "0.npz: input ids: graph wants int64 [batch, seq], the file has float32 [1, 64]" in message
    assert "input mask is missing: the graph wants int64 [batch, seq]" in message
    assert "maks is no input of the graph; perhaps you meant mask" in message
    assert "1.npz: seq is 3 in input ids, and 4 in input mask" in message


INPUTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickled": (
        lambda file: npz(file, x=np.array([{}, None], dtype=object)),
        "input x: cannot be read: it holds objects",
    ),
    "to be cast": (
        lambda file: npz(file, x=np.zeros((1, 64))),
        "the file has float64 [1, 64]; cast it: array.astype(np.float32)",
    ),
    "nowhere": (str, "no such file"),
    "an empty folder": (lambda file: file.mkdir(), "no .npz file is there"),
    "no zip": (lambda file: file.write_bytes(b"no zip"), "is no .npz file"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_cannot_be_fed_are_told_with_the_remedy(
    name: str, opened: Opened, tmp_path: Path
) -> None:
    write, words = INPUTS[name]
    write(tmp_path / "in.npz")
    model = saved(mlp(), tmp_path / "m.onnx")
    assert words in refused(opened, model, "--inputs", str(tmp_path / "in.npz"))


def test_a_file_of_one_array_is_told_how_to_write_another(opened: Opened, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 64), np.float32))
    model = saved(mlp(), tmp_path / "m.onnx")
    words = refused(opened, model, "--inputs", str(tmp_path / "in.npy"))
    assert "is a .npy file, one array without a name; write a .npz file with np.savez('in.npz', x=…)" in words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "k is int64 [1] (TopK's k)\n  name them: --profile k=1:…:… (least, usual, largest values)"),
        (("--profile", "k=1x2"), "--profile k=1x2: k is int64 [1] (TopK's k)"),
    ],
)
def test_what_sets_a_shape_wants_values(
    words: tuple[str, ...], message: str, opened: Opened, tmp_path: Path
) -> None:
    assert message in refused(opened, saved(top_k(), tmp_path / "m.onnx"), *words)
