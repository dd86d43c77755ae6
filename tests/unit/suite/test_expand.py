"""Cells: each once, only what was selected, whatever the order of what they are made of."""

from dataclasses import replace
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_control, make_matrix, make_repro, make_version
from hypothesis import given, settings
from hypothesis import strategies as st

from trtmatrix.common.errors import UsageError
from trtmatrix.judge.controls import ControlMap, expand_with_controls
from trtmatrix.suite.cells import CONTROLS, Selection, expand, select_cases, select_repros, select_versions
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.model import CPU, CellId, Control, Exclusion, Gpu, Product
from trtmatrix.suite.plan import (
    Engine,
    GpuAccess,
    Host,
    Pull,
    find_image,
    host_python,
    make_plan,
    registry_name,
)
from trtmatrix.suite.repros import Case

VERSIONS = ("8.6.1", "10.7.0", "10.8.0", "10.10.0", "tensorrt-rtx-1.4", "onnxruntime-1.31.1")
L4 = Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9")
MATRIX = make_matrix(*VERSIONS)
FP16 = {"precision": "fp16"}
REPROS = (
    make_repro(
        make_case("sdpa-tf32"), make_case("sdpa-fp16", params=FP16), make_case("explicit-tf32"),
        make_control("control-tf32"),
    ),
    make_repro(
        make_case("two-streams", products=frozenset({Product.TENSORRT}), params={}), make_case("sdpa-tf32"),
        id="streams",
    ),
    make_repro(
        make_case("right-tf32", control=Control.POSITIVE), make_control("wrong-tf32"),
        make_case("right-fp16", control=Control.POSITIVE, params=FP16), make_case("no-control"), id=CONTROLS,
    ),
)  # fmt: skip
VERSION_NAMES = st.sampled_from((*VERSIONS, *(product.value for product in Product)))
PATTERNS = st.sampled_from(("sdpa-tf32", "sdpa-*", "*", "streams/*", "sdpa-scale/sdpa-?p16", "two-[s]treams"))
SELECTIONS = st.builds(
    Selection, versions=st.lists(VERSION_NAMES, max_size=3).map(tuple),
    repros=st.lists(st.sampled_from([repro.id for repro in REPROS]), max_size=2).map(tuple),
    cases=st.lists(PATTERNS, max_size=2).map(tuple),
    runtimes=st.lists(st.sampled_from(("container", "wheels", "host")), max_size=2).map(tuple),
)  # fmt: skip
GPUS = st.lists(st.sampled_from((H200, L4)), max_size=4)

FEWER = settings(max_examples=40)


@FEWER
@given(SELECTIONS, GPUS)
def test_controls_are_added_to_tensorrt_s_cells_alone(selection: Selection, gpus: list[Gpu]) -> None:
    try:
        plain = expand(MATRIX, REPROS, gpus, selection)
    except UsageError:
        return
    cells = expand_with_controls(MATRIX, REPROS, gpus, selection)
    found = [cell.id for cell in cells]
    assert len(found) == len(set(found))
    assert [cell for cell in cells if not cell.companion] == list(plain)
    wanted = {other for cell in plain for other in ControlMap(REPROS, MATRIX.versions).of(cell)}
    assert {cell.id for cell in cells if cell.companion} == wanted - {cell.id for cell in plain}
    every = [cell.id for cell in expand(MATRIX, REPROS, gpus, Selection())]
    assert found == [cell for cell in every if cell in set(found)]


COMMON = "controls/right-tf32@10.7.0#h200 controls/wrong-tf32@10.7.0#h200"


@pytest.mark.parametrize(
    ("repro", "case", "ids"),
    [
        ("sdpa-scale", "sdpa-tf32",
         f"{COMMON} sdpa-scale/control-tf32@10.7.0#h200 sdpa-scale/sdpa-tf32@onnxruntime-1.31.1#cpu"),
        ("sdpa-scale", "sdpa-fp16",
         "controls/right-fp16@10.7.0#h200 sdpa-scale/sdpa-fp16@onnxruntime-1.31.1#cpu"),
        ("sdpa-scale", "control-tf32", COMMON),
        ("controls", "right-tf32",
         "controls/right-tf32@onnxruntime-1.31.1#cpu controls/wrong-tf32@10.7.0#h200"),
        ("streams", "two-streams", ""),
    ],
)  # fmt: skip
def test_what_controls_a_cell(repro: str, case: str, ids: str) -> None:
    every = expand(MATRIX, REPROS, [H200], Selection(versions=("10.7.0",)))
    (cell,) = [cell for cell in every if (cell.repro.id, cell.case.id) == (repro, case)]
    assert sorted(map(str, ControlMap(REPROS, MATRIX.versions).of(cell))) == ids.split()


def test_the_negative_control_that_is_most_like_the_cell_is_taken() -> None:
    def sized(name: str, heads: int, **more: Any) -> Case:
        return make_case(name, params={"precision": "tf32", "heads": heads, "size": 64}, **more)

    wrong = {"control": Control.NEGATIVE}
    repro = make_repro(
        sized("base", 6), sized("eight", 8, **wrong),
        sized("six-torch", 6, **wrong, needs=frozenset({"torch"})),
        sized("six-cpu", 6, **wrong, products=frozenset({Product.ONNXRUNTIME})),
        sized("six", 6, **wrong), sized("six-again", 6, **wrong),
    )  # fmt: skip
    assert {cell.case for cell in ControlMap([repro], []).of(make_cell(repro))} == {"six"}


@FEWER
@given(SELECTIONS, GPUS)
def test_only_what_was_selected_is_there_and_all_of_it(selection: Selection, gpus: list[Gpu]) -> None:
    try:
        cells = expand(MATRIX, REPROS, gpus, selection)
    except UsageError:
        return
    rows = {(r.id, c.id) for r, c in select_cases(select_repros(REPROS, selection), selection)}
    columns = {version.name for version in select_versions(MATRIX, selection)}
    every = expand(MATRIX, REPROS, gpus, Selection())
    assert {cell.id for cell in cells} == {
        cell.id for cell in every
        if (cell.repro.id, cell.case.id) in rows and cell.version.name in columns
    }  # fmt: skip
    for cell in cells:
        version, runtimes = cell.version, selection.runtimes
        assert not selection.versions or {version.name, version.product.value} & {*selection.versions}
        assert not selection.repros or cell.repro.id in selection.repros
        assert not runtimes or {*runtimes} & {"host", version.runtime}
        assert cell.gpu in (gpus if version.product is Product.TENSORRT else [CPU])


PARTS = st.from_regex(r"[a-z0-9]+([.-]+[a-z0-9]+){0,3}", fullmatch=True)


@FEWER
@given(st.builds(CellId, repro=PARTS, case=PARTS, version=PARTS, gpu=PARTS))
def test_an_id_reads_as_it_is_printed(cell: CellId) -> None:
    assert CellId.parse(str(cell)) == cell


@pytest.mark.parametrize("text", ["", "a/b@c", "a/b@c#", "A/b@c#d", "a/b@c#d\n", "../b@c#d", "a/b/c@d#e"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cell id"):
        CellId.parse(text)


# What a plan makes of cells: their launches, and how each gets its image or interpreter.
# Why cells are excluded: tests/unit/images/test_preflight_hosts.py.
IMAGE = "example.org/tensorrt:10.7.0"
PULLED = make_version("10.7.0", library="10.7.0.23", torch_tensorrt="2.6.0a0")
BUILT = replace(PULLED, origin=ImageOrigin(image="own/x:1", build=Build(base="b:1", wheels=("c",))))
RTX = make_version("tensorrt-rtx-1.4")
HERE_ENGINE = Engine(available=True, images={IMAGE: "sha256:0"}, gpu_access=GpuAccess.TOOLKIT)
NO_ENGINE = Engine(available=False, reason="no Docker socket")
HOST = Host(engine=HERE_ENGINE, gpus=(H200,))
BUILDS = replace(HOST, builds_images=True)
NAMED = Selection(versions=("10.7.0",))
EMPTY, MADE = (
    Host(engine=replace(HERE_ENGINE, images=images), gpus=(H200,)) for images in ({}, {"own/x:1": "sha256:1"})
)


@pytest.mark.parametrize(
    ("library", "python"),
    [("10.7.0", "p"), ("10.7.0.23", "p"), ("10.7.0.24", None), ("10.70.0", None), ("10.8.0", None)],
)
def test_an_interpreter_is_chosen_by_its_library(library: str, python: str | None) -> None:
    assert host_python(PULLED, Host(engine=NO_ENGINE, interpreters={library: "p"})) == python


def test_there_is_one_launch_a_version_and_gpu_and_no_cell_is_lost() -> None:
    repro = make_repro(make_case("a"), make_case("b", needs=frozenset({"torch_tensorrt"})))
    gpus = (H200, replace(H200, slug="other", name="Other", index=1))
    versions = (PULLED, make_version("10.8.0"), RTX)
    cells = [
        make_cell(repro, case, version, gpu) for case in repro.cases for version in versions for gpu in gpus
    ]
    plan = make_plan(cells, replace(EMPTY, gpus=gpus), Selection(), Pull.ALL)
    keys = [(launch.version.name, launch.gpu.slug) for launch in plan.launches]
    assert len(keys) == len(set(keys)) == 6
    planned = [*(cell for launch in plan.launches for cell in launch.cells), *(e.cell for e in plan.excluded)]
    assert sorted(str(cell.id) for cell in planned) == sorted(str(cell.id) for cell in cells)
    assert {e.why for e in plan.excluded} == {Exclusion.COMPONENT_MISSING}
    assert all(launch.pull is (launch.version is not RTX) for launch in plan.launches)
    assert all(launch.python is None for launch in plan.launches)


@pytest.mark.parametrize(
    ("version", "host", "pull", "build"),
    [
        (PULLED, HOST, False, False), (PULLED, EMPTY, True, False),
        (BUILT, BUILDS, False, True), (BUILT, MADE, False, False),
    ],
)  # fmt: skip
def test_an_absent_image_is_pulled_or_built(version: Version, host: Host, pull: bool, build: bool) -> None:
    (launch,) = make_plan([make_cell(version=version)], host, NAMED, Pull.NAMED).launches
    assert (launch.pull, launch.build) == (pull, build)


NAMES = {
    "nvcr.io/nvidia/tensorrt:24.01-py3": "sha256:" + "a" * 64, "python:latest": "sha256:" + "b" * 64,
    "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64: "sha256:" + "a" * 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        *((name, name) for name in NAMES), ("docker.io/library/python", "python:latest"),
        ("sha256:" + "b" * 12, "python:latest"), ("python:3", None),
    ],
)  # fmt: skip
def test_an_image_is_found_by_name_digest_and_id(wanted: str, name: str | None) -> None:
    found = find_image(NAMES, wanted)
    assert (found.name if found else None) == name
    if found and wanted.endswith("24.01-py3"):
        assert registry_name(NAMES, found.id) == "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64
