"""Cells: each once, only what was selected, whatever the order of what they are made of."""

from __future__ import annotations

import pytest
from builders import H200, make_case, make_matrix, make_repro
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import Selection, expand, select_cases, select_repros, select_versions
from trtmatrix.core.model import CPU, CellId, Gpu, Product, Repro

VERSIONS = ("8.6.1", "10.7.0", "10.8.0", "10.10.0", "tensorrt-rtx-1.4", "onnxruntime-1.31.1")
L4 = Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9")
MATRIX = make_matrix(*VERSIONS)
REPROS = (
    make_repro(make_case("sdpa-tf32"), make_case("sdpa-fp16"), make_case("explicit-tf32")),
    make_repro(
        make_case("two-streams", products=frozenset({Product.TENSORRT})), make_case("sdpa-tf32"), id="streams"
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


def ids(
    versions: tuple[str, ...], repros: list[Repro], gpus: list[Gpu], selection: Selection
) -> list[CellId]:
    return [cell.id for cell in expand(make_matrix(*versions), repros, gpus, selection)]


@given(SELECTIONS, GPUS, st.permutations(VERSIONS), st.permutations(REPROS))
def test_each_cell_is_there_once_and_the_order_of_inputs_is_no_matter(
    selection: Selection, gpus: list[Gpu], versions: list[str], repros: list[Repro]
) -> None:
    try:
        found = ids(VERSIONS, list(REPROS), gpus, selection)
    except UsageError:
        with pytest.raises(UsageError):
            ids(tuple(versions), repros, gpus[::-1], selection)
        return
    assert len(found) == len(set(found))
    assert set(found) == set(ids(tuple(versions), repros, gpus[::-1], selection))


@given(SELECTIONS, GPUS)
def test_only_what_was_selected_is_there_and_all_of_it(selection: Selection, gpus: list[Gpu]) -> None:
    try:
        cells = expand(MATRIX, REPROS, gpus, selection)
    except UsageError:
        return
    for cell in cells:
        wanted = {cell.version.name, cell.version.product.value}
        assert not selection.versions or wanted & set(selection.versions)
        assert not selection.repros or cell.repro.id in selection.repros
        assert cell.version.product in cell.case.products
        runtimes = set(selection.runtimes)
        assert not runtimes or "host" in runtimes or cell.version.runtime in runtimes
        assert cell.gpu in (gpus if cell.version.product is Product.TENSORRT else [CPU])
    every = expand(MATRIX, REPROS, gpus, Selection())
    rows = {(r.id, c.id) for r, c in select_cases(select_repros(REPROS, selection), selection)}
    columns = {version.name for version in select_versions(MATRIX, selection)}
    expected = {
        cell.id for cell in every
        if (cell.repro.id, cell.case.id) in rows and cell.version.name in columns
    }  # fmt: skip
    assert {cell.id for cell in cells} == expected


def test_columns_keep_the_order_of_the_matrix_whatever_was_typed() -> None:
    selection = Selection(versions=("10.8.0", "tensorrt-rtx", "8.6.1"))
    names = [version.name for version in select_versions(MATRIX, selection)]
    assert names == ["8.6.1", "10.8.0", "tensorrt-rtx-1.4"]


@pytest.mark.parametrize("product", Product)
def test_a_products_name_selects_all_its_versions(product: Product) -> None:
    found = select_versions(MATRIX, Selection(versions=(product.value,)))
    assert found
    assert {version.product for version in found} == {product}
    assert set(found) == {version for version in MATRIX.versions if version.product is product}


def test_10_10_is_not_10_1() -> None:
    assert [v.name for v in select_versions(MATRIX, Selection(versions=("10.10.0",)))] == ["10.10.0"]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(versions=("10.7",)), "--trt 10.7: nothing is called so; perhaps you meant"),
        (Selection(versions=("10.7.0", "10.9.0")), "--trt 10.9.0"),
        (Selection(versions=("zzz",)), "known: 8.6.1, 10.7.0"),
        (Selection(repros=("sdpa_scale",)), "perhaps you meant sdpa-scale"),
        (Selection(cases=("sdpa-tf31",)), "perhaps you meant sdpa-tf32"),
        (Selection(cases=("*/nothing",)), "--case */nothing"),
        (Selection(repros=("streams",), cases=("explicit-*",)), "--case explicit-*"),
    ],
    ids=str,
)
def test_a_name_that_matches_nothing_is_an_error_with_a_suggestion(selection: Selection, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(MATRIX, REPROS, [H200], selection)
    assert words in str(caught.value)
    assert "python -m trtmatrix list" in str(caught.value)


def test_a_gpu_that_is_named_twice_gives_its_cells_once() -> None:
    found = ids(("10.7.0",), [make_repro()], [H200, L4, H200], Selection())
    assert [cell.gpu for cell in found] == [H200.slug, L4.slug]


@pytest.mark.parametrize(
    ("selection", "by_name"),
    [
        (Selection(), False),
        (Selection(repros=("a",), cases=("b",)), False),
        (Selection(versions=("10.7.0",)), True),
        (Selection(gpus=("L4",)), True),
        (Selection(runtimes=("host",)), True),
    ],
)
def test_columns_are_asked_for_by_version_gpu_or_runtime(selection: Selection, by_name: bool) -> None:
    assert selection.by_name is by_name


PARTS = st.from_regex(r"[a-z0-9]+([.-]+[a-z0-9]+){0,3}", fullmatch=True)


@given(st.builds(CellId, repro=PARTS, case=PARTS, version=PARTS, gpu=PARTS))
def test_an_id_reads_as_it_is_printed(cell: CellId) -> None:
    assert CellId.parse(str(cell)) == cell


@pytest.mark.parametrize(
    "text", ["", "a/b@c", "a/b@c#", "A/b@c#d", "a/b@c#d\n", "../b@c#d", "a/b/c@d#e", "a/-@c#d"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cell id"):
        CellId.parse(text)
