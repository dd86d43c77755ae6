"""What happens to the cache is trouble of this host: it is mended and told, and never a verdict."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case
from prepare.test_cases import loaded

from tests.border.leaving import CELLS, Attack, Leaving, Left, Shown, reason, run_beside
from trtmatrix.common.errors import MachineryError
from trtmatrix.judge.compare import make_entries
from trtmatrix.plan.stale import find_reason
from trtmatrix.prepare.cases import CaseCache, find_change
from trtmatrix.records.store import read_records

UNDISTURBED: Shown = {
    "right": ("PASS", ""), "attacked": ("PASS", ""), "wrong": ("FAIL", ""), "last": ("PASS", ""),
}  # fmt: skip
FILES = ("model.onnx", "inputs/x.npy", "reference/y.npy", "case.json")


def flip(file: Path) -> None:
    """Change the last bit but a few, in the very file that others share."""
    with file.open("r+b") as stream:
        stream.seek(-3, os.SEEK_END)
        byte = stream.read(1)[0]
        stream.seek(-3, os.SEEK_END)
        stream.write(bytes([byte ^ 1]))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))  # as a clock of full seconds would not show


def cut(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)


def swap(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def swapped(file: Path) -> None:
        file.unlink()
        make(file)

    return swapped


FAULTS: dict[str, Callable[[Path], Any]] = {
    "a flipped bit": flip,
    "half of it": cut,
    "gone": Path.unlink,
    "empty": swap(Path.touch),
    "a link": swap(lambda file: file.symlink_to("/etc/hostname")),
    "a FIFO": swap(os.mkfifo),
    "a folder": swap(Path.mkdir),
    "another file beside it": lambda file: shutil.copy(file, file.with_name(f"more-{file.name}")),
}


def cases_of(folder: Path) -> CaseCache:
    return CaseCache(folder)


def attacked(folder: Path) -> Path:
    """The prepared case of the cell that is attacked."""
    cell = next(cell for cell in CELLS if cell.case.id == "attacked")
    return cases_of(folder).folder(replace(loaded(), repro=cell.repro), cell.case)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_changed_case_is_prepared_anew_and_told(fault: str, file: str, tmp_path: Path) -> None:
    cache, source, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(source, case)
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    FAULTS[fault](folder / file)
    told = list[str]()
    assert find_change(folder)
    assert not CaseCache(tmp_path).is_whole(folder, told.append)
    assert len(told) == 1
    assert "prepared anew" in told[0]
    assert CaseCache(tmp_path).prepare(source, case) == folder
    assert find_change(folder) == ""
    after = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("field", ["params", "content", "files"])
def test_facts_that_were_edited_are_noticed(field: str, tmp_path: Path) -> None:
    folder = CaseCache(tmp_path).prepare(loaded(), make_case())
    facts = json.loads((folder / "case.json").read_text())
    facts[field] = {} if field != "content" else "0"
    (folder / "case.json").write_text(json.dumps(facts))
    assert find_change(folder) == "case.json differs"


def test_a_file_that_cases_share_is_mended_for_all(tmp_path: Path) -> None:
    """Both cases link one blob: were it believed, preparing anew would link the damage again."""
    cache, source = CaseCache(tmp_path), loaded()
    first, second = (cache.prepare(source, make_case(name, params={"n": n})) for n, name in enumerate("ab"))
    assert (first / "reference/y.npy").samefile(second / "reference/y.npy")
    flip(first / "reference/y.npy")
    assert find_change(second) == "reference/y.npy differs"
    fresh = CaseCache(tmp_path)
    assert find_change(fresh.prepare(source, make_case("a", params={"n": 0}))) == ""
    assert find_change(fresh.prepare(source, make_case("b", params={"n": 1}))) == ""


def test_what_a_run_has_written_itself_is_not_believed_either(tmp_path: Path) -> None:
    """A run knows the digests of the blobs that it wrote, and would link one that changed since."""
    cache, source = CaseCache(tmp_path), loaded()
    case, other = (make_case(name, params={"n": n}) for n, name in enumerate("ab"))
    flip(cache.prepare(source, case) / "reference/y.npy")
    for each in (case, other):
        assert find_change(cache.prepare(source, each)) == ""


def test_a_damaged_file_of_no_case_is_not_linked(tmp_path: Path) -> None:
    cache, source, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(source, case)
    right = np.load(folder / "reference/y.npy")
    flip(folder / "reference/y.npy")
    shutil.rmtree(folder)
    again = CaseCache(tmp_path).prepare(source, case)
    np.testing.assert_array_equal(np.load(again / "reference/y.npy"), right)


def of_case(fault: Callable[[Path], Any], file: str) -> Attack:
    """While the cell runs, its prepared case changes; the record is a right one."""

    def attack(left: Left) -> None:
        fault(attacked(left.host.parent) / file)
        left.keep()

    return attack


def clear(file: Path) -> None:
    """Remove every case that is prepared."""
    for case in file.parents[1].glob("[!.]*"):
        shutil.rmtree(case)


MEANWHILE: dict[str, Attack] = {
    **{f"{name}: {file}": of_case(FAULTS[name], file) for name in ("a flipped bit", "gone", "a FIFO")
       for file in FILES},
    "the whole case gone": of_case(lambda file: shutil.rmtree(file.parent), "case.json"),
    "all cases gone": of_case(clear, "case.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANWHILE)
def test_a_case_that_changes_while_it_runs_gives_no_verdict(name: str, tmp_path: Path) -> None:
    seen = run_beside(tmp_path, MEANWHILE[name])
    assert seen["attacked"] == ("NO VERDICT", "launcher failed")
    assert "trouble of this host" in reason(tmp_path)
    if name == "all cases gone":  # the last one may have been prepared after that
        assert seen["last"] in {("NO VERDICT", "launcher failed"), UNDISTURBED["last"]}
    elif "reference" not in name and "model" not in name and "inputs" not in name:
        assert (seen["right"], seen["wrong"]) == (UNDISTURBED["right"], UNDISTURBED["wrong"])
    assert run_beside(tmp_path, None, id="r9") == UNDISTURBED


def crashed(left: Left) -> None:
    left.record.update(ended="crashed", detail="raised OSError: [Errno 28] No space left on device")
    left.keep()


@pytest.mark.parametrize("ended", ["crashed", "build failed", "probe failed"])
def test_a_full_disk_is_no_finding(ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a full disk: none can be had on demand."""

    def attack(left: Left) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        left.record.update(ended=ended, detail="raised OSError: [Errno 28] No space left on device")
        left.keep()

    with monkeypatch.context():
        seen = run_beside(tmp_path, attack)
    assert seen == {**UNDISTURBED, "attacked": ("NO VERDICT", "launcher failed")}
    assert "bytes left" in reason(tmp_path)


def why_again(folder: Path) -> dict[str, str]:
    """Return why the next run would run each case again; nothing where its record stands for it."""
    stored = read_records(folder / "results")
    digests = {one.record.cell: one.record.digests for one in stored}
    found = {e.cell.case.id: find_reason(e, confirm=False) for e in make_entries(CELLS, stored, digests, [])}
    return {case: reason.why.value for case, reason in found.items() if reason is not None}


@pytest.mark.parametrize("words", ["[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"])
def test_trouble_of_this_host_is_never_served(words: str, tmp_path: Path) -> None:
    """A stand-in for a full disk: none can be had on demand."""

    def attack(left: Left) -> None:
        left.record.update(ended="crashed", detail=f"raised OSError: {words}")
        left.keep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        run_beside(tmp_path, attack)
    assert why_again(tmp_path) == {"attacked": "trouble"}
    assert run_beside(tmp_path, None, id="r9") == UNDISTURBED
    assert why_again(tmp_path) == {}


def test_a_crash_with_room_on_the_disk_is_one(tmp_path: Path) -> None:
    seen = run_beside(tmp_path, crashed)
    assert seen["attacked"] == ("NO VERDICT", "crashed")


def test_a_quota_is_no_finding(tmp_path: Path) -> None:
    def attack(left: Left) -> None:
        left.record.update(ended="crashed", detail="OSError: [Errno 122] Disk quota exceeded")
        left.keep()

    assert run_beside(tmp_path, attack)["attacked"] == ("NO VERDICT", "launcher failed")


class Going(Leaving):
    """A launcher whose engine goes away under a cell, once."""

    def __init__(self, host: Path, *, before: int) -> None:
        super().__init__(None, host)
        self.before = before

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        self.before -= 1
        if self.before == 0:
            (out / f"{index}.started.json").write_text("{}")
            self.polled()
            raise MachineryError("the engine went away")
        super().cell(index, cell, out)

    def polled(self) -> None:
        """Let the client see that the cell has begun."""
        self.poll()

    def run(self, ready: Any, folder: Path, poll: Any) -> Any:
        self.poll = poll
        return super().run(ready, folder, poll)


@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_after_a_restart_of_the_engine_the_rest_is_run(before: int, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    seen = run_beside(tmp_path, None, launcher=Going(tmp_path / "host", before=before))
    hit = CELLS[before - 1].case.id
    assert seen == {**UNDISTURBED, hit: ("NO VERDICT", "launcher failed")}


def test_an_engine_that_never_comes_back_ends_the_run(tmp_path: Path) -> None:
    class Gone(Leaving):
        def run(self, *_: Any) -> Any:
            raise MachineryError("no engine answers")

    (tmp_path / "host").mkdir()
    seen = run_beside(tmp_path, None, launcher=Gone(None, tmp_path / "host"))
    assert set(seen.values()) == {("NO VERDICT", "launcher failed")}
