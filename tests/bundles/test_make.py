"""``bundle make`` and ``verify`` by the real command line: what is in an archive, and what is refused."""

import io
import os
import pty
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import docker
import numpy as np
import onnx
import pytest
from projects import ROOT

from tests.bundles.archives import change, flip, put, read_files, write_files
from tests.bundles.conftest import RIGHT, WRONG, Made, containers_below, refused
from tests.calling import Done
from tests.models import images
from tests.waiting import wait_until

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


def test_an_archive_is_verified_from_itself_alone(made: Made, tmp_path: Path) -> None:
    archive = tmp_path / "moved and renamed.tar.gz"
    archive.write_bytes(made.archive.read_bytes())
    done = made.verify(archive)
    assert done.code == 0, done.printed
    assert done.data["verified"]
    assert [file.name for file in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("name", ["model.onnx", "SHA256SUMS"])
def test_one_byte_that_was_changed_is_named(made: Made, tmp_path: Path, name: str) -> None:
    flipped = {name: flip(-60 if name != "SHA256SUMS" else 3)}
    outcome = refused(made, change(made.archive, tmp_path / "a.tar.gz", flipped, sums=False))
    assert outcome["code"] is None
    assert name == "SHA256SUMS" or any(name in problem for problem in outcome["problems"])


def test_a_failure_that_does_not_come_back_is_told(made: Made, tmp_path: Path) -> None:
    client = docker.from_env()
    wrong, right = (str(client.images.get(name).id) for name in (images.DEFECTIVE, images.CURRENT))
    archive = change(made.archive, tmp_path / "a.tar.gz", {"repro.py": put(wrong, right)}, sums=True)
    outcome = refused(made, archive)
    assert outcome["problems"] == ["the failure did not come back"]
    assert outcome["code"] == 0
    assert ": right" in outcome["said"]


def test_an_error_of_another_size_is_told(made: Made, tmp_path: Path) -> None:
    files = read_files(made.archive)
    script = files["repro.py"].decode()
    number = script.partition("'wrong': {'y': (")[2].partition(",")[0]
    files["repro.py"] = script.replace(f"'y': ({number}, {number})", "'y': (40.0, 41.0)").encode()
    archive = write_files(files, tmp_path / "a.tar.gz")
    assert refused(made, archive)["problems"] == [f"y: {float(number):.4g}; recorded: 40 to 41"]


def sleeping(source: bytes) -> bytes:
    head, mark, rest = source.partition(b"\nimport ")
    return head + b"\nimport time\ntime.sleep(600)" + mark + rest


def test_a_run_that_takes_too_long_is_ended_with_its_container(made: Made, tmp_path: Path) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {"repro.py": sleeping}, sums=True)
    started = time.monotonic()
    assert "was not done after 4 s" in refused(made, archive, "--seconds=4")["problems"][0]
    assert time.monotonic() - started < 40


def test_an_interrupt_leaves_no_container(made: Made, tmp_path: Path) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {"repro.py": sleeping}, sums=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = made.project.start("bundle", "verify", str(archive), TMPDIR=str(scratch))
    wait_until(lambda: containers_below(scratch), 60, "a container")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_told(made: Made, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.tar.gz"
    file.write_bytes(content)
    done = made.verify(file)
    assert done.code == 2
    assert "Traceback" not in done.told
