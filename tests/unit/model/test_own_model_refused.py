"""A user's model, its inputs or its profile that cannot be used: what is said, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        (b"", "is no ONNX file"), (mlp().SerializeToString()[:-100], "truncated"), (None, "cannot be read"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
    ids=["empty", "truncated", "nowhere", "a pointer"],
)  # fmt: skip
def test_what_is_no_onnx_is_refused(
    content: bytes | None, words: str, opened: Opened, tmp_path: Path
) -> None:
    if content is not None:
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


def made_of(kind: int = FLOAT, shape: Sequence[int] | None = (4,), **fields: Any) -> Callable[[Any], object]:
    """What gives a model's input another type."""
    tensor = helper.make_tensor_type_proto(kind, shape)
    other = helper.make_sequence_type_proto(tensor) if fields else tensor
    return lambda model: model.graph.input[0].type.CopyFrom(other)


ODD: dict[str, Callable[[Any], object]] = {
    "has no inputs": lambda model: model.graph.ClearField("input"),
    "input x is no tensor (sequence)": made_of(sequence=True),
    "input x is string, which cannot be fed or compared: turn texts into": made_of(TensorProto.STRING),
    "cast it inside of the graph": made_of(TensorProto.BFLOAT16),
    "a dimension of size 0": made_of(shape=(0, 64)),
    "the node 0 (MatMul) has 0 inputs and needs 2: export it again":
        lambda model: model.graph.node[0].ClearField("input"),
    "the tensor x has the element type 99, which ONNX does not have": made_of(99),
    "the tensor w0 has the element type 99":
        lambda model: setattr(model.graph.initializer[0], "data_type", 99),
}  # fmt: skip


@pytest.mark.parametrize("words", ODD)
def test_graphs_that_cannot_be_fed_are_refused(words: str, opened: Opened, tmp_path: Path) -> None:
    model = mlp()
    ODD[words](model)
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
    path = npz(tmp_path / "in.npz", **dict.fromkeys(("ids", "mask"), np.zeros((9, 3), np.int64)))
    model, given = saved(two_inputs(), tmp_path / "m.onnx"), ("--inputs", str(path))
    words = refused(opened, model, *given, "--profile", "ids=1x2:4x6:8x12")
    assert "sample 0 of --inputs has [9, 3], which is outside" in words


def test_every_array_that_does_not_fit_is_told_at_once(opened: Opened, tmp_path: Path) -> None:
    npz(tmp_path / "in" / "0.npz", ids=np.zeros((1, 64), np.float32), maks=np.zeros((1, 64), np.int64))
    npz(tmp_path / "in" / "1.npz", ids=np.zeros((2, 3), np.int64), mask=np.zeros((2, 4), np.int64))
    message = refused(opened, saved(two_inputs(), tmp_path / "m.onnx"), "--inputs", str(tmp_path / "in"))
    assert "0.npz: input ids: graph wants int64 [batch, seq], the file has float32 [1, 64]" in message
    assert "input mask is missing: the graph wants int64 [batch, seq]" in message
    assert "maks is no input of the graph; perhaps you meant mask" in message
    assert "1.npz: seq is 3 in input ids, and 4 in input mask" in message


INPUTS: dict[str, Callable[[Path], object]] = {
    "input x: cannot be read: it holds objects": lambda file: npz(file, x=np.array([{}, None], dtype=object)),
    "the file has float64 [1, 64]; cast it: array.astype(np.float32)":
        lambda file: npz(file, x=np.zeros((1, 64))),
    "no such file": str,
    "no .npz file is there": lambda file: file.mkdir(),
    "is no .npz file": lambda file: file.write_bytes(b"no zip"),
}  # fmt: skip


@pytest.mark.parametrize("words", INPUTS)
def test_inputs_that_cannot_be_fed_are_told_with_the_remedy(
    words: str, opened: Opened, tmp_path: Path
) -> None:
    INPUTS[words](tmp_path / "in.npz")
    model = saved(mlp(), tmp_path / "m.onnx")
    assert words in refused(opened, model, "--inputs", str(tmp_path / "in.npz"))


def test_a_file_of_one_array_is_told_how_to_write_another(opened: Opened, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 64), np.float32))
    words = refused(opened, saved(mlp(), tmp_path / "m.onnx"), "--inputs", str(tmp_path / "in.npy"))
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
