"""Which versions are shown without being asked for, and what the repros say of the newest ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.speed.machine import ROOT
from builders import H200, make_cell, make_record, make_repro

from trtmatrix.judge.entry import find_expectation
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.records.store import write_record
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.model import NO_GPU, Basis, Product, Verdict
from trtmatrix.suite.plan import Pull

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


def test_an_addition_is_shown_where_somebody_reports_of_it_or_where_it_is_named(tmp_path: Path) -> None:
    context = project(tmp_path)
    names = shown(context)
    assert set(AGREED) <= set(names), "10.0.0 is shown though nobody reports of it"
    assert {"8.5.1.7", "10.3.0", "10.11.0", "10.13.3"} <= set(names)
    assert not {"10.9.0", "10.14.1", "10.16.0", "11.0.0", "11.1.0", "11.2.1"} & set(names)
    assert shown(project(tmp_path, "10.8.0", "11.2.1")) == ["10.8.0", "11.2.1"]


def test_an_addition_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    assert "11.2.1" not in shown(project(tmp_path))
    record = make_record(make_cell(make_repro(), version="11.2.1", gpu=H200))
    write_record(tmp_path / "results", record)
    assert "11.2.1" in shown(project(tmp_path))


def test_the_repros_say_of_new_versions_what_their_sources_do(tmp_path: Path) -> None:
    context = project(tmp_path)
    for name, wanted, version, expected in (
        ("cumsum-axes", "two-axes-4x2", "10.7.0", (Verdict.PASS, Basis.ASSUMED)),
        ("cumsum-axes", "two-axes-4x2", "10.11.0", (Verdict.FAIL, Basis.REPORTED)),
        ("transpose-constant", "constant-int32", "8.5.2.2", None),
        ("gemv-pair", "mlp-fp32", "11.0.0", (Verdict.FAIL, Basis.ASSUMED)),
    ):
        repro = context.repros[name].repro
        case = next(case for case in repro.cases if case.id.startswith(wanted))
        said = find_expectation(make_cell(repro, case, context.matrix.version(version), NO_GPU))
        assert (said and (said.verdict, said.basis)) == expected, (name, version)
