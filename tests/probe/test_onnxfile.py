"""The probe reads ONNX files without onnx: damaged ones, large ones, and ones with weights beside them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.probe.graphs import add_weights, relu_then
from tests.probe.jobs import PROBE
from trtprobe import ends
from trtprobe.onnxfile import Model, OnnxFile, read_onnx

MINE = relu_then("Mine", opset=23, domain="com.example").SerializeToString()


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_damage_never_raises(cut: int, at: int, byte: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray(MINE)
    content[at % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(bytes(content[: len(content) - cut % len(content)]))
    read_onnx(path)
    path.write_bytes(b"")
    assert read_onnx(path) == OnnxFile({}, ())


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
        for time in (2, 3):
            os.utime(weights, ns=(time, time))
            keys.add(Model(path).key())
    assert len(keys) == 3, "what case.json tells counts, the time no longer"
    os.truncate(weights, 100)
    assert Model(path).key() not in keys
    with pytest.raises(ends.BuildFailed, match=r"there is no model other.onnx"):
        Model(tmp_path / "other.onnx")


READ = """
import resource, sys
from pathlib import Path
from trtprobe.onnxfile import Model
model = Model(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert model.must_stay_a_file and model.onnx.opsets == {"": 17}
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
