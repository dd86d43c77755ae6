"""The entries that the renderers are tested with: a sample that has everything, and random ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from builders import (
    ISSUE,
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Basis, Cause, Evidence, Exclusion, Product, Verdict
from trtmatrix.suite.repros import Case, Expectation, Figure, Repro, Twin, Workaround

VERSIONS = (
    "8.5.3.1", "8.6.0", "9.3.0", "10.0.0", "10.0.1.6", "10.4.0", "10.7.0", "10.8.0",
    "tensorrt-rtx-1.10", "tensorrt-rtx-1.4", "onnxruntime-1.31.1",
)  # fmt: skip
SDPA = make_repro(
    make_case("explicit-tf32"), make_case("sdpa-tf32"),
    make_case(
        "sdpa-fp16-flag", products=frozenset({Product.TENSORRT, Product.TENSORRT_RTX}), limits={},
        params={"precision": "fp16-flag"},
    ),
    make_control("control-lost-scale-tf32"), make_case("sdpa-fp16"), make_case("explicit-fp16"),
    expectations=(
        make_expectation(Verdict.FAIL, "==10.7.0", "sdpa-tf32"),
        make_expectation(Verdict.FAIL, "==8.6.0", "sdpa-tf32", basis=Basis.ASSUMED, source=ISSUE, on=""),
    ),
    workarounds=(Workaround(what="write it out", case="explicit-tf32"),),
    twins=(
        Twin(
            measure="sum_abs_explicit", label="sum of |explicit - sdpa|", cases=("sdpa-*",), source=ISSUE,
            reported={"10.7.0": 1373.3945, "10.8.0": 0.2232},
        ),
    ),
)  # fmt: skip
STREAMS = make_repro(
    make_case("two-streams", needs=frozenset({"torch_tensorrt"})),
    id="streams", title="an engine that <waits> for nothing & nobody", url="javascript:alert(1)",
    upstream="pytorch/TensorRT#2991", figure=Figure(measure="sum_abs", label="zeros in the output"),
)  # fmt: skip

NOISE: dict[str, Any] = {
    "key": "k", "precision": "fp16-flag", "outputs": {"y": {"fp32": 1e-7, "tf32": 1e-4, "fp16": 4e-4}},
}  # fmt: skip


def sample_entries() -> tuple[Entry, ...]:
    """Return cells of every kind of evidence, mark and product, by repro, case and version."""
    return apply_controls(
        [
            _entry(make_cell(repro, case, make_version(name, torch="2.6.0a0+df5bbc09d1")))
            for repro in (SDPA, STREAMS)
            for case in repro.cases
            for name in VERSIONS
            if make_version(name).product in case.products
        ]
    )


NAN = float("nan")
EXPLICIT: dict[str, dict[str, Any]] = {
    "8.5.3.1": {"value": 175.2}, "8.6.0": {"value": 248.7, "executed": False},
    "9.3.0": {"value": 251, "evidence": Evidence.RECORDED}, "10.0.1.6": {"value": 250},
    "10.8.0": {"ended": Cause.TIME_OUT.value, "detail": "not done after 300 s"},
}  # fmt: skip
FUSED: dict[str, dict[str, Any]] = {
    "8.5.3.1": {"value": NAN, "evidence": Evidence.RECORDED, "scalars": {"sum_abs_explicit": 0.3131}},
    "8.6.0": {"value": 249, "scalars": {"sum_abs_explicit": 0.0}},
    "10.4.0": {"value": 175, "others": (1373, 175, 176)},
    "10.8.0": {
        "value": 1373.3945, "others": (1373, 1374, 1373), "scalars": {"sum_abs_explicit": 1373.4},
        "observed": {"torch": "2.7.0", "python": "3.12"},
    },
}  # fmt: skip


def _entry(cell: Cell) -> Entry:
    key = (cell.case.id, cell.version.name)
    match cell.version.product, *key:
        case Product.TENSORRT, "explicit-tf32", _ if key[1] in EXPLICIT:
            return make_entry(cell, **EXPLICIT[key[1]])
        case Product.TENSORRT, "sdpa-tf32", _ if key[1] in FUSED:
            return make_entry(cell, **FUSED[key[1]])
        case _, "sdpa-fp16-flag", "8.6.0":
            return make_entry(cell, 208, others=(208, 209), rel_l2=1.1e-4, noise=NOISE)
        case _, "sdpa-fp16-flag", "9.3.0":
            return make_entry(cell, 5e4, rel_l2=0.3)
        case _, "control-lost-scale-tf32", "8.5.3.1" | "8.6.0":
            return make_entry(replace(cell, companion=True), 1366)
        case _, "control-lost-scale-tf32", "10.0.1.6":
            return make_entry(cell, 181)
        case _, "control-lost-scale-tf32", "10.8.0":
            text = "the probe did not start: \x1b[31m<b>docker: denied</b>\n | `more`"
            return make_entry(cell, ended=Cause.LAUNCHER_FAILED.value, detail=text)
        case Product.TENSORRT, _, "10.0.0":
            return make_unknown(cell, Exclusion.UNSUPPORTED_GPU, "10.0.0 supports 7.0 to 8.9")
        case Product.TENSORRT_RTX, "sdpa-fp16-flag", _:
            cause = Cause.UNSUPPORTED_BY_VERSION.value
            return make_entry(cell, ended=cause, detail="no FP16 flag in TensorRT-RTX")
        case Product.TENSORRT_RTX, "sdpa-tf32" | "explicit-tf32", _:
            return make_entry(cell, ended="built")
        case Product.ONNXRUNTIME, "sdpa-tf32" | "explicit-tf32", _:
            return make_entry(cell, 0.173, executed=False)
    return _not_run(cell)


def _not_run(cell: Cell) -> Entry:
    if cell.version.product is not Product.TENSORRT:
        return make_unknown(cell)
    if cell.case.needs:
        why = "no Torch-TensorRT in the image"
        return make_unknown(cell, Exclusion.COMPONENT_MISSING, why)
    if cell.case.id == "sdpa-tf32" and cell.version.name == "10.7.0":
        return make_reported(cell, excluded=Exclusion.IMAGE_NOT_PULLED)
    return make_unknown(cell, Exclusion.IMAGE_NOT_PULLED, f"example.org/{cell.version.name}")


PATIENT = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.data_too_large],
    phases=[phase for phase in Phase if phase not in {Phase.explain, Phase.shrink}],
)  # fmt: skip
"""For property tests of renderers: no time limit on a busy machine, no long search for why; large reports."""

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,20}){0,3}", fullmatch=True)
TEXTS = st.text(max_size=60)
RELEASES = st.sampled_from((*VERSIONS, "9.2.0.post12.dev5", "10.13.3.9", "tensorrt-rtx-1.7"))
VALUES = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A case with any name and products."""
    products = draw(st.frozensets(st.sampled_from(Product), min_size=1))
    make = draw(st.sampled_from((make_case, make_control)))
    return Case(**{**vars(make(draw(NAMES))), "products": products})


@st.composite
def repros(draw: st.DrawFn) -> Repro:
    """A repro with odd texts, expectations of any kind, and up to four cases."""
    expectation = st.builds(
        make_expectation, st.sampled_from(Verdict), st.sampled_from(("==10.7.0", ">=10")),
        basis=st.sampled_from(Basis), source=TEXTS, on=TEXTS, note=TEXTS,
    )  # fmt: skip
    found: list[Expectation] = draw(st.lists(expectation, max_size=2))
    rows = draw(st.lists(cases(), min_size=1, max_size=4, unique_by=lambda case: case.id))
    figure = Figure(measure="sum_abs", label=draw(TEXTS))
    reported = draw(st.dictionaries(RELEASES, st.floats(0, 1e9), max_size=3))
    twin = Twin(
        measure="twin", label=draw(TEXTS), cases=(draw(st.sampled_from(("*", "a*"))),), reported=reported
    )
    return make_repro(
        *rows, id=draw(NAMES), title=draw(TEXTS), upstream=draw(TEXTS), url=draw(TEXTS),
        figure=figure, expectations=tuple(found), twins=draw(st.sampled_from(((), (twin,)))),
    )  # fmt: skip


@st.composite
def entries_of(draw: st.DrawFn, cell: Cell) -> Entry:
    """An entry of any kind for a cell."""
    why = draw(st.none() | st.sampled_from(Exclusion))
    match draw(st.sampled_from(Evidence)):
        case Evidence.NONE:
            return make_unknown(cell, why, draw(TEXTS))
        case Evidence.REPORTED:
            return make_reported(cell, draw(st.sampled_from(Verdict)))
        case evidence:
            ended = draw(st.sampled_from(("ran", "built", *(cause.value for cause in Cause))))
            value, detail = draw(VALUES), draw(TEXTS)
            return make_entry(
                cell, value, others=draw(st.lists(VALUES, max_size=4)), evidence=evidence,
                executed=draw(st.booleans()), excluded=why, ended=ended, detail=detail,
                scalars={"twin": draw(st.floats(0, 1e9))}, observed={"library": draw(RELEASES)},
            )  # fmt: skip


@st.composite
def many_entries(draw: st.DrawFn) -> tuple[Entry, ...]:
    """Entries of a few repros and versions; each cell occurs once."""
    found = draw(st.lists(repros(), max_size=3, unique_by=lambda repro: repro.id))
    columns = [make_version(name) for name in draw(st.lists(RELEASES, max_size=8, unique=True))]
    made: Iterator[Cell] = (
        replace(make_cell(repro, case, column), companion=draw(st.booleans()))
        for repro in found
        for case in repro.cases
        for column in columns
        if column.product in case.products
    )
    return apply_controls([draw(entries_of(cell)) for cell in made])
