"""``bundle make`` by the real command line: what is in an archive, what is asked and what is refused."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from projects import ROOT

from tests.bundles.archives import read_files
from tests.bundles.conftest import RIGHT, WRONG, Made
from tests.calling import Done

H200 = "controls/wrong-scale-tf32@8.6.0#nvidia-h200"
FILES = ["ISSUE.md", "SHA256SUMS", "inputs.npz", "model.onnx", "reference.npz", "repro.py"]


def make_published(made: Made, target: Path, cell: str, *words: str) -> Done:
    files = [f"--{name}={ROOT / file}" for name, file in
             (("matrix", "matrix.yaml"), ("repros", "repros"), ("results", "results"))]  # fmt: skip
    cache = f"--cache={made.project.folder / 'cache'}"
    return made.project.call_bare("bundle", "make", cell, *files, cache, f"--to={target}", "--yes", *words)


def test_it_is_made_of_six_files_with_a_script_of_a_page_and_verified_from_itself_alone(made: Made) -> None:
    assert made.done.code == 0, made.done.told
    outcome = made.done.data["verify"]
    assert (outcome["verified"], outcome["code"], outcome["notes"]) == (True, 1, [])
    assert "WRONG" in outcome["said"]
    files = read_files(made.archive)
    assert sorted(files) == FILES
    assert files["repro.py"].count(b"\n") <= 120
    model = onnx.load_from_string(files["model.onnx"])
    assert [node.op_type for node in model.graph.node].count("MatMul") == 9
    inputs, reference = (np.load(io.BytesIO(files[name])) for name in ("inputs.npz", "reference.npz"))
    assert inputs["x"].shape[1:] == reference["y"].shape[1:]


def test_made_twice_it_is_the_same_bytes_and_runs_as_its_text_says(made: Made, tmp_path: Path) -> None:
    again = tmp_path / "attention.tar.gz"
    assert made.make(again, "--yes", "--no-verify").code == 0
    assert again.read_bytes() == made.archive.read_bytes()
    with tarfile.open(again) as packed:
        packed.extractall(tmp_path, filter="data")
    command, folder = [sys.executable, "repro.py", "--onnxruntime"], tmp_path / "attention"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "this host's ONNX Runtime is right"
    assert "y: " in done.stdout
    assert done.stdout.count(": right\n") == 1


def test_without_a_terminal_it_says_at_once_which_option_is_missing(made: Made, tmp_path: Path) -> None:
    done = made.make(tmp_path / "x.tar.gz", "--no-verify")
    assert done.code == 2
    assert "add --yes" in done.told
    assert "What goes out:" not in done.told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_nothing_is_asked_after_the_answer(made: Made, tmp_path: Path, answer: str, code: int) -> None:
    """On a terminal one question is asked, before anything is computed; no second one is read."""
    ours, theirs = pty.openpty()
    words = ["bundle", "make", made.cell, *made.project.files, f"--to={tmp_path / 'x.tar.gz'}", "--no-verify"]
    child = made.project.start(*words, asked=theirs)
    os.write(ours, answer.encode())
    _, told = child.communicate(timeout=120)
    assert child.returncode == code
    assert told.count("[y/N]") == 1
    if code == 0:
        assert told.index("[y/N]") < told.index("What goes out:")
    assert [file.name for file in tmp_path.iterdir()] == (["x.tar.gz"] if code == 0 else [])


@pytest.mark.parametrize(("edit", "said"), [
    (lambda cell: cell.replace(WRONG, RIGHT), "it does not fail, it is PASS"),
    (lambda cell: cell.replace(WRONG, "onnxruntime-9"), "not listed; known are"),
    (lambda cell: cell.replace("#cpu", "#nvidia-l4"), "ends in #cpu"),
    (lambda cell: "controls/matmul-softmax-tf32@" + cell.partition("@")[2], "there is no record of it"),
    (lambda cell: "nothing/here@" + cell.partition("@")[2], "name it by --model"),
    (lambda cell: cell.partition("@")[0], "is no cell id"),
])  # fmt: skip
def test_a_cell_without_a_failure_is_told_with_what_to_type(
    made: Made, tmp_path: Path, edit: Callable[[str], str], said: str
) -> None:
    done = made.make(tmp_path / "x.tar.gz", "--yes", cell=edit(made.cell))
    assert done.code == 2
    assert said in done.told
    assert "Traceback" not in done.told
    assert not list(tmp_path.iterdir())


def test_a_record_of_another_host_makes_an_archive_too(made: Made, tmp_path: Path) -> None:
    done = make_published(made, tmp_path / "x.tar.gz", H200, "--no-verify", "--json")
    assert (done.code, done.data["verify"]) == (0, None), done.told
    files = read_files(tmp_path / "x.tar.gz")
    assert sorted(files) == FILES
    text = files["ISSUE.md"].decode()
    wanted = ("A control, not a bug report", "NVIDIA H200", "580.159.04", "trtexec --onnx=model.onnx")
    assert [words for words in wanted if words not in text] == []
    assert set(np.load(io.BytesIO(files["reference.npz"]))) == {"y", "lost-scale in y"}


@pytest.mark.parametrize(("cell", "words", "code", "said"), [
    (H200, (), 3, "--no-verify"),
    ("streams/producer-no-wait@8.6.0#nvidia-h200", ("--no-verify",), 2, "attach streams.py itself"),
])  # fmt: skip
def test_what_cannot_be_verified_here_or_one_graph_cannot_show_is_told_before_the_work(
    made: Made, tmp_path: Path, cell: str, words: tuple[str, ...], code: int, said: str
) -> None:
    done = make_published(made, tmp_path / "x.tar.gz", cell, *words)
    assert (done.code, said in done.told) == (code, True), done.told
    assert not list(tmp_path.iterdir())
