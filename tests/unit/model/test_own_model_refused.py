"""A user's model, its inputs or its profile that cannot be used: what is said, and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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
        (b"PK\x03\x04 no model", "is no ONNX file"),
        (b"\x00" * 50, "is no ONNX file"),
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
    content = path.read_bytes().replace(b"weights.bin", location.encode()[:11].ljust(11, b"_"))
    if len(location) == 11:
        path.write_bytes(content)
    else:
        import onnx

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


def odd(kind: str) -> Any:
    model = mlp()
    match kind:
        case "no nodes":
            del model.graph.node[:]
        case "no outputs":
            del model.graph.output[:]
        case "no inputs":
            del model.graph.input[:]
        case "sequence":
            inner = helper.make_tensor_type_proto(FLOAT, None)
            model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(inner))
        case "optional":
            inner = helper.make_tensor_type_proto(FLOAT, None)
            model.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(inner))
        case "string":
            model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
        case "bfloat16":
            model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
        case "size 0":
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    return model


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no nodes", "has no nodes"), ("no outputs", "has no outputs"), ("no inputs", "has no inputs"),
        ("sequence", "input x is no tensor (sequence)"), ("optional", "input x is no tensor (optional)"),
        ("string", "input x is string, which cannot be fed or compared: turn texts into numbers"),
        ("bfloat16", "cast it inside of the graph"), ("size 0", "a dimension of size 0"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_fed_are_refused(kind: str, words: str, opened: Opened, tmp_path: Path) -> None:
    assert words in refused(opened, saved(odd(kind), tmp_path / "m.onnx"))


def malformed(kind: str) -> Any:
    model = mlp()
    node = model.graph.node[0]
    match kind:
        case "no inputs":
            del node.input[:]
        case "unnamed quantizer":
            node.op_type, node.name = "DequantizeLinear", "dq"
            del node.input[:]
        case "type of an input":
            model.graph.input[0].type.tensor_type.elem_type = 99
        case "type of a weight":
            model.graph.initializer[0].data_type = 99
    return model


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no inputs", "the node 0 (MatMul) has 0 inputs and needs 2"),
        ("unnamed quantizer", "the node dq (DequantizeLinear) has 0 inputs and needs 2"),
        ("type of an input", "the tensor x has the element type 99, which ONNX does not have"),
        ("type of a weight", "the tensor w0 has the element type 99"),
    ],
)
def test_a_malformed_graph_is_refused_by_its_node(
    kind: str, words: str, opened: Opened, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(malformed(kind).SerializeToString())
    message = refused(opened, path)
    assert words in message
    assert "export it again" in message


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


def test_pickled_arrays_are_refused(opened: Opened, tmp_path: Path) -> None:
    path = npz(tmp_path / "in.npz", x=np.array([{}, None], dtype=object))
    message = refused(opened, saved(mlp(), tmp_path / "m.onnx"), "--inputs", str(path))
    assert "input x: cannot be read: it holds objects" in message


def test_a_file_of_one_array_and_a_type_that_must_be_cast_are_told_with_the_remedy(
    opened: Opened, tmp_path: Path
) -> None:
    model = saved(mlp(), tmp_path / "m.onnx")
    np.save(tmp_path / "in.npy", np.zeros((1, 64), np.float32))
    message = refused(opened, model, "--inputs", str(tmp_path / "in.npy"))
    assert (
        "is a .npy file, one array without a name; write a .npz file with np.savez('in.npz', x=…)" in message
    )
    path = npz(tmp_path / "in.npz", x=np.zeros((1, 64)))
    message = refused(opened, model, "--inputs", str(path))
    assert "the file has float64 [1, 64]; cast it: array.astype(np.float32)" in message


def test_inputs_that_are_not_there_are_told(opened: Opened, tmp_path: Path) -> None:
    model = saved(mlp(), tmp_path / "m.onnx")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    assert "no such file" in refused(opened, model, "--inputs", str(tmp_path / "nowhere"))
    assert "no .npz file is there" in refused(opened, model, "--inputs", str(tmp_path / "empty"))
    assert "is no .npz file" in refused(opened, model, "--inputs", str(tmp_path / "bad.npz"))


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
