"""What is said before a run: what ``run --plan`` prints, what is fetched and what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, make_case, make_cell, make_matrix, make_repro
from nowhere import go_nowhere

from trtmatrix.common.paths import Project, default_cache
from trtmatrix.images.downloads import image_words
from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import Survey, take_survey
from trtmatrix.run.perform import Options, announce
from trtmatrix.run.planned import plan_all, plan_text
from trtmatrix.suite.cells import Cell, Selection
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.model import NO_GPU, Exclusion
from trtmatrix.suite.plan import Engine, Excluded, Host, Launch, Plan, Pull

REPRO = make_repro(make_case("a"), make_case("b"), make_case("c"))
PULLED = ImageOrigin(image="example.org/a:1")
ASKED, BESIDE, LEFT_OUT = (make_cell(REPRO, case, "onnxruntime-1.31.1") for case in REPRO.cases)


def printed(*cells: Cell, excluded: tuple[Excluded, ...] = ()) -> str:
    launch = Launch(version=ASKED.version, gpu=ASKED.gpu, cells=cells)
    return of_plan(Plan(launches=(launch,), excluded=excluded))


def of_plan(plan: Plan) -> str:
    cells = tuple(cell for launch in plan.launches for cell in launch.cells)
    host, scan = Host(engine=Engine(available=False)), GpuScan(gpus=(), reason="none")
    survey = Survey(host=host, scan=scan, cells=cells, plan=plan, stored=())
    cache = default_cache()
    project = Project(matrix=cache, repros=cache, results=cache, cache=cache)
    matrix = make_matrix()
    context = Context(project=project, matrix=matrix, repros={}, selection=Selection(), pythons=())
    reasons = {cell.id: "no record" for cell in cells}
    return plan_text(plan_all(context, survey, reasons, Options())) + "\n"


def test_the_plan_is_in_the_order_of_the_run_and_counts_equal_boards() -> None:
    cells = [make_cell(REPRO, case, version) for version in ("10.7.0", "10.8.0") for case in REPRO.cases]
    short, far, long = (
        Launch(version=cells[n].version, gpu=H200, cells=tuple(cells[n:m]), pull=pull, python="python3")
        for n, m, pull in ((0, 1, False), (0, 3, True), (3, 6, False))
    )
    boards = (H200, replace(H200, index=1))
    text = of_plan(Plan(launches=(far, short, long), excluded=(), boards=boards))
    assert [line for line in text.splitlines() if " on NVIDIA H200: " in line] == [
        "10.8.0 on NVIDIA H200: run 3 cells in python3",
        "10.7.0 on NVIDIA H200: run 1 cells in python3",
        "10.7.0 on NVIDIA H200: pull, then run 3 cells in python3",
    ]
    assert text.count("on any of 2 equal boards; the command names the first") == 3


def test_controls_that_go_along_or_are_not_run_and_reasons_are_counted() -> None:
    beside = "  1 of those to run were not selected: they control the others (--no-controls)\n"
    assert beside in printed(ASKED, replace(BESIDE, companion=True))
    assert "not selected" not in printed(ASKED, BESIDE)
    assert "  2 cells because: no record\n" in printed(ASKED, BESIDE)
    cells = (replace(BESIDE, companion=True), LEFT_OUT, LEFT_OUT)
    excluded = tuple(Excluded(cell=cell, why=Exclusion.NO_GPU) for cell in cells)
    assert printed(ASKED, excluded=excluded).splitlines()[-2:] == [
        "not run: 2 cells: no NVIDIA GPU here", "controls not run: 1 cells: no NVIDIA GPU here",
    ]  # fmt: skip


def test_an_image_that_several_versions_want_is_had_once() -> None:
    versions = [make_cell(REPRO, version=name).version for name in ("10.7.0", "10.8.0", "10.9.0")]
    made = ImageOrigin(image="trtmatrix/made:1", build=Build(base="example.org/b:1", wheels=()))
    launches = [
        Launch(version=replace(version, origin=origin), gpu=H200, pull=not origin.build,
               build=bool(origin.build), cells=(make_cell(REPRO, version=version),))
        for version, origin in zip(versions, [PULLED, PULLED, made], strict=True)
    ]  # fmt: skip
    text = of_plan(Plan(launches=tuple(launches), excluded=(), boards=(H200,)))
    size = "its size is not known: it is not locked (nox -s lock -- --update)"
    assert text.count(f"  pulls example.org/a:1: {size}\n") == 1
    assert text.count("  its image is had for 10.7.0\n") == 1
    assert text.count(f"  pulls example.org/b:1: {size}\n  builds trtmatrix/made:1 from wheels\n") == 1
    assert "\nto fetch: 2 images, 10 to 34 GB each, downloaded in 1 to 5 min each at 1 Gbit/s\n" in text


def test_the_first_run_says_what_it_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go_nowhere(monkeypatch, tmp_path)
    selection = Selection(versions=("onnxruntime",), repros=("cumsum-axes",))
    context = open_context(ProjectOptions(selection=selection))
    survey = take_survey(context, Pull.NAMED)
    first = announce(context, survey.plan.launches, survey.host.engine)
    assert first == (
        "7 tests to run; to fetch: 1 Python environment, about 210 MB; "
        f"about 248 MB will be kept in {tmp_path}/cache"
    )
    (tmp_path / "cache" / "cases").mkdir(parents=True)
    assert "about 210 MB will be kept" in announce(context, survey.plan.launches, survey.host.engine)


IMAGES_TO_FETCH = {
    ("10.7.0",): "1 image, 10 to 34 GB, downloaded in 1 to 5 min at 1 Gbit/s",
    ("10.7.0", "10.8.0"): "2 images, 10 to 34 GB each, downloaded in 1 to 5 min each at 1 Gbit/s",
    ("8.5.3.1", "8.6.0"): "2 images to build",
    (): "",
}


def test_images_that_are_not_here_are_counted_with_their_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go_nowhere(monkeypatch, tmp_path)
    context = open_context(ProjectOptions())
    engine = take_survey(context, Pull.ALL).host.engine
    launches = {
        version.name: Launch(version=version, gpu=NO_GPU, cells=(), pull=True)
        for version in context.matrix.versions
    }
    for names, words in IMAGES_TO_FETCH.items():
        assert image_words([launches[name] for name in names], context.lock, engine) == words
