"""Nodes that are not what their operators say, and tensors of no elements: their sizes stay, nothing ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto
from onnxmodels import FLOAT, make_model, node, normal, saved

from trtmatrix.onnxmodel.atoms import Atoms
from trtmatrix.onnxmodel.dims import Traced, _ask, trace
from trtmatrix.onnxmodel.resizing import dimensions, resized
from trtmatrix.onnxmodel.subject import Subject, read_subject

ODD = [
    node("Transpose", "x", "y", perm=[0, 7]), node("Einsum", "x", "y", equation="ab,bc->ac"),
    node("Einsum", "x", "y", equation="abc->ab"), node("ReduceMean", "s", "y", axes=[0]),
    node("Concat", "s x", "y", axis=1), node("Gemm", "s x", "y"), node("Reshape", "x", "y"),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd.op_type} {odd.input}")
def test_a_node_that_is_not_what_its_operator_says_keeps_all_its_sizes(odd: NodeProto) -> None:
    atoms = Atoms()
    traced = Traced(
        atoms=atoms, dims={"x": (atoms.new(4), atoms.new(6)), "y": (atoms.new(4), atoms.new(6)), "s": ()}
    )
    _ask(odd, traced)
    for name in {*odd.input, *odd.output} - {"s"}:
        assert all(atoms.is_frozen(atom) for dim in traced.dims[name] for atom in atoms.expand(dim)), name


def empty(tmp_path: Path) -> Subject:
    model = make_model(
        [node("Reshape", "x none", "e", allowzero=1), node("Relu", "z", "y")],
        {"x": (FLOAT, (8, 0, 64)), "z": (FLOAT, (4, 6))}, {"e": (FLOAT, (0,)), "y": (FLOAT, (4, 6))},
        {"none": np.array([0])},
    )  # fmt: skip
    fed = {"x": np.zeros((8, 0, 64), np.float32), "z": normal(4, 6)}
    return read_subject(saved(model, tmp_path / "model.onnx"), [fed], {})


def test_of_no_elements_the_sizes_stay_and_others_are_offered(tmp_path: Path) -> None:
    subject = empty(tmp_path)
    assert {"x", "e"} <= set(trace(subject).dims)
    assert [found.name for found in dimensions(subject)] == ["z[0]", "z[1]"]


def test_products_of_no_elements_are_frozen() -> None:
    atoms = Atoms()
    some, none = [*atoms.new(8), *atoms.new(0)], atoms.new(0)
    atoms.join(some, none)
    assert all(atoms.is_frozen(atom) for atom in (*some, *none))


def test_a_profile_keeps_its_order_where_sizes_change(tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(8)]
    model = make_model([node("Sum", " ".join(names), "y")], dict.fromkeys(names, (FLOAT, (4, 6))),
                       {"y": (FLOAT, (4, 6))}, {})  # fmt: skip
    shapes = ((4, 6), (4, 6), (4, 6))
    fed = {name: normal(4, 6) for name in names}
    subject = read_subject(saved(model, tmp_path / "m.onnx"), [fed], dict.fromkeys(names, shapes))
    smaller = resized(subject, "x0[0]", 2)
    assert list(smaller.profile.items()) == [(name, ((2, 6),) * 3) for name in names]
