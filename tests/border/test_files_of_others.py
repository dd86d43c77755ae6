"""Results, merge folders, packs, models and samples of others: one clear line each, and the rest is read."""

import contextlib
import json
import os
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merges import CELL, Place, make_place, record_data

from tests.border.leaving import in_time
from tests.border.test_left_by_cells import header, sparse
from trtmatrix.common.border import BorderError, opened, opened_npz, read_array, read_json
from trtmatrix.common.errors import ConfigError, ExitCode
from trtmatrix.common.text import to_json
from trtmatrix.judge.record import RecordError, record_from
from trtmatrix.records.store import keep_outputs, read_records

WHERE = f"{CELL.gpu}/{CELL.version}/{CELL.repro}/{CELL.case}"


def changed(**fields: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(to_json({**record_data("bad"), **fields}))


def raw(value: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(f'{to_json(record_data("bad")).rstrip()[:-1]}, "odd": {value}}}')


NOISE = {"precision": "fp32", "outputs": {"y": {"fp32": 1e-7}}}
RECORDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a FIFO": (os.mkfifo, "no regular file"),
    "a link to /dev/zero": (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
    "4 TB": (sparse, "at most"),
    "nothing": (Path.touch, "damaged"),
    "a list": (lambda path: path.write_text("[]"), "is a JSON object"),
    "NaN": (raw("NaN"), "damaged"),
    "100,000 lists": (raw("[" * 100_000 + "]" * 100_000), "damaged"),
    "a digest that leads up": (changed(kept={"y": {"sha256": "../../secret"}}), "kept.y.sha256: "),
    "a cell that leads up": (changed(cell={**vars(CELL), "case": "../x"}), "cell.case: "),
}  # fmt: skip
"""What lies where a record should → the words of why it is none."""
STRANGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "noise in a list": (changed(noise={**NOISE, "outputs": ["y"]}), "outputs"),
}


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "place", capsys)


@pytest.mark.parametrize("name", [*RECORDS, *STRANGERS])
def test_a_merge_takes_the_others_in(name: str, place: Place, tmp_path: Path) -> None:
    make, words = (RECORDS | STRANGERS)[name]
    folder = tmp_path / "came" / WHERE
    folder.mkdir(parents=True)
    (folder / "r1.json").write_text(to_json(record_data("r1")))
    make(folder / "bad.json")
    with in_time():
        code, told = place.merge(tmp_path / "came")
    assert code is ExitCode.USAGE
    assert words in told
    assert "Traceback" not in told
    assert place.files() == {f"{WHERE}/r1.json": (folder / "r1.json").read_bytes()}


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_no_record_is_set_aside_and_named(name: str, tmp_path: Path) -> None:
    make, words = RECORDS[name]
    folder = tmp_path / "results" / WHERE
    folder.mkdir(parents=True)
    (folder / "r1.json").write_text(to_json(record_data("r1")))
    make(folder / "bad.json")
    with in_time():
        with pytest.raises(ConfigError, match=r"set aside as bad\.json\.damaged") as raised:
            read_records(tmp_path / "results")
        assert words in str(raised.value)
        assert [one.record.run for one in read_records(tmp_path / "results")] == ["r1"]


def test_a_deep_record_of_the_results_harms_no_table(place: Place) -> None:
    folder = place.results / "local" / WHERE
    folder.mkdir(parents=True)
    raw("[" * 900 + "]" * 900)(folder / "bad.json")
    assert [cell["case"] for cell in place.table()]


@pytest.mark.parametrize("target", ["/etc/hostname", "/dev/zero"])
def test_a_folder_with_digests_and_links_is_refused(target: str, place: Place, tmp_path: Path) -> None:
    came = tmp_path / "came"
    (came / "records" / WHERE).mkdir(parents=True)
    content = to_json(record_data("r1"))
    (came / "records" / WHERE / "r1.json").write_text(content)
    digest = sha256(content.encode()).hexdigest()
    (came / "outputs").mkdir()
    (came / "outputs" / "x.npz").symlink_to(target)
    (came / "SHA256SUMS").write_text(f"{digest}  records/{WHERE}/r1.json\n{digest}  outputs/x.npz\n")
    with in_time():
        code, told = place.merge(came)
    assert (code, place.files()) == (ExitCode.USAGE, {})
    assert "not as it was made" in told


def boasting(path: Path, size: int = 1 << 50) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("output.npy", header("'<f8'", f"({size // 8},)"))
        archive.writestr("x.npy", header("'<f8'", f"({size // 8},)"))
    data = bytearray(path.read_bytes())
    for at in (at for at in range(len(data) - 4) if data[at : at + 4] == b"PK\x01\x02"):
        data[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)


def zipped(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)


def halved(path: Path) -> None:
    np.savez(path, x=np.arange(4096.0))
    path.write_bytes(path.read_bytes()[:9000])


ARRAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a FIFO": (os.mkfifo, "no regular file"),
    "/dev/zero": (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
    "4 TB": (sparse, "bytes"),
    "text": (lambda path: path.write_text("x"), "no .npz"),
    "a size that cannot be": (boasting, "no array of numbers"),
    "a pickle": (lambda path: np.savez(path, x=np.array([{}], dtype=object)), "no array of numbers"),
    "a header of 8 TB": (lambda path: zipped(path, header("'<f8'", "(1099511627776,)")), "no array of"),
    "no elements in much room": (
        lambda path: zipped(path, header("'<f8'", "(1099511627776, 1099511627776, 0)", b"")), "is no array: "
    ),
    "elements of no bytes": (lambda path: zipped(path, header("'<U0'", "(3,)", b"")), "no array of"),
    "half of it": (halved, "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_none_are_named(name: str, tmp_path: Path) -> None:
    make, words = ARRAYS[name]
    make(tmp_path / "in.npz")
    with in_time(), pytest.raises(BorderError, match=words):
        _array_of_npz(tmp_path / "in.npz")


# --- Fuzzed: whatever is read, it is an answer or a BorderError


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_an_object_or_refused(content: bytes) -> None:
    file = Path("/dev/shm") / f"trtmatrix-fuzz-{os.getpid()}"  # noqa: S108 - thousands of files
    file.write_bytes(content)
    try:
        with contextlib.suppress(BorderError):
            assert isinstance(read_json(file), dict)
        for read in (_array_in, _array_of_npz):
            with contextlib.suppress(BorderError):
                read(file)
    finally:
        file.unlink()


def _array_in(file: Path) -> object:
    with opened(file) as (stream, size):
        return read_array(stream, size)


def _array_of_npz(file: Path) -> object:
    with opened_npz(file, "x") as (stream, size):
        return read_array(stream, size)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["NaN", "Infinity", "x", "ran", "../x", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abyz"), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
FIELDS = sorted({*record_data("r1"), "builds", "processes", "kept", "worker", "confirms", "finished"})


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=3))
def test_any_field_makes_a_record_or_is_refused(fields: dict[str, Any]) -> None:
    data = json.loads(json.dumps({**record_data("r1"), **fields}))
    try:
        record = record_from(data)
    except RecordError:
        return
    assert record.builds
    assert record.engines <= 10_000
    assert record.content.emulation is None or record.noise


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 300), st.binary(min_size=1, max_size=4))
def test_any_change_of_an_array_is_read_or_refused(at: int, change: bytes) -> None:
    folder = Path("/dev/shm") / f"trtmatrix-fuzz-{os.getpid()}"  # noqa: S108
    (folder / "0").mkdir(parents=True)
    try:
        np.save(folder / "0" / "y.npy", np.arange(20.0))
        data = bytearray((folder / "0" / "y.npy").read_bytes())
        data[at % len(data) : at % len(data) + len(change)] = change
        (folder / "0" / "y.npy").write_bytes(data)
        with contextlib.suppress(BorderError):
            (facts,) = keep_outputs(folder, folder / "0", ["y"]).values()
            assert facts["sha256"] == sha256(data).hexdigest()
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
