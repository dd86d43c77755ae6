"""The command line's last resort, its small parsers, and the JSON Schema that is committed."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from builders import make_cell, make_entry, make_record, make_unknown
from commandline import options_of, project_of

from trtmatrix.cli import commands
from trtmatrix.cli import entry as cli
from trtmatrix.cli.commands import run_codes
from trtmatrix.common.errors import ExitCode
from trtmatrix.launchers.wheels import find_tensorrt
from trtmatrix.run.perform import Result
from trtmatrix.slurm.sitefile import EXAMPLE
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Excluded


def test_an_unexpected_error_is_trouble_with_the_machinery_and_no_surprise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: object) -> ExitCode:
        raise ZeroDivisionError(options)

    monkeypatch.setattr(commands, "schema_command", broken)
    assert cli.run(["schema"]) is ExitCode.MACHINERY
    assert "mistake in trtmatrix itself" in capsys.readouterr().err


def test_an_exit_code_that_cannot_be_left_is_no_surprise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRTMATRIX_EXIT_CODE_FILE", "/nowhere/code")
    with pytest.raises(SystemExit) as end:
        cli.main(["schema"])
    assert end.value.code == ExitCode.MACHINERY
    assert "TRTMATRIX_EXIT_CODE_FILE: " in capsys.readouterr().err


@pytest.mark.parametrize("said", ["", "\\377"])
def test_what_is_no_python_has_no_tensorrt(said: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    program.chmod(0o755)
    assert str(program) not in find_tensorrt(["/nowhere", str(program)]).get("", "")


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("4k", 4096), ("2m", 2 << 20), ("32G", 32 << 30)])
def test_sizes(text: str, size: int) -> None:
    limits = options_of("run", "--memory", text).how.limits
    assert limits.memory == size
    assert limits.scratch <= size, "a container's scratch is memory too"


def test_failures_are_confirmed_and_controls_go_along_unless_it_is_said() -> None:
    assert options_of("run").how.confirm
    assert not options_of("run", "--no-confirm").how.confirm
    for command in ("run", "table"):
        assert [project_of(command, *words).controls for words in ([], ["--no-controls"])] == [True, False]


@pytest.mark.parametrize("companion", [True, False])
def test_a_control_that_cannot_be_made_ready_is_no_trouble(companion: bool) -> None:
    cell = replace(make_cell(version="onnxruntime-1.31.1"), companion=companion)
    lacking = Excluded(cell=cell, why=Exclusion.NOT_READY, detail="no network")
    entries = (make_entry(), make_unknown(cell, Exclusion.NOT_READY))
    record = make_record(make_cell())
    result = Result(entries=entries, served=frozenset(), records=(record,), not_ready=(lacking,))
    codes = run_codes(Selection(), (), result)
    assert (ExitCode.MACHINERY in codes) is not companion


@pytest.mark.parametrize(("words", "told"), [
    (["--memory=64g"], "its job reserves 36864m"), (["--runtime=host"], "are not run through Slurm"),
    (["--site=/nowhere/slurm.yaml"], "there is no /nowhere/slurm.yaml"),
    ([], "images of slurm.yaml: 10.99=lab/x:1: 10.99 runs in no image"),
])  # fmt: skip
def test_what_a_site_cannot_do_is_usage(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "slurm.yaml"
    text = EXAMPLE.replace("pyxis ", "docker").replace("/shared/me", str(tmp_path))
    site.write_text(text + 'images: {"10.99": "lab/x:1"}\n')
    code = cli.run(["run", "--executor=slurm", f"--site={site}", f"--results={tmp_path}", *words])
    assert code is ExitCode.USAGE
    assert told in capsys.readouterr().err


ROOT = Path(__file__).resolve().parents[3]
MATRIX, SCHEMA = ((ROOT / name).read_text(encoding="utf-8") for name in ("matrix.yaml", "matrix.schema.json"))


def test_the_committed_schema_is_the_generated_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    assert capsys.readouterr().out == SCHEMA, "renew it: python -m trtmatrix schema > matrix.schema.json"


BROKEN: dict[str, tuple[str, str]] = {
    "nothing": ("", ""), "unknown key": ("    library:", "    libary:"),
    "unquoted number": ('version: "8.5.1.7"', "version: 8.5"), "guessed": ("known: read", "known: guessed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_it_accepts_the_project_s_matrix_which_names_it_and_none_that_is_broken(name: str) -> None:
    schema = json.loads(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert MATRIX.startswith("# yaml-language-server: $schema=matrix.schema.json\n")
    old, new = BROKEN[name]
    assert old in MATRIX
    matrix = yaml.load(MATRIX.replace(old, new, 1), yaml.CSafeLoader)
    assert jsonschema.Draft202012Validator(schema).is_valid(matrix) is (name == "nothing")
