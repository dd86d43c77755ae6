"""What changes a failure, measured in real containers: an ONNX Runtime that loses attention's scale."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import images
from tests.models.conftest import CURRENT, REPOSITORY, Project
from trtmatrix.changing import measure_changes
from trtmatrix.context import Context, open_context, read_matrix
from trtmatrix.core.bundle.facts import ChangeLine
from trtmatrix.core.compare import Entry
from trtmatrix.core.model import Verdict
from trtmatrix.core.plan import Pull
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.store import read_records
from trtmatrix.own_model import open_model
from trtmatrix.perform import Options, perform
from trtmatrix.scene import look_around

WIDTH, LENGTH = 32, 20
"""The image takes 1/sqrt(32) for 1."""

BASIC, ALL = (f"graph optimization {level} (none in this case)" for level in ("basic", "all"))


def write_attention(folder: Path) -> Path:
    """Attention of a dynamic batch, its scale in the graph, and two rows of inputs."""
    random = np.random.default_rng(0)
    weights = {f"w{n}": random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4 for n in "qkv"}
    weights["scale"] = np.full(1, WIDTH**-0.5, np.float32)
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"]
    nodes += [
        helper.make_node("Mul", ["q", "scale"], ["qs"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qs", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", LENGTH, WIDTH]) for n in "xy")
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "attention", [x], [y], constants)
    file = folder / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    np.savez(folder / "inputs.npz", x=random.standard_normal((2, LENGTH, WIDTH)).astype(np.float32))
    return file


def run(folder: Path, image: str, **asked: object) -> tuple[Context, Entry]:
    """Run one case, of a user's model where one is asked for; returns its context and entry."""
    project = Project(folder, current=image)
    plain = {"inputs": folder / "inputs.npz", "profile": [], "check": None, "precision": "tf32"}
    args = argparse.Namespace(
        matrix=folder / "matrix.yaml", repros=REPOSITORY / "repros", results=project.results,
        cache=folder / "cache", trt=[CURRENT], atol=None, rtol=None, **plain, **asked,
    )  # fmt: skip
    context = open_context(args)
    context = replace(open_model(context, args) if "model" in asked else context, controls=False)
    (entry,) = perform(context, look_around(context, Pull.NEVER), Options()).entries
    return context, entry


def measure(context: Context, entry: Entry, **args: object) -> tuple[Sequence[ChangeLine], list[str]]:
    told: list[str] = []
    lines = measure_changes(context, entry, read_calibration(), argparse.Namespace(**args), told.append)
    return lines, told


@pytest.fixture(scope="module")
def defective() -> str:
    return images.make_defective()


def test_a_user_s_model_is_run_changed_and_its_lines_are_the_same_again(
    tmp_path: Path, defective: str
) -> None:
    context, entry = run(tmp_path, defective, model=write_attention(tmp_path))
    assert entry.outcome is not None
    assert entry.outcome.verdict is Verdict.FAIL
    before, told = measure(context, entry, no_changes=True)
    assert not told
    assert {line.fails for line in before if not line.why_not} == {True}, "FP32 is what it is anyway"
    first, told = measure(context, entry)
    assert len(told) == 1
    fails = {line.change: line.fails for line in first if not line.why_not}
    assert fails == dict.fromkeys(
        ["FP32 (as in this case)", BASIC, ALL, "one more output marked: p (Softmax)", "batch 3 instead of 2"],
        True,
    )
    assert {line.verdict for line in first} == {None, Verdict.FAIL}
    again, told = measure(context, entry)
    assert (again, told) == (first, [])
    assert measure(context, entry, no_changes=True) == (first, [])
    records = read_records(context.project.cache / "changes" / "results")
    batch = next(item.record for item in records if item.record.cell.case.endswith(".batch"))
    assert batch.outputs["y"]["count"] == 3 * LENGTH * WIDTH
    assert not [item for item in read_records(context.project.results) if "." in item.record.cell.case]


def test_a_case_of_the_project_is_drawn_with_a_row_more_and_named_by_its_defect(tmp_path: Path) -> None:
    context, entry = run(tmp_path, images.CURRENT, repro=["gemm-mha-v2"], case=["control-lost-mask"])
    lines = {line.change: line for line in measure(context, entry)[0]}
    assert {name for name, line in lines.items() if line.fails} == {
        BASIC, ALL, "one more output marked: /Softmax_output_0 (Softmax)", "batch 3 instead of 2",
    }  # fmt: skip
    assert all("the mask not applied" in line.reason for line in lines.values() if line.fails)
    assert {lines[name].figure for name in (BASIC, ALL)} == {entry.figure}
    assert all(line.why_not for line in lines.values() if not line.fails)


def test_where_the_image_was_removed_it_is_said(tmp_path: Path) -> None:
    context, entry = run(tmp_path, images.CURRENT, repro=["controls"], case=["wrong-scale-fp32"])
    Project(tmp_path, current="trtmatrix/none:latest")
    lines, _ = measure(replace(context, matrix=read_matrix(tmp_path / "matrix.yaml")), entry)
    assert {line.why_not for line in lines if line.change in {BASIC, ALL}} == {
        "not measured: image not built: trtmatrix/none:latest: made by hand, in no registry"
    }
