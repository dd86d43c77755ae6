"""The difference of two surfaces: each rule on small ones, and NVIDIA's own against what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from trtmatrix.api.changes import ChangeTable, Replacement
from trtmatrix.api.compare import compare_flags, compare_surfaces, find_behaviours
from trtmatrix.api.section import read_change_table, read_surfaces
from trtmatrix.api.types import (
    ApiChange,
    ApiClass,
    Behaviour,
    ChangeKind,
    Member,
    MemberKind,
    Origin,
    Surface,
)

SURFACES = read_surfaces(Path("nowhere"))
EMPTY = ChangeTable()


def method(*signatures: str, deprecated: str = "") -> Member:
    return Member(kind=MemberKind.METHOD, signatures=signatures or ("() -> None",), deprecated=deprecated)


def prop(returns: str = "int", *, settable: bool = False) -> Member:
    return Member(kind=MemberKind.PROPERTY, returns=returns, settable=settable)


def cls(members: Mapping[str, Member], *bases: str, deprecated: str = "") -> ApiClass:
    return ApiClass(bases=bases, members=members, deprecated=deprecated)


def surface(
    version: str, classes: Mapping[str, ApiClass], names: Mapping[str, Member] | None = None
) -> Surface:
    return Surface(version=version, origin=Origin(), classes=classes, names=names or {})


def compare(before: Mapping[str, ApiClass], after: Mapping[str, ApiClass]) -> list[ApiChange]:
    return move(surface("8.6.1", before), surface("10.0.1", after))


def move(before: Surface, after: Surface, table: ChangeTable = EMPTY) -> list[ApiChange]:
    return list(compare_surfaces(before, after, table))


def names(changes: list[ApiChange], kind: ChangeKind) -> list[str]:
    return [change.name for change in changes if change.kind is kind]


def test_a_class_that_is_gone_is_one_line_with_its_members_counted() -> None:
    (change,) = compare({"UffParser": cls({"parse": method(), "x": prop()})}, {})
    assert (change.name, change.kind) == ("UffParser", ChangeKind.REMOVED)
    assert "2 members" in change.note


def test_a_member_and_a_function_that_are_gone() -> None:
    before = surface("8.6.1", {"A": cls({"x": prop(), "y": prop()})}, {"f": method()})
    found = move(before, surface("10.0.1", {"A": cls({"x": prop()})}))
    assert names(found, ChangeKind.REMOVED) == ["A.y", "f"]
    assert all("8.6.1" in change.source and "10.0.1" in change.source for change in found)


def test_what_moved_to_a_base_is_no_removal() -> None:
    before = {"A": cls({"x": prop()})}
    assert not names(compare(before, {"Base": cls({"x": prop()}), "A": cls({}, "Base")}), ChangeKind.REMOVED)


def test_a_changed_signature_says_which_call_no_longer_works() -> None:
    two = method("(x: ITensor) -> None", "(x: ITensor, t: DataType) -> None")
    (change,) = compare(
        {"A": cls({"f": two})}, {"A": cls({"f": method("(x: ITensor, t: DataType) -> None")})}
    )
    assert (change.kind, change.before) == (ChangeKind.CHANGED, "(x: ITensor) -> None")
    assert "one way of calling it is gone" in change.note
    assert not compare({"A": cls({"f": two})}, {"A": cls({"f": two})})


def test_a_property_that_can_no_longer_be_set() -> None:
    found = compare(
        {"A": cls({"x": prop(settable=True), "z": prop()})},
        {"A": cls({"x": prop(), "z": prop(settable=True)})},
    )
    assert [change.note for change in found] == ["can no longer be set"]


def test_newly_deprecated_by_docstring_and_a_class_as_one_line() -> None:
    before = {"A": cls({"f": method(), "g": method(deprecated="old news")}), "B": cls({"f": method()})}
    marked = method(deprecated="Deprecated in TensorRT 10.0.")
    after = {
        "A": cls({"f": marked, "g": method(deprecated="other words")}),
        "B": cls({"f": marked}, deprecated="Deprecated in TensorRT 10.0."),
    }
    assert names(compare(before, after), ChangeKind.DEPRECATED) == ["A.f", "B"]


def test_the_table_fills_in_and_adds_what_docstrings_do_not_say() -> None:
    kept = Replacement(names=("A.f", "A.g"), write="A.h", deprecated="9.0", source="guide", url="https://x")
    table = ChangeTable(replacements={"A.f": kept, "A.g": kept})
    before, after = {"A": cls({"f": method(), "g": method()})}, {"A": cls({"f": method()})}
    found = move(surface("8.6.1", before), surface("10.0.1", after), table)
    assert [(c.name, c.kind, c.replacement, c.url) for c in found] == [
        ("A.g", ChangeKind.REMOVED, "A.h", "https://x"),
        ("A.f", ChangeKind.DEPRECATED, "A.h", "https://x"),
    ]
    assert "9.0" in found[1].note
    assert not move(surface("9.1", before), surface("10.0.1", before), table)


def test_flags_are_met_on_the_way_up_and_the_last_change_counts() -> None:
    table = ChangeTable(
        flags=(
            Replacement(names=("--fp16",), kind=ChangeKind.DEPRECATED, since="10.12"),
            Replacement(names=("--fp16",), kind=ChangeKind.REMOVED, since="11.0"),
        )
    )
    met = {
        (before, after): [change.kind for change in compare_flags(before, after, table)]
        for before, after in (("8.6.1", "11.4"), ("10.0", "10.13"), ("11.0", "11.4"), ("11.4", "8.6.1"))
    }
    assert list(met.values()) == [[ChangeKind.REMOVED], [ChangeKind.DEPRECATED], [], []]
    (change,) = compare_flags("10.0", "10.13", table)
    assert change.name == "trtexec --fp16"


def test_behaviours_are_met_in_both_directions_and_some_always() -> None:
    table = ChangeTable(
        behaviours=(
            Behaviour(topic="int64", text="", since="10.0"),
            Behaviour(topic="plans", text="", since=""),
        )
    )

    def topics(before: str, after: str) -> list[str]:
        return [item.topic for item in find_behaviours(before, after, table)]

    assert topics("9.3.0", "10.0.0") == ["int64", "plans"]
    assert topics("10.0.0", "9.3.0") == ["int64", "plans"]
    assert topics("10.0.0", "10.0.1") == ["plans"]
    assert topics("10.0.0", "10.0.0") == []


NAMES_10 = """
Builder.build_engine IBuilderConfig.max_workspace_size Builder.max_batch_size ICudaEngine.max_batch_size
ICudaEngine.num_bindings ICudaEngine.get_binding_name ICudaEngine.get_binding_index
ICudaEngine.get_binding_shape ICudaEngine.get_binding_dtype ICudaEngine.binding_is_input
ICudaEngine.get_binding_format ICudaEngine.get_binding_vectorized_dim ICudaEngine.is_shape_binding
IExecutionContext.execute IExecutionContext.execute_async IExecutionContext.execute_async_v2
IExecutionContext.set_binding_shape IExecutionContext.get_binding_shape
INetworkDefinition.add_fully_connected INetworkDefinition.add_rnn_v2 INetworkDefinition.add_convolution
INetworkDefinition.add_deconvolution INetworkDefinition.add_pooling INetworkDefinition.add_padding
UffParser CaffeParser
"""
NAMES_11 = """
BuilderFlag.FP16 BuilderFlag.BF16 BuilderFlag.INT8 BuilderFlag.FP8 BuilderFlag.OBEY_PRECISION_CONSTRAINTS
BuilderFlag.PREFER_PRECISION_CONSTRAINTS Builder.platform_has_fast_fp16 Builder.platform_has_fast_int8
Builder.platform_has_tf32 IBuilderConfig.int8_calibrator IBuilderConfig.algorithm_selector ILayer.precision
ILayer.set_output_type ITensor.dynamic_range ICudaEngine.device_memory_size TacticSource.CUBLAS
TacticSource.CUBLAS_LT TacticSource.CUDNN NetworkDefinitionCreationFlag.EXPLICIT_BATCH
"""
STAYS = """
Logger Builder.create_network Builder.build_serialized_network OnnxParser.parse OnnxParser.num_errors
OnnxParser.get_error IBuilderConfig.set_memory_pool_limit IBuilderConfig.set_flag IBuilderConfig.clear_flag
IBuilderConfig.profiling_verbosity Runtime.deserialize_cuda_engine ICudaEngine.num_io_tensors
ICudaEngine.get_tensor_name ICudaEngine.get_tensor_mode ICudaEngine.get_tensor_shape
ICudaEngine.get_tensor_dtype ICudaEngine.create_execution_context IExecutionContext.set_input_shape
IExecutionContext.set_tensor_address IExecutionContext.execute_async_v3
ICudaEngine.create_engine_inspector EngineInspector.get_layer_information
EngineInspector.get_engine_information INetworkDefinition.add_convolution_nd BuilderFlag.TF32
"""


@pytest.mark.parametrize(
    ("before", "after", "gone"), [("8.6.1", "10.0.1.6", NAMES_10), ("10.16.1", "11.0.0", NAMES_11)]
)
def test_nvidia_s_surfaces_differ_as_is_known_of_them(before: str, after: str, gone: str) -> None:
    first, last = SURFACES.of(before), SURFACES.of(after)
    assert first is not None
    assert last is not None
    found = {change.name: change for change in move(first, last, read_change_table())}
    for name in gone.split():
        assert found[name].kind is ChangeKind.REMOVED, name
        assert found[name].replacement, name
    removed = {change.name for change in found.values() if change.kind is ChangeKind.REMOVED}
    assert not removed & set(STAYS.split())
    assert not {change.name for change in found.values() if change.kind is ChangeKind.CHANGED} - {
        "ICudaEngine.__getitem__", "IExecutionContext.active_optimization_profile",
        "INetworkDefinition.add_dequantize", "INetworkDefinition.add_quantize", "ITensor.dtype",
        "Runtime.deserialize_cuda_engine", "trtexec --preview",
    }  # fmt: skip
