"""The command upgrade: what it refuses, prints and writes, the exit code, and golden reports."""

import json
import re
import shlex
from pathlib import Path

import pytest
from builders import H200
from goldenfile import check_golden
from nowhere import ROOT, go_nowhere

from trtmatrix.cli import entry as cli
from trtmatrix.cli.entry import parse
from trtmatrix.common.errors import UsageError
from trtmatrix.plan.survey import choose_gpu
from trtmatrix.suite.model import Gpu

MOVE = ["upgrade", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4"]


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The project itself, without an engine, its cache elsewhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))


MEANINGLESS = [
    "--trt 10.7.0", "--gpu H200", "--repro sdpa-scal", "--check accept.py", "--code /no/such/folder",
    "--atol 0", "-o report.pdf", "--max-slowdown 0.9", "--to 10.8.1", "--from 10.0.1",
    "--to tensorrt-rtx-1.7",
]  # fmt: skip


def test_what_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert {cli.run([*MOVE, *words.split()]) for words in MEANINGLESS} == {2}
    told = re.sub(r"8\.5\.1\.7(, [\w.-]+)+", "8.5.1.7, …", capsys.readouterr().err)
    check_golden("upgrade/refused.txt", told)


def test_several_models_are_told_how_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*MOVE, "--model", "a.onnx", "--model", "my b.onnx"]) == 2
    told = capsys.readouterr().err
    assert "one model at a time; several: --models a.onnx --models 'my b.onnx'" in told
    assert cli.run(["run", "--model", "a.onnx", "--model", "b.onnx"]) == 2
    assert "--models" not in capsys.readouterr().err


def test_help_lists_the_versions_of_this_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["upgrade", "--help"]) == 0
    text = capsys.readouterr().out
    versions = text.partition("Versions of matrix.yaml for --from and --to")[2]
    names = set(re.findall(r"[\w.-]+", versions))
    assert {"8.6.0", "10.8.0", "tensorrt-rtx-1.7", "onnxruntime-1.31.1"} <= names
    assert max(map(len, versions.splitlines())) <= 80
    assert not re.search(r"--(trt|runtime|python)\b", text), "they are refused"
    assert "--gpu GPU" in text
    monkeypatch.chdir(tmp_path)
    for content in (None, "versions: [", "schema: 1\n"):  # none, and mistakes
        if content is not None:
            Path("matrix.yaml").write_text(content)
        assert cli.run(["upgrade", "--help"]) == 0
        printed = capsys.readouterr()
        assert "--from VERSION" in printed.out
        assert "Versions of" not in printed.out + printed.err


def test_an_answer_needs_a_gpu() -> None:
    with pytest.raises(UsageError, match="no GPU is in this host: name the GPU that you deploy on"):
        choose_gpu([], [], [])
    other = Gpu(slug="nvidia-l4", name="NVIDIA L4", index=1)
    with pytest.raises(UsageError, match="this host has "):
        choose_gpu([], [H200, other], [])
    assert choose_gpu([], [H200, H200], []) == H200
    named = choose_gpu(["L4"], [H200], [])
    assert (named.compute, named.datacenter, named.present) == ("8.9", True, False)


def test_json_and_files_hold_the_same_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"report{suffix}" for suffix in (".json", ".md", ".html")]
    assert cli.run([*MOVE, "--repro", "sdpa-scale", "--json", *(f"-o{file}" for file in files)]) == 12
    printed = json.loads(capsys.readouterr().out)
    assert printed["decision"] == json.loads(files[0].read_text())["decision"]
    assert all("10.8.0" in file.read_text() for file in files)
    assert "GMT" not in files[1].read_text()


def test_the_command_is_told_as_it_was_given() -> None:
    words = ["--repro", "sdpa-scale", "--results", "my results", "--code", "src", "--no-run"]
    words += ["--max-slowdown", "1.2", "--max-build-slowdown", "2.0", "--no-performance"]
    options = parse([*MOVE, *words])[1]
    assert options.command == (
        "nox -s upgrade -- --from 10.7.0 --to 10.8.0 --gpu L4 --repro sdpa-scale --code src "
        "--max-slowdown 1.2 --max-build-slowdown 2.0 --no-run --no-performance --results 'my results'"
    )
    assert parse(["upgrade", *shlex.split(options.command)[4:]])[1] == options


MOVES = [
    ("8.6.1", "9.3.0", "L4", 11), ("10.0.1.6", "10.7.0", "L4", 11), ("10.7.0", "10.8.0", "L4", 12),
    ("8.5.3.1", "8.6.0", "H200", 10), ("8.6.0", "8.5.3.1", "H200", 11), ("10.4.0", "10.7.0", "V100", 11),
    ("tensorrt-rtx-1.4", "tensorrt-rtx-1.7", "", 12),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "gpu", "code"), MOVES)
def test_reports_from_the_shipped_records(
    before: str, after: str, gpu: str, code: int,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each was read by eye as one who must decide."""
    go_nowhere(monkeypatch, tmp_path)
    words = ["upgrade", "--full", "--from", before, "--to", after, *(["--gpu", gpu] if gpu else [])]
    assert cli.run(words) == code
    text = capsys.readouterr().out
    assert not re.search(r"/(tmp|home|root|work)/", text)
    name = f"{before}-to-{after}{f'-{gpu}' if gpu else ''}"
    if before != "8.5.3.1":  # one is enough with all of its cases
        text = re.sub(r"<details>.*?</details>\n\n", "", text, flags=re.DOTALL)
    check_golden(f"upgrade/{name.lower()}.md", text)
