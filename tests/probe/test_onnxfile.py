"""What the probe reads of an ONNX file without onnx, compared with what onnx wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.probe.graphs import add_weights, relu_then
from tests.probe.jobs import PROBE
from trtprobe import ends
from trtprobe.onnxfile import IN_MEMORY, NOTHING, Model, Node, read_onnx


def write(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_opsets_and_nodes_are_read(tmp_path: Path) -> None:
    found = read_onnx(write(tmp_path, relu_then("Mine", opset=23, domain="com.example")))
    assert found.opsets == {"": 23, "com.example": 1}
    assert (found.opset, found.ir, found.external) == (23, 8, ())
    assert found.nodes == (Node("/net/first", "Relu", ""), Node("/net/second", "Mine", "com.example"))


def test_weights_beside_the_model_are_found_wherever_they_hang(tmp_path: Path) -> None:
    def outside(name: str, file: str) -> TensorProto:
        tensor = numpy_helper.from_array(np.zeros(4, np.float32), name)
        onnx.external_data_helper.set_external_data(tensor, location=file, length=16)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        return tensor

    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, (4,))
    inner = helper.make_graph([], "inner", [], [out], [outside("o", "inner.bin")])
    constant = helper.make_node("Constant", [], ["c"], value=outside("c", "sub/constant.bin"))
    branch = helper.make_node("If", ["q"], ["y"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph(
        [constant, branch], "g", [], [out], [outside("w", "w.bin"), outside("v", "w.bin")]
    )
    found = read_onnx(write(tmp_path, helper.make_model(graph)))
    assert sorted(found.external) == ["inner.bin", "sub/constant.bin", "w.bin"]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 100, b'{"inputs": {}}', b"\x08", b"\n\xff\xff\xff\xff\x0f"]
)
def test_what_is_no_onnx_is_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert read_onnx(tmp_path / "x") == NOTHING
    assert read_onnx(tmp_path / "nowhere") == NOTHING


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_file_never_raises(
    cut: int, at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(relu_then("Mine", domain="com.example").SerializeToString())
    content[at % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(bytes(content[: len(content) - cut % len(content)]))
    read_onnx(path)


def test_a_model_without_its_weights_says_which(tmp_path: Path) -> None:
    path = add_weights(tmp_path)
    Model(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(
        ends.BuildFailed, match=r"the model's weights are in weights.bin, which is not beside it"
    ):
        Model(path)
    with pytest.raises(ends.BuildFailed, match=r"there is no model other.onnx"):
        Model(tmp_path / "other.onnx")


def test_the_key_follows_the_weights_without_reading_them(tmp_path: Path) -> None:
    path, weights = add_weights(tmp_path), tmp_path / "weights.bin"
    first = Model(path).key()
    assert Model(path).key() == first
    weights.write_bytes(weights.read_bytes()[::-1])
    os.utime(weights, ns=(1, 1))
    assert Model(path).key() != first, "nothing tells its content: the time does"
    keys = set()
    for told in ({"weights.bin": "a"}, {"weights.bin": "b"}, {}):
        (tmp_path / "case.json").write_text(json.dumps({"content": "c", "external": told}))
        os.utime(weights, ns=(2, 2))
        keys.add(Model(path).key())
        os.utime(weights, ns=(3, 3))
        keys.add(Model(path).key())
    assert len(keys) == 3, "what case.json tells counts, the time no longer"
    os.truncate(weights, 100)
    assert Model(path).key() not in keys


READ = """
import resource, sys
from pathlib import Path
from trtprobe.onnxfile import Model
model = Model(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert model.must_stay_a_file and model.onnx.opset == 17
print(len(model.key()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_three_gigabytes_are_not_read_into_python(version: str, python: Path, tmp_path: Path) -> None:
    """The file is sparse: it takes no room, and reading it would show in the process's size."""
    path = add_weights(tmp_path)
    (tmp_path / "case.json").write_text(json.dumps({"params": {}, "content": "c"}))
    os.truncate(tmp_path / "weights.bin", 3 << 30)
    done = subprocess.run(
        [python, "-c", READ, str(path)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(PROBE.parent)}, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    length, kilobytes = map(int, done.stdout.split())
    assert length == 64
    assert kilobytes < 64 << 10, version


def test_a_large_model_stays_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, relu_then())
    assert not Model(path).must_stay_a_file
    os.truncate(path, IN_MEMORY + 1)
    assert Model(path).must_stay_a_file
