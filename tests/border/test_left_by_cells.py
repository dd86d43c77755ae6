"""What a cell leaves or hands to the host costs that cell alone: beside it one passes and one fails."""

import json
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.border.leaving import SECRET, Attack, Left, nest, reason, run_beside
from trtmatrix.common.border import RECORD
from trtmatrix.common.errors import MachineryError
from trtmatrix.run import worker
from trtmatrix.run.worker import Intake
from trtprobe.channel import connect

UNDISTURBED = {
    "right": ("PASS", ""), "attacked": ("PASS", ""), "wrong": ("FAIL", ""), "last": ("PASS", ""),
}  # fmt: skip
REFUSED = ("NO VERDICT", "probe failed")


def text(content: str | bytes) -> Attack:
    return lambda left: left.file.write_bytes(content.encode() if isinstance(content, str) else content)


def with_(**fields: Any) -> Attack:
    return lambda left: left.file.write_text(json.dumps({**left.record, **fields}))


def raw(field: str, value: str) -> Attack:
    return lambda left: left.file.write_text(f'{json.dumps(left.record)[:-1]}, "{field}": {value}}}')


def measured(**fields: Any) -> Attack:
    return lambda left: with_(measurements={**left.record["measurements"], **fields})(left)


def kept(write: Callable[[Path], object]) -> Attack:
    def attack(left: Left) -> None:
        write(left.own / "y.npy")
        left.keep("y")

    return attack


def named(name: str) -> Attack:
    def attack(left: Left) -> None:
        np.save(left.out / "elsewhere.npy", SECRET)
        left.keep(name.format(host=left.host))

    return attack


def header(descr: str, shape: str, data: bytes = b"\0" * 64) -> bytes:
    said = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(said).to_bytes(2, "little") + said.encode() + data


def sparse(path: Path, size: int = 1 << 42) -> None:
    with path.open("wb") as out:
        out.truncate(size)


def pickled(path: Path) -> None:
    np.save(path, np.array([{"a": print}], dtype=object), allow_pickle=True)


def long_header(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY\x02\x00" + (0xFFFFFFF0).to_bytes(4, "little"))
    os.truncate(path, 1 << 32)


DEEP = "[" * 100_000 + "]" * 100_000
ATTACKS: dict[str, tuple[Attack, str]] = {
    "a FIFO": (lambda left: os.mkfifo(left.file), "no regular file"),
    "a folder": (lambda left: left.file.mkdir(), "no regular file"),
    "a link to /dev/zero": (lambda left: left.file.symlink_to("/dev/zero"), "no regular file"),
    "a link to a file": (lambda left: left.file.symlink_to("/etc/hostname"), "no regular file"),
    "4 TB": (lambda left: sparse(left.file), "at most"),
    "nothing": (text(""), "no JSON"),
    "no text": (text(b"\xff\xfe\x00"), "no JSON"),
    "a list": (text("[]"), "no JSON object"),
    "two objects": (text("{} {}"), "no JSON"),
    "100,000 lists": (text(DEEP), "no JSON"),
    "NaN": (raw("odd", "NaN"), "no JSON"),
    "1e400": (raw("odd", "1e400"), "no JSON"),
    "a billion processes": (with_(processes=1_000_000_000), "processes"),
    "builds that are none": (with_(builds=7), "builds"),
    "20,000 builds": (with_(builds=[{}] * 20_000), "builds"),
    "no measurements": (with_(measurements=None), "measurements: "),
    "outputs in a list": (measured(outputs=[1]), "measurements.outputs: "),
    "a scalar as text": (measured(scalars={"worst": "1 or so"}), "valid number"),
    "an unknown end": (with_(ended="well"), "ended: "),
    "kept in a list": (with_(kept=["y"]), "the output y is not there"),
    "kept of numbers": (with_(kept=7), "TypeError"),
    "an output that is not there": (lambda left: left.keep("y"), "is not there"),
    "a pickle": (kept(pickled), "no array of numbers"),
    "an output that is a FIFO": (kept(os.mkfifo), "no regular file"),
    "an output that is a link": (kept(lambda path: path.symlink_to(path.parents[4] / "host/secret.npy")),
                                 "no regular file"),
    "an output that is /dev/zero": (kept(lambda path: path.symlink_to("/dev/zero")), "no regular file"),
    "a name that leads up": (named("../elsewhere"), "no plain name"),
    "a name of the host": (named("{host}/secret"), "no plain name"),
    "a name of 5,000 letters": (named("n" * 5000), "no plain name"),
    "an array of 4 TB": (kept(sparse), "at most"),
    "a header of 4 GB": (kept(long_header), "is no array"),
    "a header that promises 8 TB": (kept(lambda p: p.write_bytes(header("'<f8'", "(1099511627776,)"))),
                                    "no array of numbers"),
    "a header of negative size": (kept(lambda p: p.write_bytes(header("'<f8'", "(-8, -1)"))), "no array"),
    "a header with more numbers": (kept(lambda p: p.write_bytes(header("'<f8'", "(9,)"))), "no array of"),
    "a header of objects": (kept(lambda p: p.write_bytes(header("'|O'", "(8,)"))), "no array of"),
    "a header that is code": (kept(lambda p: p.write_bytes(header("print(1)", "(8,)"))), "is no array"),
    "text as an array": (kept(lambda p: p.write_text("1 2 3")), "is no array"),
}  # fmt: skip
"""What is left → the words of the reason."""


@pytest.mark.parametrize("name", ATTACKS)
def test_what_cannot_be_used_costs_its_cell_alone(name: str, tmp_path: Path) -> None:
    attack, words = ATTACKS[name]
    assert run_beside(tmp_path, attack) == {**UNDISTURBED, "attacked": REFUSED}
    assert words in reason(tmp_path)
    kept_files = {path.name for path in (tmp_path / "outputs").glob("*")}
    assert f"{sha256((tmp_path / 'host' / 'secret.npy').read_bytes()).hexdigest()}.npz" not in kept_files
    assert not list((tmp_path / "jobs").iterdir())


def test_the_next_run_shows_what_an_undisturbed_one_would(tmp_path: Path) -> None:
    assert run_beside(tmp_path, ATTACKS["a pickle"][0])["attacked"] == REFUSED
    assert run_beside(tmp_path, None, id="r9") == UNDISTURBED


def locked(left: Left) -> None:
    (left.own / "in").mkdir()
    (left.own / "in" / "file").touch()
    (left.own / "in").chmod(0)
    left.own.chmod(0)


HARMLESS: dict[str, Attack] = {
    "2,100 folders in each other": lambda left: nest(left.own, 2100),
    "folders without rights": locked,
    "links to the host's files": lambda left: (left.own / "x").symlink_to(left.host),
    "an output of odd order": kept(lambda path: np.save(path, np.ones((3, 4), order="F"))),
    "a record in Latin letters, and with an emoji": lambda left: left.record.update(log="é🙂"),
    "the words of another cell": with_(
        schema=2, run="r7", product="other", cell={"repro": "r", "case": "wrong", "version": "1", "gpu": "x"}
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_else_is_left_harms_nothing(name: str, tmp_path: Path) -> None:
    def attack(left: Left) -> None:
        HARMLESS[name](left)
        if not left.file.exists():
            left.file.write_text(json.dumps(left.record))

    assert run_beside(tmp_path, attack) == UNDISTURBED
    assert (tmp_path / "host" / "secret.npy").is_file()
    assert not list((tmp_path / "jobs").iterdir())


RIGHT = {"0.record.json", "0/a b é.npy"}
MOST = 1 << 20
NAMES = (
    "../0.record.json", "/etc/trtmatrix-was-here", "0/../../x.npy", "../job/end.npy", "0/.hidden.npy", "0/x",
    "x.json", "0.cell.json", "0.record.json\n", "0.record.json/x.npy", "0/a\x1bb.npy", "0/a\0.npy", "0/.npy",
    "0/" + "é" * 130 + ".npy", "0/a\n.npy",
    "0/\ud800.npy", "0//x.npy", "0/x/y.npy", f"0/{'n' * 300}.npy", "1234567890.record.json", "surface.json/x",
    "owner", "",
)  # fmt: skip


class Here:
    """A job's folder with the host's end, and a stranger at the other."""

    def __init__(self, folder: Path) -> None:
        for part in ("job", "out", "work"):
            (folder / part).mkdir()
        self.folder, self.intake = folder, Intake(folder, MOST)
        self.stranger = connect(folder / "job")
        self.before = {*folder.rglob("*")}

    def send(self, name: str, size: int = 2) -> None:
        self.stranger.hand({"file": name}, lambda stream: stream.truncate(size))
        self.intake.take()

    def left(self) -> set[str]:
        files = {path for path in self.folder.rglob("*") if path.is_file()} - self.before
        return {os.path.relpath(path, self.folder / "out") for path in files}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path)
    yield place
    place.intake.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_of_ours_writes_nothing(name: str, here: Here) -> None:
    here.send(name)
    assert here.left() == set()
    for right in sorted(RIGHT):
        here.send(right)
    assert here.left() == RIGHT


def test_what_is_no_sealed_memory_is_not_read(here: Here) -> None:
    """A pipe would block who reads it, a file of the disk or open memory may change meanwhile."""
    pipe, _ = os.pipe()
    disk = os.open(here.folder / "work" / "x", os.O_RDWR | os.O_CREAT)
    here.before.add(here.folder / "work" / "x")
    for file in (pipe, disk, os.memfd_create("open"), os.open("/dev/zero", os.O_RDONLY)):
        here.stranger.send({"file": "0.record.json"}, file)
    here.stranger.send({"file": "0.record.json"})
    here.intake.take()
    assert here.left() == set()


def test_words_that_are_none_are_passed_over(here: Here) -> None:
    for words in (b"{", b"[" * 50_000, b"7", b"\xff", b'{"file": 7}'):
        here.stranger.connection.send(words)
    here.send("0.record.json")
    assert here.left() == {"0.record.json"}


def test_a_file_may_have_so_many_bytes_and_no_more(here: Here) -> None:
    here.send("0.record.json", RECORD + 1)
    here.send("0/y.npy", MOST + RECORD + 1)
    assert here.left() == set()


def test_all_outputs_of_a_cell_count_together(here: Here) -> None:
    for name in "abc":
        here.send(f"0/{name}.npy", (MOST + RECORD) // 2)
    assert here.left() == {"0/a.npy", "0/b.npy"}


def test_a_cell_has_so_many_files(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST", 5)
    for number in range(9):
        here.send(f"0/{number}.npy")
    assert len(here.left()) == 5


def test_what_this_host_cannot_write_is_its_trouble(here: Here) -> None:
    (here.folder / "out").rmdir()
    with pytest.raises(MachineryError, match="cannot be written"):
        here.send("0/y.npy")


def test_nobody_is_let_in_after_the_first(here: Here) -> None:
    here.intake.take()
    with pytest.raises(OSError, match=r"Connection refused|No such file"):
        connect(here.folder / "job")
