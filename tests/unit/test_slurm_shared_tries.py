"""What attempts left is read as it appears: published or not, renamed meanwhile, damaged, cut short."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from slurmtries import make_manifest, make_try

from trtmatrix.core.errors import MachineryError
from trtmatrix.effects import shared_tries
from trtmatrix.effects.shared_files import names_in
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.store import read_json

STARTED = "job=7\ntask=0\nattempt=1\nid=8\nnode=n1\ntime=2026-01-01T00:00:00Z\n"


class Node:
    """Writes as the script on a node does."""

    def __init__(self, shared: SharedFolder, attempt: int = 1, job: str = "8") -> None:
        self.final = shared.array("k1") / "ran" / f"0.{attempt}"
        self.ran = self.final.with_name(f"0.{attempt}.{job}")
        self.ran.mkdir()
        (self.ran / "started").write_text(STARTED)

    def start(self, number: int) -> None:
        (self.ran / f"{number}.started.json").write_text('{"started": "x"}')

    def finish(self, number: int, **data: Any) -> None:
        self.start(number)
        (self.ran / str(number)).mkdir()
        (self.ran / str(number) / "out.npy").write_text(f"outputs {number}")
        self.record(number, **data)

    def record(self, number: int, **data: Any) -> None:
        (self.ran / f"{number}.record.json").write_text(
            json.dumps({"ended": "ran", "number": number, **data})
        )

    def end(self, **facts: str) -> None:
        lines = {"code": "0", "oom": "", "trouble": "", "detail": "", **facts}
        (self.ran / "ended").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self.ran.rename(self.final)


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    root = tmp_path / "shared"
    root.mkdir()
    folder = SharedFolder(root)
    folder.add_array(make_manifest(), "")
    folder.add_try("k1", 0, 1, (2, 0, 1))
    return folder


def test_records_appear_one_by_one(shared: SharedFolder) -> None:
    (left,) = shared.tries("k1")
    assert left == make_try(1, (2, 0, 1))
    node = Node(shared)
    node.finish(0)
    node.start(1)
    (node.ran / ".2.record.json").write_text("half")
    (left,) = shared.tries("k1")
    assert (set(left.records), set(left.started), left.published) == ({0}, {0, 1}, False)
    assert (left.job, left.node) == ("7", "n1")
    (node.ran / "gpu.csv").write_text("NVIDIA L4, GPU-1\n")
    node.record(1)
    node.finish(2)
    (left,) = shared.tries("k1")
    assert (set(left.records), left.gpu) == ({0, 1, 2}, "NVIDIA L4, GPU-1")


def test_what_is_published_tells_how_it_ended(shared: SharedFolder) -> None:
    node = Node(shared)
    node.finish(0)
    (node.ran / "log").write_text("x" * 20_000 + "the end")
    node.end(code="137", oom="true", trouble="", detail="a=b")
    (left,) = shared.tries("k1")
    assert (left.published, left.code, left.oom, left.trouble, left.detail) == (True, 137, True, "", "a=b")
    assert left.log.endswith("the end")
    assert len(left.log) == shared_tries.LOG_BYTES


def test_what_cannot_change_any_more_is_read_once(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(shared)
    for number in range(3):
        node.finish(number)
    shared.tries("k1")
    reads: list[str] = []
    listed: list[str] = []

    def read(path: Path) -> Any:
        reads.append(path.name)
        return read_json(path)

    def names(path: Path) -> list[str]:
        listed.append(path.name)
        return names_in(path)

    monkeypatch.setattr(shared_tries, "read_json", read)
    monkeypatch.setattr(shared_tries, "names_in", names)
    shared.tries("k1")
    assert reads == []
    assert listed == ["tries", "ran", "0.1.8"]
    node.end()
    before = shared.tries("k1")
    del listed[:]
    assert shared.tries("k1") == before
    assert listed == ["tries"]


def test_a_folder_that_is_published_while_it_is_looked_at_is_found(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(shared)
    node.finish(0)

    def late(path: Path) -> list[str]:
        found = names_in(path)
        if path.name == "ran" and not node.final.exists():
            node.end()
        return found

    monkeypatch.setattr(shared_tries, "names_in", late)
    (left,) = shared.tries("k1")
    assert (left.published, set(left.records)) == (True, {0})


def test_of_two_jobs_of_one_attempt_the_published_one_counts(shared: SharedFolder) -> None:
    first, second = Node(shared, job="8"), Node(shared, job="11")
    first.finish(0)
    (left,) = shared.tries("k1")
    assert left.records == set()  # the newer job's
    first.end(code="3")
    second.finish(1)
    (left,) = shared.tries("k1")
    assert (set(left.records), left.code) == ({0}, 3)


def test_a_record_that_only_says_that_the_probe_was_cut_off_is_none(shared: SharedFolder) -> None:
    node = Node(shared)
    node.finish(0)
    node.finish(1, ended="interrupted")
    node.end(code="1")
    (left,) = shared.tries("k1")
    assert (set(left.records), set(left.started), set(left.interrupted)) == ({0}, {0, 1}, {1})


def test_the_engines_flag_is_no_news_once_a_record_told_of_memory(shared: SharedFolder) -> None:
    node = Node(shared)
    node.finish(0, oom_kills=1)
    node.start(1)
    node.end(code="137", oom="true")
    (left,) = shared.tries("k1")
    assert not left.oom


def test_how_long_a_cell_ran_before_the_end_is_as_the_server_dates_it(shared: SharedFolder) -> None:
    node = Node(shared)
    node.finish(0)
    node.start(1)
    node.end(trouble="time")
    for name, moment in (("1.started.json", 1000.0), ("ended", 1400.0)):
        os.utime(node.final / name, (moment, moment))
    (left,) = shared.tries("k1")
    assert left.running == 400.0


def test_numbers_that_an_attempt_does_not_have_are_left_alone(shared: SharedFolder) -> None:
    node = Node(shared)
    node.record(3)
    (node.ran / "x.record.json").touch()
    (left,) = shared.tries("k1")
    assert left.records == set()


@pytest.mark.parametrize("text", ["", "{", '{"indices": [7]}', '{"indices": [0, 0]}', '{"indices": ["0"]}'])
def test_a_damaged_attempt_is_told(shared: SharedFolder, text: str) -> None:
    (shared.array("k1") / "tries" / "0.1" / "indices.json").write_text(text)
    with pytest.raises(MachineryError, match=r"indices\.json.*type the command again"):
        shared.tries("k1")


def test_damaged_words_of_a_script_are_as_good_as_none(shared: SharedFolder) -> None:
    node = Node(shared)
    (node.ran / "started").write_bytes(b"\xff\xfe=\x00\njob\n")
    node.end(code="many", trouble="new-trouble")
    (left,) = shared.tries("k1")
    assert (left.job, left.code, left.trouble) == ("", None, "new-trouble")


# Records and outputs.


def test_records_are_read_before_and_after_they_are_published(shared: SharedFolder) -> None:
    node = Node(shared)
    node.finish(0)
    (left,) = shared.tries("k1")
    assert (shared.read_record("k1", left, 0) or {})["number"] == 0
    assert shared.read_record("k1", left, 1) is None
    node.end()
    assert (shared.read_record("k1", left, 0) or {})["number"] == 0
    assert shared.ran("k1", left) == node.final


def test_outputs_are_copied_and_stay_for_others(shared: SharedFolder, tmp_path: Path) -> None:
    node = Node(shared)
    node.finish(0)
    (left,) = shared.tries("k1")
    for _ in range(2):
        taken = shared.take_outputs("k1", left, 0, tmp_path / "mine")
        assert [(path.name, path.read_text()) for path in taken.iterdir()] == [("out.npy", "outputs 0")]
        if not node.final.exists():
            node.end()
    assert list(shared.take_outputs("k1", left, 2, tmp_path / "none").iterdir()) == []


def test_links_among_outputs_name_no_file_of_this_host(shared: SharedFolder, tmp_path: Path) -> None:
    node = Node(shared)
    node.finish(0)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.npy").write_text("secret")
    (node.ran / "0" / "link.npy").symlink_to(secret / "key.npy")
    (node.ran / "0" / "folder").symlink_to(secret)
    (node.ran / "1").symlink_to(secret)
    (left,) = shared.tries("k1")
    taken = shared.take_outputs("k1", left, 0, tmp_path / "a")
    assert [path.name for path in taken.rglob("*")] == ["out.npy"]
    assert list(shared.take_outputs("k1", left, 1, tmp_path / "b").iterdir()) == []


def test_a_sign_of_life_is_one_whatever_the_clocks_of_hosts_say(shared: SharedFolder) -> None:
    node = Node(shared)
    alive, now = node.ran / "alive", time.time()
    alive.touch()
    for path in (alive, node.ran):
        os.utime(path, (now - 500, now - 500))
    (left,) = shared.tries("k1")
    assert 499 < left.seconds < 520  # its clock is late, or it is dead: that is not known yet
    os.utime(alive, (now - 490, now - 490))
    (left,) = shared.tries("k1")
    assert left.seconds < 5
    os.utime(alive, (now + 500, now + 500))
    first = shared.tries("k1")[0].seconds
    time.sleep(0.02)
    (left,) = shared.tries("k1")
    assert 0 <= first < left.seconds < 5
