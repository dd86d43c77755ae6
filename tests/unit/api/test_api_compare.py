"""The difference of two surfaces: each rule on small ones, and NVIDIA's own against what is known of them."""

import re
from collections.abc import Mapping
from itertools import pairwise

import pytest
import yaml
from goldenfile import check_golden

from trtmatrix.api.compare import ChangeTable, breaks, compare_flags, compare_surfaces, find_behaviours
from trtmatrix.api.report import render_api_text
from trtmatrix.api.section import TABLE, find_surface, read_change_table, read_store
from trtmatrix.api.types import (
    ApiClass,
    ApiSection,
    ChangeKind,
    Kept,
    Member,
    MemberKind,
    Origin,
    Surface,
    lies_between,
)

SURFACES = read_store()


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


def test_each_way_to_change_is_one_line() -> None:
    """What moved to a base, can be set now, or was deprecated before, is none."""
    both, one = "(x: ITensor) -> None", "(x: ITensor, t: DataType) -> None"
    old, marked = method(deprecated="old news"), method(deprecated="Deprecated in TensorRT 10.0.")
    before = {
        "UffParser": cls({"parse": method(), "x": prop()}), "B": cls({"f": method()}),
        "M": cls({"x": prop()}), "A": cls({"f": method(both, one), "g": old, "h": method(), "x": prop(),
                                           "y": prop(settable=True), "z": prop()}),
    }  # fmt: skip
    after = {
        "B": cls({"f": marked}, deprecated="Deprecated in TensorRT 10.0."), "M": cls({}, "Base"),
        "Base": cls({"x": prop()}), "A": cls({"f": method(one), "g": marked, "h": marked, "y": prop(),
                                              "z": prop(settable=True)}),
    }  # fmt: skip
    found = compare_surfaces(
        surface("8.6.1", before, {"f": method()}), surface("10.0.1", after), ChangeTable()
    )
    check_golden("api-changes.txt", render_api_text(ApiSection(changes=tuple(found))))


def test_the_table_fills_in_and_adds_what_docstrings_do_not_say() -> None:
    kept = Kept(names=("A.f", "A.g"), replacement="A.h", deprecated="9.0", source="guide", url="https://x")
    table = ChangeTable(replacements={"A.f": kept, "A.g": kept})
    before, after = {"A": cls({"f": method(), "g": method()})}, {"A": cls({"f": method()})}
    found = compare_surfaces(surface("8.6.1", before), surface("10.0.1", after), table)
    check_golden("api-table.txt", render_api_text(ApiSection(changes=tuple(found))))
    assert not compare_surfaces(surface("9.1", before), surface("10.0.1", before), table)


def test_flags_are_met_on_the_way_up_and_the_last_change_counts() -> None:
    kinds = {"10.12": ChangeKind.DEPRECATED, "11.0": ChangeKind.REMOVED}
    table = ChangeTable(
        flags=tuple(Kept(names=("--fp16",), kind=kind, since=at) for at, kind in kinds.items())
    )
    for before, after, met in (
        ("8.6.1", "11.4", [ChangeKind.REMOVED]), ("10.0", "10.13", [ChangeKind.DEPRECATED]),
        ("11.0", "11.4", []), ("11.4", "8.6.1", []),
    ):  # fmt: skip
        found = [(change.name, change.kind) for change in compare_flags(before, after, table)]
        assert found == [("trtexec --fp16", kind) for kind in met]


def test_behaviours_are_met_in_both_directions_and_some_always() -> None:
    since = {"int64": "10.0", "plans": ""}
    table = ChangeTable(behaviours=tuple(Kept(name=t, since=at) for t, at in since.items()))
    for before, after, topics in (
        ("9.3.0", "10.0.0", ["int64", "plans"]), ("10.0.0", "9.3.0", ["int64", "plans"]),
        ("10.0.0", "10.0.1", ["plans"]), ("10.0.0", "10.0.0", []),
    ):  # fmt: skip
        assert [item.name for item in find_behaviours(before, after, table)] == topics


NAMES_10 = """
UffParser CaffeParser ICudaEngine.get_binding_vectorized_dim Builder.{build_engine max_batch_size}
IBuilderConfig.max_workspace_size
ICudaEngine.{is_shape_binding max_batch_size num_bindings get_binding_name get_binding_index}
ICudaEngine.{get_binding_shape get_binding_dtype binding_is_input get_binding_format}
IExecutionContext.{execute execute_async execute_async_v2 set_binding_shape get_binding_shape}
INetworkDefinition.{add_fully_connected add_rnn_v2 add_convolution add_deconvolution add_pooling add_padding}
"""
NAMES_11 = """
BuilderFlag.{FP16 BF16 INT8 FP8 OBEY_PRECISION_CONSTRAINTS PREFER_PRECISION_CONSTRAINTS}
Builder.{platform_has_fast_fp16 platform_has_fast_int8 platform_has_tf32} ILayer.{precision set_output_type}
IBuilderConfig.{int8_calibrator algorithm_selector} ITensor.dynamic_range ICudaEngine.device_memory_size
TacticSource.{CUBLAS CUBLAS_LT CUDNN} NetworkDefinitionCreationFlag.EXPLICIT_BATCH
"""
STAYS = """
Logger Builder.{create_network build_serialized_network} OnnxParser.{parse num_errors get_error}
IBuilderConfig.{set_memory_pool_limit set_flag clear_flag profiling_verbosity} Runtime.deserialize_cuda_engine
ICudaEngine.{num_io_tensors get_tensor_name get_tensor_mode get_tensor_shape get_tensor_dtype}
ICudaEngine.{create_execution_context create_engine_inspector} INetworkDefinition.add_convolution_nd
IExecutionContext.{set_input_shape set_tensor_address execute_async_v3} BuilderFlag.TF32
EngineInspector.{get_layer_information get_engine_information}
"""


def names_in(text: str) -> set[str]:
    """Full names, of ``A.{b c} D`` A.b, A.c and D."""
    found = re.findall(r"([\w.]+)(?:\{(.*?)\})?", text)
    return {f"{first}{name}" for first, rest in found for name in (rest.split() or [""])}


@pytest.mark.parametrize(
    ("before", "after", "gone"), [("8.6.1", "10.0.1.6", NAMES_10), ("10.16.1", "11.0.0", NAMES_11)]
)
def test_nvidia_s_surfaces_differ_as_is_known_of_them(before: str, after: str, gone: str) -> None:
    first, last = find_surface(before), find_surface(after)
    assert first is not None
    assert last is not None
    found = {change.name: change for change in compare_surfaces(first, last, read_change_table())}
    for name in names_in(gone):
        assert found[name].kind is ChangeKind.REMOVED, name
        assert found[name].replacement, name
    removed = {change.name for change in found.values() if change.kind is ChangeKind.REMOVED}
    assert not removed & names_in(STAYS)
    assert not {change.name for change in found.values() if change.kind is ChangeKind.CHANGED} - {
        "ICudaEngine.__getitem__", "IExecutionContext.active_optimization_profile",
        "INetworkDefinition.add_dequantize", "INetworkDefinition.add_quantize", "ITensor.dtype",
        "Runtime.deserialize_cuda_engine", "trtexec --preview",
    }  # fmt: skip


# What of a changed signature is only another way of writing it, and what breaks a caller.

HARMLESS = [
    ("(index: int) -> ITensor", "(index: int) -> ITensor"),
    ("(index: int) -> ITensor", "(index: typing.SupportsInt) -> ITensor"),
    ("(index: int) -> ITensor", "(index: typing.SupportsInt | typing.SupportsIndex) -> tensorrt.ITensor"),
    ("(shape: List[int]) -> bool", "(shape: collections.abc.Sequence[typing.SupportsInt]) -> bool"),
    ("(memory: capsule) -> bool", "(memory: typing_extensions.CapsuleType) -> bool"),
    ("(arg0: int) -> str", "(index: int) -> str"),  # it got a name
    ("(a: int) -> int", "(a: int, b: int = 3) -> int"),
    ("(a: int, b: int = 3) -> int", "(a: int, b: int = 4) -> int"),  # a default
    ("(a: int) -> int", "(a: int | None) -> int"),
    ("(a: Optional[int]) -> int", "(a: int) -> int"),
    ("(s: ILogger.Severity) -> None", "(s: Severity) -> None"),
    ("(f: nvinfer1::TensorFormat) -> None", "(f: TensorFormat) -> None"),  # a name unknown to the bindings
    ("(text: str = 'a, b') -> None", "(text: str = ')') -> None"),
    ("(kind: Kind = <Kind.A: 0>) -> None", "(kind: Kind = ...) -> None"),
]  # fmt: skip


BREAKING = [
    ("(a: int, b: int)", "(a: int)", "takes no b any more"), ("(a: int)", "(b: int)", "b instead of a"),
    ("(a: int, b: int)", "(b: int, a: int)", "a stands elsewhere"),
    ("(a: int)", "(a: int, b: int)", "asks for b"),
    ("(a: int = 0)", "(a: int)", "asks for a, which could be left out"),
    ("(a: str)", "(a: int)", "a is int instead of str"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "why"), [*BREAKING, *((*pair, "") for pair in HARMLESS)])
def test_what_breaks_a_caller_is_told(before: str, after: str, why: str) -> None:
    assert breaks(before, after) == why


# The hand-kept table: right in itself, true of the surfaces, strict about mistakes.


RULED = (ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED)
ALL = [*SURFACES.values()]
KEPT = read_change_table()


def test_every_name_that_goes_changes_or_is_deprecated_has_its_replacement_at_the_right_release() -> None:
    for before, after in pairwise(ALL):
        for change in compare_surfaces(before, after, KEPT):
            assert change.replacement or change.kind not in RULED, f"{change.name} at {after.version}"
            kept = KEPT.replacements.get(change.name)
            if change.kind is ChangeKind.REMOVED and kept is not None and kept.removed:
                assert lies_between(kept.removed, before.version, after.version), change.name


def test_every_name_of_the_table_is_one_of_the_bindings_and_what_is_to_be_written_exists() -> None:
    named = {*KEPT.replacements, *(name for item in KEPT.behaviours for name in item.names)}
    assert not {name for name in named if not any(surface.find(name) for surface in ALL)}
    for name, kept in KEPT.replacements.items():
        last = max(i for i, surface in enumerate(ALL) if surface.find(name))
        after = ALL[min(last + 1, len(ALL) - 1)]
        for written in re.findall(r"\b[A-Z]\w+\.\w+", kept.replacement):
            assert after.find(written), f"{name}: {written} is not in {after.version}"


def test_every_entry_names_its_source_and_every_source_is_named() -> None:
    told = {(item.source, item.url) for item in (*KEPT.replacements.values(), *KEPT.flags, *KEPT.older)}
    told |= {(item.source, item.url) for item in KEPT.behaviours}
    known = r"Recalled, not read again|The two surfaces, side by side|Docstrings of NVIDIA's bindings"
    assert all(url.startswith("https://") or re.match(known, source) for source, url in told)
    raw = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    entries = [entry for key in ("replacements", "behaviours", "flags", "older") for entry in raw[key]]
    assert {entry["source"] for entry in entries} == set(raw["sources"])
    assert all(entry.get("known") for entry in entries if entry["source"] == "recalled"), "not read"
    flags = [(flag, item["since"]) for item in raw["flags"] for flag in item["names"]]
    names = [name for item in raw["replacements"] for name in item["names"]]
    assert (len(flags), len(names)) == (len(set(flags)), len(set(names)))


def test_releases_are_quoted_and_flags_are_flags() -> None:
    versions = {version for kept in KEPT.replacements.values() for version in (kept.deprecated, kept.removed)}
    versions |= {item.since for item in KEPT.behaviours} | {item.since for item in KEPT.flags}
    assert all(re.fullmatch(r"(\d+\.\d+(\.\d+)*)?", version) for version in versions)
    assert all(item.since and item.kind in RULED for item in KEPT.flags)
    assert all(re.fullmatch(r"--[A-Za-z]\w*", flag) for item in KEPT.flags for flag in item.names)
