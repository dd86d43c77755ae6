"""An archive has the same bytes each time, fits its limit, and is there whole or not at all."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.bundle.facts import LIMIT_BYTES, SUMS, LeftOut
from trtmatrix.core.bundle.manifest import LEFT_OUT, Item, choose, listing, write_size
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.redact import Secrets
from trtmatrix.effects import archive as archives
from trtmatrix.effects.archive import write_archive
from trtmatrix.effects.asking import ask
from trtmatrix.effects.npz import bits_for, narrow, write_npz
from trtmatrix.effects.packing import HOPELESS, Part, choose_parts, pack_parts
from trtmatrix.effects.unpack import read_archive
from trtprobe.measure import measure_signature

NOBODY = Secrets()
RANDOM = np.random.RandomState(0)


def some_parts() -> list[Part]:
    return [
        Part(name="model.onnx", data=b"", what="the graph"),
        Part(name="reproduce.sh", text="#!/bin/sh\n"),
        Part(name="others/a.json", text="{}"),
        Part(name="inputs.npz", arrays={"b": np.zeros(3), "a": np.ones((2, 2), np.float16)}),
        Part(name="a name of more than one hundred letters " + "x" * 80 + " ü.txt", text="ü"),
    ]


def test_made_twice_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_archive(tmp_path / "a.tar.gz", pack_parts(some_parts(), NOBODY), NOBODY)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    os.umask(os.umask(0o077) & 0o077)
    (tmp_path / "there").mkdir()
    parts = list(reversed(some_parts()))
    second = write_archive(tmp_path / "there" / "a.tar.gz", pack_parts(parts, NOBODY), NOBODY)
    assert first.file.read_bytes() == second.file.read_bytes()
    assert first.sha256 == second.sha256 == sha256(first.file.read_bytes()).hexdigest()
    assert first.size == len(first.file.read_bytes())


def test_heads_say_nothing_of_who_made_it(tmp_path: Path) -> None:
    written = write_archive(tmp_path / "case-1.tar.gz", pack_parts(some_parts(), NOBODY), NOBODY)
    with tarfile.open(written.file) as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
    assert {m.name: oct(m.mode) for m in members if m.mode != 0o644} == {"case-1/reproduce.sh": "0o755"}
    assert {m.name.partition("/")[0] for m in members} == {"case-1"}
    assert written.file.read_bytes()[3:10].count(0) >= 5  # gzip: no name, no time


def test_sums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    written = write_archive(tmp_path / "a.tar.gz", pack_parts(some_parts(), NOBODY), NOBODY)
    subprocess.run(["tar", "-xzf", written.file, "-C", tmp_path], check=True)  # noqa: S607 - as users do
    command = ["sha256sum", "-c", SUMS]
    done = subprocess.run(command, cwd=tmp_path / "a", capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == len(some_parts())
    assert sorted(path.name for path in read_archive(written.file, tmp_path / "b").iterdir()) == sorted(
        path.name for path in (tmp_path / "a").iterdir()
    )


def test_what_does_not_fit_is_left_out_and_listed(tmp_path: Path) -> None:
    parts = [
        Part(name="must.bin", data=RANDOM.bytes(300_000)),
        Part(name="nice.bin", data=RANDOM.bytes(300_000), rank=1),
        Part(name="small.bin", data=b"\0small", rank=5),
        Part(name="large.bin", data=RANDOM.bytes(500_000), rank=2),
    ]
    choice = choose_parts(pack_parts(parts, NOBODY), limit=900_000)
    (left,) = choice.left_out
    assert (left.name, left.size, left.sha256) == (
        "large.bin",
        500_000,
        sha256(parts[3].data or b"").hexdigest(),
    )
    written = write_archive(
        tmp_path / "a.tar.gz", choice.kept, NOBODY, left_out=choice.left_out, limit=900_000
    )
    assert set(written.names) == {"must.bin", "nice.bin", "small.bin", SUMS, LEFT_OUT}
    text = (read_archive(written.file, tmp_path / "out") / LEFT_OUT).read_text(encoding="utf-8")
    assert left.sha256 in text
    assert left.why in text
    assert f"Left out: large.bin, 500.0 kB, sha256 {left.sha256}" in listing([], choice.left_out)


def test_what_must_be_in_and_does_not_fit_is_refused(tmp_path: Path) -> None:
    packed = pack_parts([Part(name="must.bin", data=RANDOM.bytes(300_000))], NOBODY)
    with pytest.raises(UsageError, match=r"must\.bin 300\.\d kB.*minimise"):
        choose_parts(packed, limit=100_000)
    with pytest.raises(UsageError, match=r"more than 100\.0 kB: nothing was written"):
        write_archive(tmp_path / "a.tar.gz", packed, NOBODY, limit=100_000)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fits_in_no_case_is_not_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "weights.data").open("wb") as out:
        out.truncate(HOPELESS + 1)
    packed = pack_parts([Part(name="weights.data", file=tmp_path / "weights.data", rank=1)], NOBODY)
    assert packed[0].data is None
    assert [left.name for left in choose_parts(packed).left_out] == ["weights.data"]


ITEMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100_000)), max_size=9).map(
    lambda facts: [Item(name=f"f{i}", sha256="", size=p, packed=p, rank=r) for i, (r, p) in enumerate(facts)]
)


@given(ITEMS, st.integers(0, 300_000))
def test_a_choice_fits_and_leaves_out_no_more_than_it_must(items: list[Item], limit: int) -> None:
    out = {left.name for left in choose(items, limit, 0)}
    cost = {item.name: item.packed + 700 for item in items}
    rest = limit - sum(cost[item.name] for item in items if item.name not in out)
    assert all(item.rank > 0 for item in items if item.name in out)
    assert rest >= 0 or out == {item.name for item in items if item.rank}
    assert all(cost[name] > rest for name in out)


def test_arrays_are_rounded_before_anything_is_left_out() -> None:
    reference = RANDOM.standard_normal(100_000)
    part = Part(name="reference.npz", arrays={"y": reference, "z": reference[:9]}, floors={"y": 1e-3}, rank=1)
    packed = pack_parts([part], NOBODY)
    assert packed[0].item.packed > 700_000
    choice = choose_parts(packed, limit=600_000, reserve=1000)
    assert choice.left_out == ()
    assert "y to 17 bits" in choice.told[0]
    assert "1/256 of the noise floor" in choice.kept[0].item.told[0]
    with np.load(io.BytesIO(choice.kept[0].data or b"")) as arrays:
        error = np.linalg.norm(arrays["y"] - reference) / np.linalg.norm(reference)
        assert 0 < error <= 1e-3 / 256
        assert arrays["y"].dtype == np.float32
        assert np.array_equal(arrays["z"], reference[:9])


@given(st.lists(st.floats(width=64), min_size=1, max_size=20), st.floats(1e-14, 1.0))
def test_a_rounding_stays_below_the_floor_in_each_value(values: list[float], floor: float) -> None:
    array = np.array(values)
    rounded = narrow(array, floor).astype(np.float64)
    finite = np.isfinite(array) & (np.abs(array) > 1e-300) & (np.abs(array) < 1e300)
    assert np.all(np.abs(rounded[finite] - array[finite]) <= np.abs(array[finite]) * floor / 256)
    assert np.array_equal(rounded[~np.isfinite(array)], array[~np.isfinite(array)], equal_nan=True)


def test_a_defects_shape_is_kept_coarsely_before_it_is_left_out() -> None:
    d, noise = RANDOM.standard_normal(100_000).astype(np.float32), 0.1 * RANDOM.standard_normal(100_000)
    parts = [Part(name="defects.npz", arrays={"lost/y": d, "n/i": np.arange(9)}, coarse=True, rank=3)]
    packed = pack_parts(parts, NOBODY)
    choice = choose_parts(packed, limit=120_000, reserve=1000)
    assert choice.left_out == ()
    assert "their shape is what counts" in choice.told[0]
    with np.load(io.BytesIO(choice.kept[0].data or b"")) as arrays:
        coarse = arrays["lost/y"]
        assert np.array_equal(arrays["n/i"], np.arange(9))
    wrong, right = (measure_signature(y, np.zeros(100_000), coarse)["c"] for y in (d + noise, noise))
    assert abs(wrong - 1) < 5e-3
    assert abs(right) < 5e-3


def test_what_has_no_floor_is_not_rounded() -> None:
    array = RANDOM.standard_normal(9)
    for floor in (0.0, float("nan"), float("inf"), -1.0, 1e-16):
        assert bits_for(floor) == 52
        assert narrow(array, floor) is array
    assert narrow(array.astype(np.float32), 0.1).dtype == np.float32


def test_npz_is_read_by_numpy_and_small(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "noise": RANDOM.standard_normal((100, 100)), "steps": np.arange(20_000, dtype=np.int64),
        "bool": np.array([True, False]), "scalar": np.float32(3), "empty": np.zeros((0, 4)),
        "fortran": np.asfortranarray(RANDOM.standard_normal((5, 7))), "half": np.ones(3, np.float16),
    }  # fmt: skip
    np.save(tmp_path / "x.npy", arrays["noise"])
    data = write_npz(arrays)
    with np.load(io.BytesIO(data)) as read:
        assert set(read) == set(arrays)
        for name, array in arrays.items():
            assert np.array_equal(read[name], array)
            assert read[name].dtype == array.dtype
    with ZipFile(io.BytesIO(data)) as archive:
        kinds = {info.filename: info.compress_type for info in archive.infolist()}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert kinds["steps.npy"] == ZIP_LZMA
    assert kinds["scalar.npy"] == ZIP_DEFLATED
    from_file = pack_parts([Part(name="a.npz", arrays={"noise": tmp_path / "x.npy"})], NOBODY)
    assert from_file[0].data == write_npz({"noise": arrays["noise"]})
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_npz({"bad": np.array([{}])})


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left on device")])
def test_an_archive_that_is_not_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def fail(*_: object) -> None:
        raise error

    (tmp_path / "a.tar.gz").write_bytes(b"older")
    monkeypatch.setattr(archives, "_write_tar", fail)
    with pytest.raises((KeyboardInterrupt, UsageError)):
        write_archive(tmp_path / "a.tar.gz", pack_parts(some_parts(), NOBODY), NOBODY)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
    assert (tmp_path / "a.tar.gz").read_bytes() == b"older"


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target, said in (
        ("a.zip", "name it with .tar.gz"),
        ("file/a.tar.gz", "cannot be written"),
        (".tar.gz", "name"),
    ):
        with pytest.raises(UsageError, match=said):
            write_archive(tmp_path / target, pack_parts(some_parts(), NOBODY), NOBODY)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        pack_parts([Part(name="a", file=tmp_path / "gone")], NOBODY)
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(UsageError, match="holds no array"):
        pack_parts([Part(name="a.npz", arrays={"x": tmp_path / "x.npy"})], NOBODY)


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../x", "a//b", "a\nb"])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(MachineryError, match="no name for a file of an archive"):
        pack_parts([Part(name=name, text="")], NOBODY)


def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    packed = pack_parts([Part(name="a", text="1"), Part(name="a", text="2")], NOBODY)
    with pytest.raises(MachineryError, match="has one a"):
        write_archive(tmp_path / "a.tar.gz", packed, NOBODY)


def test_the_list_names_weights_of_a_model_of_ones_own() -> None:
    items = [Item(name="model.onnx", sha256="", size=4100, packed=10, what="the graph", weights=True)]
    text = listing(items, [LeftOut(name="b", sha256="12", size=7, why="too large")], ["look"])
    assert "THE WEIGHTS OF YOUR OWN MODEL GO OUT, in model.onnx" in text
    assert "  model.onnx    4.1 kB  the graph\n" in text
    assert "Taken out: nothing private was found" in text
    assert "Left out: b, 7 B, sha256 12: too large\nNote: look\n" in text
    assert write_size(LIMIT_BYTES) == "25.0 MB"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "wanted"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_asking_takes_yes_alone_for_yes(typed: str, wanted: bool) -> None:
    err = io.StringIO()
    assert ask("Write it?", "the list\n", yes=False, stdin=Terminal(typed), stderr=err) is wanted
    assert err.getvalue().startswith("the list\nWrite it? [y/N] ")


def test_nobody_to_ask_is_said_after_the_list() -> None:
    err = io.StringIO()
    with pytest.raises(UsageError, match="add --yes"):
        ask("Write it?", "the list\n", yes=False, stdin=io.StringIO("y\n"), stderr=err)
    assert err.getvalue() == "the list\n"
    assert ask("Write it?", "the list\n", yes=True, stdin=io.StringIO(), stderr=err)
