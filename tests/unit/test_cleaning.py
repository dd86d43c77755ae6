"""Private notes go out of a graph's bytes, and what it computes stays the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxmodels
import pytest
from onnx import ModelProto, TensorProto, helper

from trtmatrix.core.redact import Private, Secrets
from trtmatrix.effects.packing import Part, pack_parts
from trtmatrix.onnxmodel.cleaning import clean_graph

SECRETS = Secrets(users=("wilhelmina",), workspaces=("/data/hush",))
TRACE = 'File "/data/hush/net.py", line 3, in forward\n    return self.secret_trick(x)'


def bytes_of(model: ModelProto) -> bytes:
    content: bytes = model.SerializeToString()
    return content


def with_branches() -> ModelProto:
    """A graph with notes at every level: model, graph, node, weight, input, branch, local function."""
    then = helper.make_graph([helper.make_node("Abs", ["x"], ["t"])], "then", [], [_info("t")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [_info("e")])
    other.node[0].doc_string = TRACE
    branch = helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other)
    own = helper.make_node("Twice", ["b"], ["y"], domain="own")
    function = helper.make_function(
        "own", "Twice", ["v"], ["w"], [helper.make_node("Add", ["v", "v"], ["w"], doc_string=TRACE)],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    function.doc_string = TRACE
    graph = helper.make_graph(
        [branch, own], "g", [_info("x"), _info("c", TensorProto.BOOL, [])], [_info("y")]
    )
    graph.doc_string = TRACE
    graph.input[0].doc_string = TRACE
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    model.doc_string, model.producer_name, model.producer_version = TRACE, "wilhelmina", "pytorch 2.6"
    model.metadata_props.add(key="trace", value=TRACE)
    model.metadata_props.add(key="fine", value="kept")
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
    return model


def _info(name: str, kind: int = TensorProto.FLOAT, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2] if shape is None else shape)


def test_notes_at_every_level_go_and_the_graph_stays(tmp_path: Path) -> None:
    model = with_branches()
    found = clean_graph(bytes_of(model), SECRETS)
    assert found.taken == {Private.WORKSPACE: 8, Private.USER: 1}
    for text in (b"hush", b"wilhelmina", b"secret_trick"):
        assert text not in found.content
    cleaned = ModelProto.FromString(found.content)
    onnx.checker.check_model(cleaned)
    assert cleaned.producer_version == "pytorch 2.6"
    assert [entry.value for entry in cleaned.metadata_props] == ["kept"]
    before, after = (
        onnxmodels.run(one, tmp_path / "model.onnx", x=np.array([-1, 2], np.float32), c=np.array(False))
        for one in (model, cleaned)
    )
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_graph_without_private_notes_keeps_its_bytes() -> None:
    model = onnxmodels.mlp(width=8)
    model.doc_string = "exported by torch 2.6 for TensorRT 10.7.0.23"
    content = bytes_of(model)
    found = clean_graph(content, SECRETS)
    assert found.content is content
    assert not found.taken
    assert not found.told


def test_names_are_told_and_stay() -> None:
    model = onnxmodels.mlp(width=8)
    model.graph.node[0].name = "/wilhelmina/MatMul"
    model.graph.node[0].attribute.append(helper.make_attribute("note", "by wilhelmina"))
    content = bytes_of(model)
    found = clean_graph(content, SECRETS)
    assert found.content == content
    assert found.told == (
        "CAREFUL: the name /wilhelmina/MatMul in the graph holds something private, and stays",
        "CAREFUL: 1 texts that the graph computes with hold something private, and stay",
    )


def test_weights_in_files_with_private_names_get_others(tmp_path: Path) -> None:
    model = onnxmodels.mlp(width=8)
    onnxmodels.saved_outside(model, tmp_path / "model.onnx", "wilhelmina.data")
    parts = [
        Part(name="wilhelmina.data", file=tmp_path / "wilhelmina.data", weights=True),
        Part(name="model.onnx", file=tmp_path / "model.onnx", weights=True),
    ]
    packed = pack_parts(parts, SECRETS)
    assert [one.item.name for one in packed] == ["weights-0.data", "model.onnx"]
    for one in packed:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / one.item.name).write_bytes(one.data or b"")
    first, second = (onnx.load(folder / "model.onnx") for folder in (tmp_path, tmp_path / "out"))
    for was, now in zip(first.graph.initializer, second.graph.initializer, strict=True):
        assert np.array_equal(onnx.numpy_helper.to_array(was), onnx.numpy_helper.to_array(now))


@pytest.mark.parametrize("content", [b"\0\1\2 no graph", b"version https://git-lfs"])
def test_what_is_no_graph_is_told(content: bytes) -> None:
    found = clean_graph(content, SECRETS)
    assert found.content == content
    assert "no ONNX file" in found.told[0]
