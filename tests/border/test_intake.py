"""What a probe hands over is written by the host within the limits of the border, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trtmatrix.common.border import read_json
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import make_job_folder
from trtmatrix.run import worker as module
from trtmatrix.run.worker import Intake
from trtprobe.delivery import Delivery

MOST = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_job_folder(tmp_path, "job")


@pytest.fixture
def intake(folder: Path) -> Iterator[Intake]:
    intake = Intake(folder, MOST)
    yield intake
    intake.close()


def hand_over(delivery: Delivery, name: str, content: bytes = b"123") -> None:
    delivery.deliver(name, lambda stream: stream.write(content))


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in (folder / "out").rglob("*") if path.is_file())


def test_what_has_a_right_name_is_written_whole(folder: Path, intake: Intake) -> None:
    delivery = Delivery(folder / "job")
    hand_over(delivery, "0/a b é.npy", b"x" * 500)
    delivery.deliver_json("0.record.json", {"ended": "ran"})
    intake.take()
    assert written(folder) == ["out/0.record.json", "out/0/a b é.npy"]
    assert read_json(folder / "out" / "0.record.json", below=folder / "out") == {"ended": "ran"}


@pytest.mark.parametrize(
    "name",
    ["0/" + "é" * 120 + ".npy", "0/\ud800.npy", "../x.npy", "0/../x.npy", "0/.x.npy", "0/a/b.npy", "0.py",
     "x.record.json", "", "0/a\n.npy"],
)  # fmt: skip
def test_what_has_no_right_name_is_left_out_and_harms_nothing(
    name: str, folder: Path, intake: Intake
) -> None:
    delivery = Delivery(folder / "job")
    hand_over(delivery, name)
    hand_over(delivery, "1.started.json", b"{}")
    intake.take()
    assert written(folder) == ["out/1.started.json"]


def test_what_is_too_large_is_left_out(folder: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORD", 100)
    delivery = Delivery(folder / "job")
    hand_over(delivery, "0.record.json", b"x" * 101)
    hand_over(delivery, "1/first.npy", b"x" * MOST)
    hand_over(delivery, "1/second.npy", b"x" * 101)
    intake.take()
    assert written(folder) == ["out/1/first.npy"]


def test_what_this_host_cannot_write_is_trouble_of_this_host(folder: Path, intake: Intake) -> None:
    (folder / "out").rmdir()
    hand_over(Delivery(folder / "job"), "0/y.npy")
    with pytest.raises(MachineryError, match="cannot be written"):
        intake.take()
