"""The shared folder: what is put there is whole, what is found is believed, what is newer is refused."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmtries import leave_image, make_manifest, make_sent, make_try, no_room

from trtmatrix.core.errors import ConfigError, MachineryError
from trtmatrix.core.slurm.shared_json import (
    format_manifest,
    parse_facts,
    parse_gone,
    parse_manifest,
    parse_sent,
    parse_wanted,
)
from trtmatrix.effects import shared_folder
from trtmatrix.effects.shared_folder import SharedFolder, SharedImage
from trtmatrix.effects.store import read_json


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    root = tmp_path / "shared"
    root.mkdir()
    return SharedFolder(root)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# What is read.


@given(text=st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_makes_the_readers_raise_anything_but_their_own_error(text: str) -> None:
    for read in (parse_manifest, parse_sent, parse_wanted, parse_gone):
        with contextlib.suppress(MachineryError):
            read(text, "file")
    parse_facts(text)


# Images.


def test_an_image_is_there_as_long_as_its_file_is(shared: SharedFolder, tmp_path: Path) -> None:
    file = tmp_path / "i.sqsh"
    file.write_text("12345")
    image = SharedImage(key="k", reference="nvcr.io/x", id="sha256:1", file=str(file), bytes=5)
    assert shared.image("k") is None
    leave_image(shared.root, "k", image.reference, image.id, file=image.file, bytes=5)
    assert shared.image("k") == image
    file.write_text("123")
    assert shared.image("k") is None
    file.unlink()
    assert shared.image("k") is None


def test_an_image_in_engines_of_nodes_needs_no_file(shared: SharedFolder) -> None:
    leave_image(shared.root, "k")
    assert shared.image("k") is not None


# Arrays.


def test_an_array_is_there_whole_and_is_read_back(shared: SharedFolder) -> None:
    manifest = make_manifest(cells=(2, 1))
    shared.add_array(manifest, "#!/bin/bash\n")
    folder = shared.array("k1")
    assert SharedFolder(shared.root).arrays() == [manifest]
    assert stat.S_IMODE((folder / "task.sh").stat().st_mode) == 0o755
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "ran", "submitted", "task.sh", "tries",
    ]  # fmt: skip


def test_the_same_array_is_not_added_twice(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "1")
    with pytest.raises(MachineryError):
        shared.add_array(make_manifest(), "2")
    assert (shared.array("k1") / "task.sh").read_text() == "1"
    assert [path.name for path in (shared.root / "arrays").iterdir()] == ["k1"]


def test_arrays_are_open_until_they_are_closed_the_oldest_first(shared: SharedFolder) -> None:
    for key, made in (("b", "2026-01-02"), ("a", "2026-01-03"), ("c", "2026-01-01")):
        shared.add_array(make_manifest(key, made=made), "")
    assert [manifest.key for manifest in shared.arrays()] == ["c", "b", "a"]
    other = SharedFolder(shared.root)
    other.close_array("b", "done")
    assert [manifest.key for manifest in shared.arrays()] == ["c", "a"]
    assert [(m.key, over) for m, over in shared.all_arrays(without={"c"})] == [("b", True), ("a", False)]


def test_an_array_that_is_being_cancelled_says_why(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "")
    assert shared.stopping("k1") == ""
    shared.stop_array("k1", "interrupted")
    assert shared.stopping("k1") == "interrupted"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": 2}, "a newer trtmatrix"),
        ({"layout": None}, "is no number"),
        ({"tasks": 3}, "tasks: Input should be"),
        ({"key": "other"}, "it is of the array other"),
        ({"tasks": [[]]}, "has no cells"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_a_remedy(
    shared: SharedFolder, change: dict[str, object], words: str
) -> None:
    shared.add_array(make_manifest(), "")
    file = shared.array("k1") / "manifest.json"
    file.write_text(json.dumps({**format_manifest(make_manifest()), **change}))
    with pytest.raises(MachineryError, match=words) as caught:
        shared.arrays()
    assert str(file) in str(caught.value)


def test_a_damaged_manifest_of_an_array_that_is_over_stops_nobody(shared: SharedFolder) -> None:
    for key in ("k1", "k2"):
        shared.add_array(make_manifest(key), "")
    shared.close_array("k1", "done")
    (shared.array("k1") / "manifest.json").write_text("{")
    assert SharedFolder(shared.root).arrays() == [make_manifest("k2")]


def test_an_array_that_cannot_be_written_leaves_nothing(shared: SharedFolder) -> None:
    with no_room(), pytest.raises(MachineryError, match="File too large"):
        shared.add_array(make_manifest(), "")
    assert list((shared.root / "arrays").iterdir()) == []


def test_a_file_that_cannot_even_be_removed_is_told_of_as_such(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", away)
    monkeypatch.setattr(Path, "unlink", away)
    with pytest.raises(MachineryError, match=r"stopping: Input/output error; is the shared folder"):
        shared.stop_array("k1", "interrupted")


def test_a_manifest_keeps_what_cells_are_handed(shared: SharedFolder) -> None:
    manifest = make_manifest()
    handed = {"params": {"x": [1, 2.5, None, math.inf, "√\n"]}, "seconds": 3}
    task = (replace(manifest.tasks[0][0], handed=handed),)
    shared.add_array(replace(manifest, tasks=(task,)), "")
    (read,) = SharedFolder(shared.root).arrays()
    assert read.tasks[0][0].handed == {"params": {"x": [1, 2.5, None, "Infinity", "√\n"]}, "seconds": 3}


# Attempts.


def test_an_attempt_gives_the_probe_its_cells_in_its_own_order(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "")
    shared.add_try("k1", 0, 2, (2, 0), retry=True, why="NODE_FAIL")
    job = shared.array("k1") / "tries" / "0.2" / "job"
    assert names(job) == ["0.cell.json", "1.cell.json", "end", "job.json"]
    assert json.loads((job / "0.cell.json").read_text())["files"] == "files-2"
    assert json.loads((job / "job.json").read_text()) == {"product": "tensorrt"}
    (left,) = SharedFolder(shared.root).tries("k1")
    assert left == make_try(2, (2, 0), retry=True, why="NODE_FAIL")


def test_an_attempt_that_stands_stays(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "")
    shared.add_try("k1", 0, 1, (0, 1))
    shared.add_try("k1", 0, 1, (2,))
    assert [left.indices for left in shared.tries("k1")] == [(0, 1)]
    assert [path.name for path in (shared.array("k1") / "tries").iterdir()] == ["0.1"]


def test_what_slurm_said_of_a_job_is_written_once(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "")
    shared.add_try("k1", 0, 1, (0,))
    shared.note_gone("k1", 0, 1, "NODE_FAIL", "n1 is down", "n1")
    SharedFolder(shared.root).note_gone("k1", 0, 1, "CANCELLED")
    (left,) = shared.tries("k1")
    assert (left.gone, left.gone_why, left.node) == ("NODE_FAIL", "n1 is down", "n1")


# Submissions and nodes.


def test_a_submission_is_written_before_sbatch_and_after_it(shared: SharedFolder) -> None:
    shared.add_array(make_manifest(), "")
    begun = make_sent(2, job="")
    shared.note_submission("k1", begun)
    other = SharedFolder(shared.root)
    assert other.submissions("k1") == [begun]
    shared.note_submission("k1", make_sent(2, job="12"))
    shared.note_submission("k1", make_sent(1, job="", refused="Invalid gres"))
    for folder in (shared, other):
        assert folder.submissions("k1") == [
            make_sent(1, job="", refused="Invalid gres"),
            make_sent(2, job="12"),
        ]


LINE = "NVIDIA L4, GPU-{}, 8.9, 23034, {}, [N/A], 210, 405, 72.00"


def nodes(shared: SharedFolder) -> dict[str, tuple[str, ...]]:
    return {node.name: node.gpus for node in shared.boards()}


def test_a_node_has_the_gpus_that_jobs_found_there(shared: SharedFolder) -> None:
    for uuid, driver in (("1", "550.1"), ("2", "550.1"), ("1", "550.1")):
        shared.note_node("n1.site", LINE.format(uuid, driver), "2026-01-01T00:00:00Z")
    assert sorted(nodes(shared)["n1.site"]) == [LINE.format(1, "550.1"), LINE.format(2, "550.1")]
    shared.note_node("n1.site", LINE.format("1", "560.2"), "2026-01-02T00:00:00Z")
    (node,) = SharedFolder(shared.root).boards()
    assert (node.name, node.gpus, node.seen) == (
        "n1.site", (LINE.format(1, "560.2"),), "2026-01-02T00:00:00Z",
    )  # fmt: skip
    shared.note_node("n2", "nvidia-smi: not found", "2026-01-02T00:00:00Z")
    assert set(nodes(shared)) == {"n1.site"}


def test_to_note_a_node_the_others_are_not_read(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("n1", "n2"):
        shared.note_node(node, LINE.format(1, "550.1"), "2026-01-01T00:00:00Z")
    read: list[str] = []

    def reading(path: Path) -> dict[str, Any] | None:
        read.append(path.name)
        return read_json(path)

    monkeypatch.setattr(shared_folder, "read_json", reading)
    shared.note_node("n2", LINE.format(2, "550.1"), "2026-01-01T00:00:00Z")
    assert read == ["n2.json"]
    assert sorted(nodes(shared)["n2"]) == [LINE.format(1, "550.1"), LINE.format(2, "550.1")]


def test_of_nodes_whose_names_make_one_file_the_last_one_counts(shared: SharedFolder) -> None:
    for node, uuid in (("n/1", 1), ("n:1", 2)):
        shared.note_node(node, LINE.format(uuid, "550.1"), "2026-01-01T00:00:00Z")
    assert nodes(shared) == {"n:1": (LINE.format(2, "550.1"),)}


def test_a_nodes_name_names_no_other_place(shared: SharedFolder) -> None:
    shared.note_node("../../evil", LINE.format(1, "550.1"), "2026-01-01")
    assert list(nodes(shared)) == ["../../evil"]
    assert [path.parent for path in shared.root.rglob("*.json")] == [shared.root / "nodes"]


# Layout.


def test_a_newer_trtmatrixs_folder_is_refused(shared: SharedFolder) -> None:
    shared.check()
    file = shared.root / "layout.json"
    assert json.loads(file.read_text()) == {"layout": 1}
    file.write_text('{"layout": 2}')
    with pytest.raises(MachineryError, match="newer trtmatrix"):
        shared.check()


@pytest.mark.parametrize("text", ["", '{"lay', "[2]", "{}", "null"])
def test_a_damaged_layout_is_refused_and_not_written_over(shared: SharedFolder, text: str) -> None:
    file = shared.root / "layout.json"
    file.write_text(text)
    with pytest.raises(MachineryError, match="remove it and type the command again"):
        shared.check()
    assert file.read_text() == text


def test_a_folder_that_does_what_it_must_tells_its_room(shared: SharedFolder) -> None:
    room = shared.check()
    assert room.free > 0
    assert room.kind not in {"", "unknown"}
    assert sorted(path.name for path in shared.root.iterdir()) == ["layout.json", "lock"]


@pytest.mark.parametrize("name", ["a:b", "a,b", "a%j", 'a"b', "a\nb", "a\\b"])
def test_a_name_that_means_something_to_sbatch_or_containers_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(ConfigError, match="means something"):
        SharedFolder(folder).check()


def test_a_folder_that_cannot_be_the_shared_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        SharedFolder(Path("relative")).check()
    with pytest.raises(ConfigError, match="mkdir -p"):
        SharedFolder(tmp_path / "missing").check()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no folder"):
        SharedFolder(tmp_path / "file").check()
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod o-w"):
        SharedFolder(tmp_path).check()
    tmp_path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, -1)
    with pytest.raises(ConfigError, match="of your own: mkdir"):
        SharedFolder(tmp_path).check()
    assert list(tmp_path.iterdir()) == []
