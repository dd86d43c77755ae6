"""Cells: each once, only what was selected, whatever the order of what they are made of."""

from __future__ import annotations

from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_control, make_matrix, make_repro
from hypothesis import given, settings
from hypothesis import strategies as st

from trtmatrix.common.errors import UsageError
from trtmatrix.judge.controls import ControlMap, expand_with_controls
from trtmatrix.suite.cells import CONTROLS, Selection, expand, select_cases, select_repros, select_versions
from trtmatrix.suite.model import CPU, CellId, Control, Gpu, Product
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
def test_controls_are_added_to_tensorrt_s_cells_and_nothing_else_changes(
    selection: Selection, gpus: list[Gpu]
) -> None:
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
        assert not selection.versions or {cell.version.name, cell.version.product.value} & set(
            selection.versions
        )
        assert not selection.repros or cell.repro.id in selection.repros
        assert not (wanted := set(selection.runtimes)) or wanted & {"host", cell.version.runtime}
        assert cell.gpu in (gpus if cell.version.product is Product.TENSORRT else [CPU])


PARTS = st.from_regex(r"[a-z0-9]+([.-]+[a-z0-9]+){0,3}", fullmatch=True)


@FEWER
@given(st.builds(CellId, repro=PARTS, case=PARTS, version=PARTS, gpu=PARTS))
def test_an_id_reads_as_it_is_printed(cell: CellId) -> None:
    assert CellId.parse(str(cell)) == cell


@pytest.mark.parametrize(
    "text", ["", "a/b@c", "a/b@c#", "A/b@c#d", "a/b@c#d\n", "../b@c#d", "a/b/c@d#e", "a/-@c#d"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cell id"):
        CellId.parse(text)
