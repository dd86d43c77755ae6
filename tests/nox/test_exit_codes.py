"""Every exit code comes through nox as it is, and the sessions are what the README says."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
from projects import ROOT, files_of, matrix_text

from tests.waiting import wait_until

NOX = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py")]


@pytest.fixture(scope="module", autouse=True)
def _environments() -> None:
    for session in ("matrix", "table", "image"):
        subprocess.run([*NOX, "--install-only", "-s", session], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_matrix(tmp_path, onnxruntime.__version__)
    return tmp_path


def write_matrix(folder: Path, library: str) -> None:
    column = ("onnxruntime-1.0", {"wheels": [f"onnxruntime=={onnxruntime.__version__}", "numpy"]}, library)
    (folder / "matrix.yaml").write_text(matrix_text(column))


def command(session: str, folder: Path, *words: str) -> list[str]:
    return ["-R", "-s", session, "--", *files_of(folder, ROOT / "tests" / "nox" / "repros"), *words]


def nox(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NOX, *words], capture_output=True, text=True, check=False)


def call(session: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return nox(*command(session, folder, *words))


@pytest.mark.parametrize(("session", "case", "library", "code", "told"), [
    ("matrix", "plain", onnxruntime.__version__, 0, "PASS 0"),
    ("matrix", "expected-to-fail", onnxruntime.__version__, 1, "PASS!"),
    ("matrix", "plain", "0.0.1", 3, "pinned for 0.0.1"),
    ("table", "plain", onnxruntime.__version__, 4, ""),
])  # fmt: skip
def test_an_exit_code_comes_through(
    session: str, case: str, library: str, code: int, told: str, project: Path
) -> None:
    write_matrix(project, library)
    done = call(session, project, "--case", case)
    assert done.returncode == code, done.stderr
    assert told in done.stdout


@pytest.mark.parametrize("words", [("--trt", "10.7"), ("--extra=what",)])
def test_usage_is_2(project: Path, words: tuple[str, ...]) -> None:
    done = call("matrix", project, *words)
    assert done.returncode == 2, done.stderr
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [(["version(10.7.0)", "table"], ""), (["bundle", "make", "CELL"], "nox -s bundle -- make CELL")],
)
def test_who_forgets_the_dashes_is_given_the_right_line(words: list[str], line: str) -> None:
    done = nox("--list", "-s", *words)
    assert ("for trtmatrix, after --: " + line in done.stderr) is bool(line), done.stderr


def test_models_of_one_s_own_have_what_their_reference_needs(tmp_path: Path) -> None:
    installed: list[tuple[str, ...]] = []
    session = SimpleNamespace(
        install=lambda *words: installed.append(words), create_tmp=lambda: str(tmp_path),
        run=lambda *_words, **_more: None,
    )  # fmt: skip
    call_trtmatrix = runpy.run_path(str(ROOT / "noxfile.py"))["_call"]
    for word in ("--model", "--models=folder", "--gpu"):
        call_trtmatrix(session, "upgrade", word)
    assert [words[1] for words in installed] == [".[model]", ".[model]", "."]


@pytest.mark.parametrize("words", [(), ("10.7.0",)])
def test_an_image_that_is_not_made_here_is_2(words: tuple[str, ...]) -> None:
    done = nox("-R", "-s", "image", "--", *words)
    assert done.returncode == 2, done.stderr
    assert "docker/wheels/build: " in done.stdout + done.stderr


def test_interrupted_is_130_and_the_next_run_goes_on(project: Path) -> None:
    running = subprocess.Popen(
        [*NOX, *command("matrix", project, "--case", "plain,slow")], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: list((project / "results").rglob("*.json")), 60, "the first record")
    time.sleep(1)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=30) == 130
    done = call("matrix", project, "--case", "plain", "--json")
    assert done.returncode == 0
    cells = json.loads(done.stdout[done.stdout.index("{") :])["cells"]
    assert [cell["executed"] for cell in cells] == [False]


def test_every_version_of_the_matrix_has_a_session() -> None:
    listed = nox("-l").stdout
    for name in ("8.6.1", "9.2.0", "9.3.0", "10.0.0", "10.0.1.6", "10.7.0", "10.8.0", "tensorrt-rtx-1.7"):
        assert f"version({name})" in listed


def test_a_benchmark_that_is_not_there_is_told_with_those_that_are() -> None:
    done = nox("-R", "-s", "bench", "--", "nothing")
    assert done.returncode == 1
    assert "no benchmark nothing: known are" in done.stderr
    known = done.stderr.split("known are ")[1].splitlines()[0].rstrip(".").split(", ")
    assert {"calibrate", "speed", "verdicts"} <= set(known)
    assert not {"groups", "registry", "throttle"} & set(known)


@pytest.mark.parametrize("text", ["versions: [\n", "schema: 2020-13-45\n"])
def test_a_broken_matrix_does_not_break_the_door(text: str, tmp_path: Path) -> None:
    noxfile = tmp_path / "noxfile.py"
    noxfile.write_text((ROOT / "noxfile.py").read_text())
    (tmp_path / "matrix.yaml").write_text(text)
    done = nox("-f", str(noxfile), "-l")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
