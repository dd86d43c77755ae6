"""``bundle verify`` by the real command line: an archive run in a fresh container, and what is caught."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import docker
import pytest

from tests.bundles.archives import Change, change, digest_of, flip, put, read_files, write_files
from tests.bundles.conftest import Made, containers_below, refused
from tests.models import images


def test_an_archive_is_verified_from_itself_alone(made: Made, tmp_path: Path) -> None:
    archive = tmp_path / "moved and renamed.tar.gz"
    archive.write_bytes(made.archive.read_bytes())
    done = made.verify(archive)
    assert done.code == 0, done.printed
    outcome = done.data
    assert outcome["verified"]
    assert outcome["os"].startswith("Debian")
    floors = next(figure for figure in outcome["figures"] if figure["name"].endswith("noise floors"))
    assert floors["within"]
    assert floors["found"] == pytest.approx(floors["recorded"])  # by this host's NumPy


def test_without_the_project_the_rules_of_the_archive_decide(made: Made, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(made.archive.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "trtmatrix", "bundle", "verify", "a.tar.gz", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["judged_by"].startswith("the rules of the archive")


@pytest.mark.parametrize("name", ["model.onnx", "inputs.npz", "reference.npz", "record.json", "repro.py"])
def test_one_byte_that_was_changed_is_caught_by_its_digest(made: Made, tmp_path: Path, name: str) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {name: flip(-60)}, sums=False)
    assert any(name in problem for problem in refused(made, archive)["problems"])


def test_a_digest_that_was_changed_is_caught(made: Made, tmp_path: Path) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {"SHA256SUMS": flip(3)}, sums=False)
    assert refused(made, archive)["exit_code"] is None


@pytest.mark.parametrize("name", ["model.onnx", "inputs.npz", "reference.npz"])
def test_it_is_caught_where_the_digests_were_made_to_fit(made: Made, tmp_path: Path, name: str) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {name: flip(-60)}, sums=True)
    assert f"{name} is not the file" in refused(made, archive)["problems"][0]


def test_it_is_caught_by_the_record_where_all_digests_were_made_to_fit(made: Made, tmp_path: Path) -> None:
    model = read_files(made.archive)["model.onnx"]
    other = model.replace(b"attention", b"attentior")
    changes = {
        "model.onnx": put("attention", "attentior"),
        "expected.json": put(digest_of(model), digest_of(other)),
    }
    archive = change(made.archive, tmp_path / "a.tar.gz", changes, sums=True)
    assert "is not what record.json was made with" in refused(made, archive)["problems"][0]


def test_another_image_than_the_records_is_caught(made: Made, tmp_path: Path) -> None:
    client = docker.from_env()
    wrong, right = (str(client.images.get(name).id) for name in (images.DEFECTIVE, images.CURRENT))
    archive = change(made.archive, tmp_path / "a.tar.gz", {"reproduce.sh": put(wrong, right)}, sums=True)
    assert "does not name the image of record.json" in refused(made, archive)["problems"][0]


def test_a_failure_that_does_not_come_back_is_caught(made: Made, tmp_path: Path) -> None:
    client = docker.from_env()
    wrong, right = (str(client.images.get(name).id) for name in (images.DEFECTIVE, images.CURRENT))
    everywhere = dict.fromkeys(("reproduce.sh", "record.json", "environment.json"), put(wrong, right))
    archive = change(made.archive, tmp_path / "a.tar.gz", everywhere, sums=True)
    outcome = refused(made, archive)
    assert "the failure does not come back" in outcome["problems"][0]
    assert (outcome["verdict"], outcome["exit_code"]) == ("PASS", 0)
    assert "THE FAILURE IS NOT THERE" in outcome["said"]


def test_a_failure_of_another_size_is_caught(made: Made, tmp_path: Path) -> None:
    def larger(content: bytes) -> bytes:
        record = json.loads(content)
        record["measurements"]["outputs"]["y"]["rel_l2"] *= 1.5
        return json.dumps(record).encode()

    archive = change(made.archive, tmp_path / "a.tar.gz", {"record.json": larger}, sums=True)
    problems = refused(made, archive)["problems"]
    assert any(problem.startswith("y: relative L2 error: 0.198") for problem in problems)


def test_an_image_that_is_nowhere_is_told(made: Made, tmp_path: Path) -> None:
    nowhere = "sha256:" + "0" * 64
    wrong = str(docker.from_env().images.get(images.DEFECTIVE).id)
    files: Mapping[str, Change] = dict.fromkeys(("reproduce.sh", "record.json"), put(wrong, nowhere))
    archive = change(made.archive, tmp_path / "a.tar.gz", files, sums=True)
    outcome = refused(made, archive)
    assert "exit code 125" in outcome["problems"][0]
    assert "is not here" in outcome["said"]


def test_a_run_that_takes_too_long_is_ended_with_its_container(made: Made, tmp_path: Path) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {"repro.py": sleeping}, sums=True)
    started = time.monotonic()
    outcome = refused(made, archive, "--seconds=4")
    assert "was not done after 4 s" in outcome["problems"][0]
    assert time.monotonic() - started < 40


def sleeping(source: bytes) -> bytes:
    """Let a script sleep before it does anything."""
    head, mark, rest = source.partition(b"\nimport ")
    return head + b"\nimport time\ntime.sleep(600)" + mark + rest


def test_an_interrupt_leaves_neither_container_nor_outcome(made: Made, tmp_path: Path) -> None:
    archive = change(made.archive, tmp_path / "a.tar.gz", {"repro.py": sleeping}, sums=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "a.tar.gz.verify.json").write_text('{"verified": true}')
    child = subprocess.Popen(
        [sys.executable, "-m", "trtmatrix", "bundle", "verify", str(archive)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(scratch)},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not containers_below(scratch) and time.monotonic() < deadline:
        time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar.gz", "scratch"]
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_told(made: Made, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.tar.gz"
    file.write_bytes(content)
    done = made.verify(file)
    assert done.code == 2
    assert "Traceback" not in done.told


def test_an_archive_without_its_record_is_told(made: Made, tmp_path: Path) -> None:
    files = {name: data for name, data in read_files(made.archive).items() if name != "record.json"}
    done = made.verify(write_files(files, tmp_path / "a.tar.gz"))
    assert done.code == 2
    assert "record.json cannot be read" in done.told


def test_a_file_that_is_not_there_is_told(made: Made, tmp_path: Path) -> None:
    done = made.verify(tmp_path / "a.tar.gz")
    assert done.code == 2
    assert "no such file" in done.told
