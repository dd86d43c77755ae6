"""What ``run --plan`` prints, what a run fetches and keeps, and why cells are run again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.speed.machine import ROOT
from builders import (
    H200,
    make_case,
    make_cell,
    make_matrix,
    make_record,
    make_repro,
    make_unknown,
    make_version,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from nowhere import go_nowhere
from reprosource import SOURCE

from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import Project, default_cache
from trtmatrix.judge.compare import is_current, make_entries
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.order import (
    estimate_seconds,
    find_changes,
    group_cases,
    order_launches,
    origin_digests,
    split_launch,
)
from trtmatrix.plan.survey import Survey, digests_now, entries_of, recorded_gpus, take_survey
from trtmatrix.records.store import write_record
from trtmatrix.run.perform import Options, announce, find_reasons
from trtmatrix.run.planned import plan_all
from trtmatrix.suite.cells import Cell, Selection, expand
from trtmatrix.suite.matrix import Build, ImageOrigin, Pin
from trtmatrix.suite.model import NO_GPU, Cause, Exclusion, Gpu, Product
from trtmatrix.suite.plan import Engine, Excluded, Host, Launch, Plan, Pull, exclude, make_plan
from trtmatrix.suite.repro_files import read_repros

REPRO = make_repro(make_case("a"), make_case("b"), make_case("c"))
PULLED = ImageOrigin(image="example.org/a:1")
NOTHING_HERE = Host(engine=Engine(available=False))
ASKED, BESIDE, LEFT_OUT = (make_cell(REPRO, case, "onnxruntime-1.31.1") for case in REPRO.cases)


def printed(*cells: Cell, excluded: tuple[Excluded, ...] = ()) -> str:
    launch = Launch(version=ASKED.version, gpu=ASKED.gpu, cells=cells)
    return of_plan(Plan(launches=(launch,), excluded=excluded))


def of_plan(plan: Plan) -> str:
    survey, context = surveyed(plan)
    reasons = {cell.id: "no record" for cell in survey.cells}
    return "\n".join(plan_all(context, survey, reasons, Options()).lines) + "\n"


def surveyed(plan: Plan, *cells: Cell, stored: Sequence[Stored] = (), **given: Any) -> tuple[Survey, Context]:
    cells = cells or tuple(cell for launch in plan.launches for cell in launch.cells)
    scan, cache = GpuScan(gpus=(), reason="none"), default_cache()
    survey = Survey(host=NOTHING_HERE, scan=scan, cells=cells, plan=plan, stored=tuple(stored))
    project = Project(matrix=cache, repros=cache, results=cache, cache=cache)
    plain: dict[str, Any] = {"matrix": make_matrix(), "repros": {}, "selection": Selection(), "pythons": ()}
    return survey, Context(**{"project": project, **plain, **given})


def test_the_plan_is_in_the_order_of_the_run() -> None:
    cells = [make_cell(REPRO, case, version) for version in ("10.7.0", "10.8.0") for case in REPRO.cases]
    short, far, long = (
        Launch(version=cells[n].version, gpu=H200, cells=tuple(cells[n:m]), pull=pull, python="python3")
        for n, m, pull in ((0, 1, False), (0, 3, True), (3, 6, False))
    )
    boards = (H200, replace(H200, index=1))
    text = of_plan(Plan(launches=(far, short, long), excluded=(), boards=boards))
    assert [line for line in text.splitlines() if " on NVIDIA H200: " in line] == [
        "10.8.0 on NVIDIA H200: run 3 cells in python3",
        "10.7.0 on NVIDIA H200: run 1 cell in python3",
        "10.7.0 on NVIDIA H200: pull, then run 3 cells in python3",
    ]


def test_controls_that_go_along_or_are_not_run_and_reasons_are_counted() -> None:
    beside = "  1 of those to run were not selected: they control the others (--no-controls)\n"
    assert beside in printed(ASKED, replace(BESIDE, companion=True))
    assert "not selected" not in printed(ASKED, BESIDE)
    assert "  2 cells because: no record\n" in printed(ASKED, BESIDE)
    cells = (replace(BESIDE, companion=True), LEFT_OUT, LEFT_OUT)
    excluded = tuple(Excluded(cell=cell, why=Exclusion.NO_GPU) for cell in cells)
    assert printed(ASKED, excluded=excluded).splitlines()[-2:] == [
        "not run: 2 cells: no NVIDIA GPU here", "controls not run: 1 cell: no NVIDIA GPU here",
    ]  # fmt: skip


def test_what_is_served_needs_no_lock() -> None:
    """As in the run itself: only what would be started is refused."""
    cells = [make_cell(REPRO, REPRO.cases[0], version) for version in ("10.7.0", "10.8.0")]
    launches = tuple(Launch(version=cell.version, gpu=H200, cells=(cell,)) for cell in cells)
    survey, context = surveyed(Plan(launches=launches, excluded=(), boards=(H200,)))
    with pytest.raises(UsageError, match=r"--locked refuses[^\n]*\n  10.8.0: "):
        plan_all(context, survey, {cells[1].id: "no record"}, Options(locked=True))
    assert plan_all(context, survey, {}, Options(locked=True)).cells == {}


def test_an_image_that_several_versions_want_is_had_once() -> None:
    versions = [make_cell(REPRO, version=name).version for name in ("10.7.0", "10.8.0", "10.9.0")]
    base = "example.org/b:1"
    build = Build(base=base, wheels=())
    made = ImageOrigin(image="trtmatrix/made:1", build=build, base=ImageOrigin(image=base))
    launches = [
        Launch(version=replace(version, origin=origin), gpu=H200, pull=not origin.build,
               build=bool(origin.build), cells=(make_cell(REPRO, version=version),))
        for version, origin in zip(versions, [PULLED, PULLED, made], strict=True)
    ]  # fmt: skip
    text = of_plan(Plan(launches=tuple(launches), excluded=(), boards=(H200,)))
    size = "its size is not known: it is not locked (nox -s lock -- --update)"
    assert text.count(f"  pulls example.org/a:1: {size}\n") == 1
    assert text.count("  shares the image of 10.7.0\n") == 1
    assert text.count(f"  pulls example.org/b:1: {size}\n  builds trtmatrix/made:1 from wheels\n") == 1
    assert "\nto fetch: 2 images, 10 to 34 GB each, downloaded in 1 to 5 min each at 1 Gbit/s\n" in text


def test_the_first_run_says_what_it_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go_nowhere(monkeypatch, tmp_path)
    selection = Selection(versions=("onnxruntime",), repros=("cumsum-axes",))
    context = open_context(ProjectOptions(selection=selection))
    survey = take_survey(context, Pull.NAMED)
    first = announce(context, survey.plan.launches, survey.host.engine)
    assert first == "7 tests to run; to fetch: 1 Python environment"


def test_a_gpu_whose_records_disagree_has_no_known_compute_capability() -> None:
    cells = [make_cell(REPRO, case) for case in REPRO.cases]
    gpus = [
        {"name": "NVIDIA H200", "compute": c, "driver": f"{n}"} for n, c in enumerate(("9.0", "8.9", None))
    ]
    stored = [Stored(record=make_record(c, gpu=g), local=True) for c, g in zip(cells, gpus, strict=True)]
    assert recorded_gpus(stored)["h200"].compute is None
    assert recorded_gpus(stored)["h200"].driver == "0, 1, 2"
    assert recorded_gpus([stored[0], stored[2]])["h200"].compute == "9.0"


def test_equal_boards_are_named_once() -> None:
    host = Host(engine=Engine(available=True), gpus=tuple(replace(H200, index=n) for n in range(8)))
    absent = make_cell(gpu=Gpu(slug="l4", name="NVIDIA L4"))
    assert exclude(absent, host, Selection(), Pull.NEVER) == (
        Exclusion.OTHER_GPU,
        "this host has NVIDIA H200",
    )


# Which versions are shown without being asked for.
AGREED = ["8.6.1", "9.2.0", "9.3.0", "10.0.0", "10.0.1.6", "10.7.0", "10.8.0"]


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def project(folder: Path, *versions: str) -> Context:
    """The project itself, without any record."""
    options = ProjectOptions(
        matrix=ROOT / "matrix.yaml", repros=ROOT / "repros", results=folder / "results", cache=folder,
        selection=Selection(versions=versions),
    )  # fmt: skip
    return open_context(options)


def shown(context: Context) -> list[str]:
    survey = take_survey(context, Pull.NEVER)
    assert {item.cell.version.name for item in survey.plan.excluded} <= {
        cell.version.name for cell in survey.cells
    }
    on_gpu = (cell.version for cell in survey.cells if cell.version.product is Product.TENSORRT)
    return list(dict.fromkeys(version.name for version in on_gpu))


def test_an_addition_is_shown_where_it_is_reported_of_named_or_measured(tmp_path: Path) -> None:
    names = set(shown(project(tmp_path)))
    assert {*AGREED, "8.5.1.7", "10.3.0", "10.11.0", "10.13.3"} <= names, "of 10.0.0 nobody reports"
    assert not {"10.9.0", "10.14.1", "10.16.0", "11.0.0", "11.1.0", "11.2.1"} & names
    assert shown(project(tmp_path, "10.8.0", "11.2.1")) == ["10.8.0", "11.2.1"]
    write_record(tmp_path / "results", make_record(make_cell(make_repro(), version="11.2.1", gpu=H200)))
    assert "11.2.1" in shown(project(tmp_path))


# In which order launches start, how one is split over boards, which cases are prepared together.
CELLS = [make_cell(REPRO, case) for case in REPRO.cases]


def took(cell: Cell, seconds: int, day: int = 1) -> Stored:
    """A stored record of a cell that took so long."""
    start = f"2025-01-{day:02}T00:00:"
    record = make_record(cell, started=f"{start}00.000Z", finished=f"{start}{seconds:02}.000Z")
    return Stored(record=record, local=True)


def test_a_cell_takes_as_long_as_last_time_on_any_gpu() -> None:
    elsewhere = make_cell(REPRO, REPRO.cases[0], gpu=Gpu(slug="l4", name="L4"))
    seconds = estimate_seconds(CELLS, [took(CELLS[0], 40), took(elsewhere, 10, day=2), took(CELLS[1], 30)])
    assert [seconds[cell.id] for cell in CELLS] == [10, 30, 20], "of what is not known: the average"


def test_a_case_takes_as_long_as_on_another_version() -> None:
    other = replace(make_cell(REPRO, REPRO.cases[2]), version=make_version("10.8.0"))
    seconds = estimate_seconds(CELLS, [took(CELLS[0], 10), took(other, 50, day=2)])
    assert [seconds[cell.id] for cell in CELLS] == [10, 30, 50]


def launch(name: str, *cells: Cell, pull: bool = False) -> Launch:
    version = make_version(name)
    moved = tuple(replace(cell, version=version) for cell in cells)
    return Launch(version=version, gpu=H200, cells=moved, pull=pull)


def test_what_is_here_starts_first_and_then_the_longest() -> None:
    small, large = launch("10.7.0", CELLS[0]), launch("10.8.0", *CELLS)
    far, farther = launch("10.9.0", *CELLS, pull=True), launch("10.6.0", CELLS[0], pull=True)
    for launches, seconds, ordered in (
        ([farther, small, far, large], {}, [large, small, far, farther]),
        ([large, small], {cell.id: 100.0 for cell in small.cells}, [small, large]),
    ):
        assert order_launches(launches, seconds, lambda launch: not launch.pull) == ordered


@settings(max_examples=50)
@given(
    st.lists(st.just(0.0) | st.floats(0.1, 50), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 4)
)
def test_a_split_loses_nothing_and_is_balanced(times: list[float], parts: int, repros: int) -> None:
    owners = [make_repro(make_case("x"), id=f"repro{n}") for n in range(repros)]
    cells = [make_cell(owners[n * repros // len(times)], make_case(f"c{n}")) for n in range(len(times))]
    whole = launch("10.7.0", *cells)
    seconds = {cell.id: time for cell, time in zip(whole.cells, times, strict=True)}
    split = split_launch(whole, parts, seconds)
    assert 1 <= len(split) <= min(parts, len(times)), "cells that are over at once may stay together"
    assert sorted(cell.id for part in split for cell in part.cells) == sorted(cell.id for cell in whole.cells)
    place = {cell.id: n for n, cell in enumerate(whole.cells)}
    assert all([place[c.id] for c in part.cells] == sorted(place[c.id] for c in part.cells) for part in split)
    totals = [sum(seconds[cell.id] for cell in part.cells) for part in split]
    ideal = sum(times) / min(parts, len(times))
    assert max(totals) <= (ideal + max(*times, ideal / 2)) * 1.000001


def test_a_launch_without_cells_has_no_part() -> None:
    """As where each of its cells has a GPU to itself, and comes later."""
    assert split_launch(launch("10.7.0", make_cell()).of(()), 0, {}) == []


def test_cells_that_build_the_same_engine_stay_together() -> None:
    """As the newest records say, of whatever version; a cell may join two groups to one."""
    engines = {"c0": "x", "c1": "y", "c2": "z", "c4": "x y", "c5": "z"}
    repro = make_repro(*(make_case(f"c{number}") for number in range(7)))
    cells = [make_cell(repro, case) for case in repro.cases]
    stored = []
    for case in repro.cases:
        for version, names in (("8.6.0", engines.get(case.id, "")), ("8.5.3.1", "old")):
            built = [{"name": name, "build_seconds": 1.0} for name in names.split()]
            record = make_record(make_cell(repro, case, version), engine={"engines": built})
            stored.append(Stored(record=replace(record, started=version), local=True))
    whole = launch("10.7.0", *cells)
    split = split_launch(whole, 7, {cell.id: 1.0 for cell in whole.cells}, stored)
    found = [[cell.case.id for cell in part.cells] for part in split]
    assert found == [["c0", "c1", "c4"], ["c2", "c5"], ["c3"], ["c6"]]


def test_cases_that_draw_the_same_numbers_go_together() -> None:
    cases = [make_case(name, noise_key=f"r:a=1 precision={name} queries=3") for name in ("tf32", "fp16")]
    alone = make_case("alone", noise_key="r:n=2 precision=fp16")
    repro = make_repro(alone, *cases)
    cells = [make_cell(repro, case, name) for name in ("10.7.0", "10.8.0") for case in repro.cases]
    assert [[cell.case.id for cell in group] for group in group_cases(cells)] == [["tf32", "fp16"], ["alone"]]


# Why cells are run, again or at all; what is not told a reason is served, and nothing else is.
CELL = make_cell(make_repro(make_case()))
NOW = {
    "repro": "a" * 32 + "b" * 32, "case": "c", "asked": "d", "probe": "e", "image": "sha256:" + "f" * 64,
    "runtime": "container",
}  # fmt: skip
GPU = {"name": H200.name, "variant": H200.variant, "driver": H200.driver}
SHARED: dict[str, Any] = {"worker": {"position": 4}}
PLAIN = Options()


def entry(*records: dict[str, Any], local: bool = True, excluded: bool = False) -> Entry:
    """What the cell shows of such records, the oldest first; they are current unless they say otherwise."""
    stored = []
    for number, more in enumerate(records):
        made = {
            "run": f"r{number}", "started": f"2026-11-2{number}T08:00:00.000Z", "digests": NOW, "gpu": GPU,
            **more,
        }  # fmt: skip
        stored.append(Stored(record=make_record(CELL, **made), local=local))
    reasons = [Excluded(cell=CELL, why=Exclusion.IMAGE_NOT_PULLED)] if excluded else []
    (made_entry,) = make_entries([CELL], stored, {CELL.id: NOW}, reasons)
    return made_entry


def changed(**digests: str) -> Entry:
    return entry({"digests": {**NOW, **digests}})


FEW, ALONE = Options(rebuilds=3), {"value": 9999.0, "others": (9999.0,) * 2, "confirms": "r0"}
DOUBTED: dict[str, Any] = {"value": 9999.0, **SHARED}
CHANGES: dict[str, Entry] = {
    "repro sdpa-scale": changed(repro="0" * 32 + "b" * 32),
    "what repros are built with (trtmatrix.authoring)": changed(repro="a" * 32 + "0" * 32),
    "parameters of sdpa-scale/sdpa-tf32": changed(case="0"),
    "defects, engines or time limit of sdpa-scale/sdpa-tf32": changed(asked="0"),
    "probe 0 → e": changed(probe="0"),
    "image 000000000000 → ffffffffffff": changed(image="sha256:" + "0" * 64),
    "runtime host → container": changed(runtime="host"),
    "driver 535.1 → 580.159": entry({"gpu": {**GPU, "driver": "535.1"}}),
    "GPU's variant 1g.18gb → none": entry({"gpu": {**GPU, "variant": "1g.18gb"}}),
    "repro sdpa-scale; parameters of sdpa-scale/sdpa-tf32; defects, engines or time limit of "
    "sdpa-scale/sdpa-tf32; probe ? → e; image ? → ffffffffffff; runtime ? → container":
    entry({"digests": {}}),
}  # fmt: skip
REASONS: list[tuple[Entry, Options, bool, str]] = [
    *((item, PLAIN, True, f"{what} changed since 2026-11-20") for what, item in CHANGES.items()),
    (make_unknown(CELL), PLAIN, True, "no record"),
    (entry({}, local=False), PLAIN, True, "its records were published, not measured here"),
    (entry({"ended": Cause.LAUNCHER_FAILED.value}), PLAIN, True,
     "the last run failed for a reason that may be gone: launcher failed"),
    (entry({}), FEW, True, "1 engine of the 3 asked for (--rebuilds)"),
    (entry(DOUBTED), PLAIN, True,
     "it must be confirmed by 3 engines in a fresh process (FAIL (1 build))"),
    (entry({}), Options(rerun=True), True, "--rerun"),
    (entry(DOUBTED, ALONE), PLAIN, False, "confirmed"), (entry({}), PLAIN, False, "served"),
    (entry({"ended": "crashed"}), PLAIN, False, "a fact"),
    (entry(DOUBTED, excluded=True), PLAIN, False, "not here"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "options", "again", "words"), REASONS, ids=[words for *_, words in REASONS]
)
def test_what_has_a_reason_is_not_served(shown: Entry, options: Options, again: bool, words: str) -> None:
    reason = find_reasons([shown], options, {shown.cell.id: NOW}).get(shown.cell.id)
    assert reason == (words if again else None)
    assert bool(find_reasons([shown], options)) is again


def why(folder: Path, stored: list[Stored]) -> tuple[str, Cell, dict[str, str]]:
    """Why the one cell of a folder's repro is run by ONNX Runtime, the cell, and its digests now."""
    repros = {item.repro.id: item for item in read_repros(folder)}
    matrix = replace(make_matrix(), versions=(make_cell(version="onnxruntime-1.31.1").version,))
    cells = expand(matrix, [item.repro for item in repros.values()], [NO_GPU], Selection())
    plan = make_plan(cells, NOTHING_HERE, Selection(), Pull.NEVER)
    survey, context = surveyed(plan, *cells, stored=stored, matrix=matrix, repros=repros, controls=False)
    digests = digests_now(context, survey)
    reasons = find_reasons(entries_of(context, survey, survey.stored), PLAIN, digests)
    return "".join(reasons.values()), cells[0], dict(digests[cells[0].id])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def cases", "# a comment\ndef cases", ""), ('"a title"', '"another"', ""),
        ('{"sum_abs": 1.0}', '{"sum_abs": 3.0}', ""), ('"n": 1', '"n": 2', "parameters of a/plain changed"),
        ('"limits"', '"seconds": 9, "limits"', "defects, engines or time limit of a/plain changed"),
        ("trt):\n    return {}", "trt):\n    return {1: 2}", "repro a changed"),
    ],
)  # fmt: skip
def test_only_what_a_run_can_see_has_a_cell_run_again(old: str, new: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    said, cell, digests = why(tmp_path, [])
    assert (said, SOURCE.count(old)) == ("no record", 1)
    made = make_record(cell, run="r0", started="2026-11-20T08:00:00.000Z", digests=digests)
    (tmp_path / "a.py").write_text(SOURCE.replace(old, new))
    again = why(tmp_path, [Stored(record=made, local=True)])[0]
    assert again == (f"{words} since 2026-11-20" if words else "")


AGAIN = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip


@pytest.mark.parametrize("cause", Cause)
def test_what_may_come_out_otherwise_is_tried_again(cause: Cause) -> None:
    assert bool(find_reasons([entry({"ended": cause.value})], PLAIN)) is (cause in AGAIN)


LOCK = Pin(manifest="sha256:m", ids=("sha256:c", "sha256:m", "sha256:i"))


@pytest.mark.parametrize("ids", [frozenset[str](), frozenset({"sha256:c"})])
def test_a_locked_image_is_known_also_where_it_is_gone(ids: frozenset[str]) -> None:
    origin = ImageOrigin(image="nvcr.io/nvidia/pytorch:24.12-py3", pin=LOCK)
    cell = make_cell(version=replace(CELL.version, origin=origin), gpu=H200)
    wanted = origin_digests(cell, Host(engine=Engine(available=True, ids=ids), gpus=(H200,)), on_host=False)
    for image, current in (("sha256:c", True), ("sha256:m", True), ("sha256:old", False)):
        record = make_record(cell, digests={"runtime": "container", "image": image}, gpu=GPU)
        assert is_current(record, wanted, cell) is current
        assert bool(find_changes(record, wanted, cell)) is not current
