"""``bundle verify`` by the real command line: an archive run in a fresh container, and what is caught."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import docker
import pytest

from tests.bundles.archives import change, flip, put, read_files, write_files
from tests.bundles.conftest import Made, containers_below, refused
from tests.models import images
from tests.waiting import wait_until


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
    number = script.partition('"wrong": {"y": (')[2].partition(",")[0]
    files["repro.py"] = script.replace(f'"y": ({number}, {number})', '"y": (40.0, 41.0)').encode()
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
