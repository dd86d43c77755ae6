"""How upgrade uses its parts: the API's section and the user's model, by stand-ins."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nowhere import go_nowhere
from onnxmodels import mlp, saved

from trtmatrix.api import section
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Certainty, ChangeKind
from trtmatrix.cli import entry as cli
from trtmatrix.judge.compare import Entry
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey, entries_of
from trtmatrix.run import perform
from trtmatrix.run.perform import Options, Result
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import ModelSection

ROOT = Path(__file__).parents[3]
MOVE = ["upgrade", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4"]
CHANGE = ApiChange(name="ICudaEngine.num_bindings", kind=ChangeKind.REMOVED, replacement="num_io_tensors")
Asked = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The project itself, without an engine, its cache elsewhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A stand-in for the comparison of APIs, which finds one removed call where code is named."""
    asked: Asked = []

    def make_api_section(results: Path, before: str, after: str, code: Sequence[Path]) -> ApiSection:
        asked.append((str(results), before, after, list(map(str, code))))
        use = ApiUse(file="run.py", line=3, change=CHANGE, certainty=Certainty.SURE)
        named = tuple(str(path) for path in code)
        return ApiSection(changes=(CHANGE,), code=named, uses=(use,) if code else (), files=len(code))

    monkeypatch.setattr(section, "make_api_section", make_api_section)
    return asked


def test_the_api_alone_needs_no_gpu_and_is_no_answer(api: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*MOVE[:5], "--api"]) == 0
    assert capsys.readouterr().out.startswith("API: 1 removed\n")
    assert cli.run([*MOVE[:5], "--api", "--json", "--code", "src"]) == 11
    printed = json.loads(capsys.readouterr().out)
    assert (printed["exit_code"], printed["changes"][0]["kind"]) == (11, "removed")
    assert [asked[1:] for asked in api] == [("10.7.0", "10.8.0", []), ("10.7.0", "10.8.0", ["src"])]


def test_code_is_scanned_for_the_version_moved_to_alone(
    api: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["upgrade", "--full", "--from", "8.6.1", "--to", "any", "--gpu", "L4", "--code", "src"]
    assert cli.run(words) == 11, "go, don't or not enough: the code must change first"
    assert [asked[2] for asked in api] == ["10.8.0"]
    out = capsys.readouterr().out
    assert "your code: change 1 line first (exit code 11), the first in run.py:3" in out
    assert "REMOVED ICudaEngine.num_bindings" in out


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """A stand-in for the user's model: one of the repros; running it is only noted, its graph is read."""
    done: Asked = []
    go_nowhere(monkeypatch, tmp_path)
    saved(mlp(), Path("my.onnx"))

    def open_model(context: Context, args: argparse.Namespace) -> Context:
        done.append(("open", context.selection.versions, str(args.model)))
        return context

    def make_model_section(
        context: Context, entries: Sequence[Entry], before: str, after: str, *_: object
    ) -> ModelSection:
        repro = context.repros["sdpa-scale"].repro
        line = make_case_line(repro.id, repro.cases[0], Entries(entries), before, after, own=True)
        return ModelSection(
            name="my.onnx", repro=repro.id, facts=(), reference="float32", floor="a floor", cases=(line,)
        )

    def run(context: Context, survey: Survey, options: Options) -> Result:
        done.append(("run", options.rebuilds))
        entries = entries_of(context, survey, survey.stored)
        return Result(entries=entries, served=frozenset())

    own_model, section = ModuleType("own_model"), ModuleType("section")
    own_model.open_model = open_model  # type: ignore[attr-defined] # a module made here
    section.make_model_section = make_model_section  # type: ignore[attr-defined] # as above
    monkeypatch.setitem(sys.modules, "trtmatrix.model.own_model", own_model)
    monkeypatch.setitem(sys.modules, "trtmatrix.upgrade.model_section", section)
    monkeypatch.setattr(perform, "perform", run)
    return done


@pytest.mark.parametrize(("words", "ran"), [([], [("run", 3)]), (["--no-run"], [])])
def test_the_model_is_run_at_both_versions_unless_told_not_to(
    words: list[str], ran: Asked, model: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*MOVE, "--full", "--model", "my.onnx", *words]) == 12
    assert model == [("open", ("10.7.0", "10.8.0"), "my.onnx"), *ran]
    out = capsys.readouterr().out
    assert "model       my.onnx (sdpa-scale)" in out
    command = "nox -s upgrade -- --from 10.7.0 --to 10.8.0 --gpu L4 --model my.onnx --precision tf32"
    assert command in " ".join(out.replace("\\\n", " ").split())
    assert "Your own model: --model" not in out


def test_with_any_version_the_model_is_run_at_the_chosen_one_alone(model: Asked) -> None:
    assert cli.run(["upgrade", "--from", "8.6.1", "--to", "any", "--gpu", "L4", "--model", "my.onnx"]) == 12
    assert model == [("open", ("8.6.1", "10.8.0"), "my.onnx"), ("run", 3)]
