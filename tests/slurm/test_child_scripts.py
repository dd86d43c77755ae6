"""The scripts for pyxis and Apptainer over stand-ins for both, which run the real probe by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.slurm import standins
from tests.slurm.script_kit import Node, a_node, read_facts
from tests.slurm.waiting import wait_until
from trtmatrix.core.slurm.site import NodeRuntime

GOOD = {"does": "passes"}
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture(params=[NodeRuntime.PYXIS, NodeRuntime.APPTAINER])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    with a_node(tmp_path) as node:
        node.runtime = request.param
        node.command("srun", standins.written(standins.SRUN))
        node.command("apptainer", standins.written(standins.APPTAINER))
        node.command("enroot", standins.written(standins.ENROOT))
        image = tmp_path / "image"
        image.write_text("squashed")
        node.note_image(DIGEST, str(image))
        yield node


def processes(node: Node) -> list[str]:
    """Return the command lines that name the node's folder."""
    done = subprocess.run(["/bin/ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    lines = done.stdout
    return [line for line in lines.splitlines() if str(node.folder) in line and "supervise" in line]


def forget_image(node: Node) -> None:
    (node.shared / "images" / "i1" / "facts").unlink()
    (node.shared / "images" / "i1").rmdir()


def test_cells_run_to_their_end_whatever_one_of_them_does(node: Node) -> None:
    node.add_try(GOOD, {"does": "faults"}, {"does": "hangs", "seconds": 2}, GOOD)
    code, said = node.run(node.task())
    assert code == 0, said
    assert [node.record(n)["ended"] for n in range(4)] == ["ran", "crashed", "time-out", "ran"]
    assert (node.ended()["code"], node.ended()["trouble"]) == ("0", "")
    assert (node.ran() / "0" / "y.npy").exists()
    assert node.left() == []


def test_the_node_s_shared_memory_is_not_emptied(node: Node) -> None:
    """It is everybody's there, and not the container's own."""
    node.add_try(GOOD)
    script = node.task()
    assert "emptied=(\n    /tmp\n)" in script.read_text()


def test_a_probe_that_dies_is_told_with_its_code(node: Node) -> None:
    node.add_try(GOOD, {"does": "ends-its-supervisor"}, GOOD)
    node.run(node.task())
    assert (node.ended()["code"], node.ended()["trouble"]) == ("137", "")
    assert not (node.ran() / "1.record.json").exists()


def test_a_container_that_cannot_be_started_is_trouble_of_the_site(node: Node) -> None:
    image = node.folder / "image"
    image.write_text("broken  ")
    node.note_image(DIGEST, str(image))
    node.add_try(GOOD)
    code, _ = node.run(node.task())
    assert code == 1
    assert node.ended()["trouble"] == "runtime"
    assert "cannot start the container" in node.ended()["detail"]


def test_an_image_that_is_not_there_is_trouble_of_the_site(node: Node) -> None:
    (node.folder / "image").unlink()
    node.add_try(GOOD)
    node.run(node.task())
    assert node.ended()["trouble"] == "image"


def test_a_cancelled_job_leaves_its_records_and_no_process(node: Node) -> None:
    node.add_try(GOOD, {"does": "hangs"})
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "1.started.json").exists, 60, "the second cell has started")
    assert processes(node)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    assert node.ended()["trouble"] == "cancelled"
    assert node.record(0)["ended"] == "ran"
    wait_until(lambda: not processes(node), 5, "no process is left")
    assert node.left() == []


def test_an_import_leaves_a_file_and_its_hash(node: Node) -> None:
    forget_image(node)
    code, said = node.run(node.importing(reference=f"nvcr.io/nvidia/x:1@{DIGEST}"))
    assert code == 0, said
    facts = json.loads((node.shared / "images" / "i1" / "image.json").read_text())
    file = Path(facts["file"])
    pyxis = node.runtime is NodeRuntime.PYXIS
    assert file.name == ("image.sqsh" if pyxis else "image.sif")
    # Releases of enroot that do not know "@" are asked in the tag's place; Apptainer takes no tag beside it.
    told = f"docker://nvcr.io#nvidia/x:{DIGEST}" if pyxis else f"docker://nvcr.io/nvidia/x@{DIGEST}"
    assert file.read_text() == told
    assert facts["id"] == "sha256:" + sha256(told.encode()).hexdigest()


def test_an_image_that_is_locked_keeps_the_lock_s_id(node: Node) -> None:
    forget_image(node)
    node.run(node.importing(reference="lab/x", config=DIGEST))
    assert read_facts(node.shared / "images" / "i1" / "facts")["id"] == DIGEST


def test_an_import_that_fails_says_what_the_registry_said(node: Node) -> None:
    forget_image(node)
    code, _ = node.run(node.importing(reference="lab/nosuch:1"))
    assert code == 1
    ended = read_facts(node.shared / "images" / "i1.1" / "ended")
    assert ended["trouble"] == "image"
    assert "404" in ended["detail"]
    assert not (node.shared / "images" / "i1").exists()


def test_where_the_network_cannot_be_taken_away_it_is_said_and_cells_run(node: Node) -> None:
    node.add_try(GOOD)
    code, said = node.run(node.task(), NO_NET="1")
    assert code == 0, said
    assert ("the network cannot be taken away" in said) == (node.runtime is NodeRuntime.APPTAINER)


def test_a_record_does_not_hang_on_what_a_scheduler_or_a_runtime_says_of_the_job(node: Node) -> None:
    node.add_try(GOOD)
    code, said = node.run(node.task(), PMI_RANK="0")
    assert code == 0, said
    assert node.record(0)["measurements"]["scalars"]["scheduler"] == 0


@pytest.mark.parametrize("old", ["", "1"])
def test_what_a_site_or_a_user_has_set_for_other_containers_is_nothing_for_ours(node: Node, old: str) -> None:
    node.setup = ("export APPTAINER_BINDPATH=/opt SINGULARITYENV_LD_PRELOAD=/x.so APPTAINER_TMPDIR=/tmp",)
    node.add_try(GOOD)
    code, said = node.run(node.task(), APPTAINER_BIND="/home", APPTAINERENV_SEED="7", OLD=old)
    assert code == 0, said
    assert node.record(0)["ended"] == "ran"  # the stand-in looks at what it is given


def test_what_slurm_says_of_memory_is_told(node: Node) -> None:
    image = node.folder / "image"
    image.write_text("greedy!!")
    node.add_try({"does": "ends-its-supervisor"})
    node.run(node.task())
    assert node.ended()["oom"] == ("1" if node.runtime is NodeRuntime.PYXIS else "")  # srun alone tells it


def told_folders(node: Node) -> dict[str, str]:
    """Return where an import was told to keep what comes and goes."""
    name = "enroot" if node.runtime is NodeRuntime.PYXIS else "apptainer"
    lines = (node.folder / "bin" / f"{name}.told").read_text().splitlines()
    return dict(line.partition(" ")[::2] for line in lines)


@pytest.mark.parametrize("scratch", ["", "$DISK/here"])
def test_an_import_fills_neither_the_home_folder_nor_tmp(node: Node, scratch: str) -> None:
    forget_image(node)
    disk = node.folder / "disk" / "here"
    disk.mkdir(parents=True)
    node.scratch = scratch
    code, said = node.run(node.importing(reference="lab/x:1"), DISK=str(disk.parent))
    assert code == 0, said
    folders = told_folders(node)
    assert len(folders) == (4 if node.runtime is NodeRuntime.PYXIS else 2)
    below = str(disk) if scratch else str(node.shared / "images")
    assert all(folder.startswith(f"{below}/") for folder in folders.values())
    assert sorted(path.name for path in (node.shared / "images").iterdir()) == ["i1", "i1.1"]
    assert not any("layer" in path.name for path in node.shared.rglob("*"))
    assert list(disk.iterdir()) == []


def test_folders_of_an_import_that_the_site_or_the_user_has_named_stay(node: Node) -> None:
    forget_image(node)
    (node.folder / "enroot.conf").write_text("ENROOT_CACHE_PATH /nvme/cache\n")
    own = str(node.folder)
    code, said = node.run(
        node.importing(reference="lab/x:1"), APPTAINER_CACHEDIR=own, ENROOT_DATA_PATH=own,
        ENROOT_SYSCONF_PATH=own,
    )  # fmt: skip
    assert code == 0, said
    folders = told_folders(node)
    if node.runtime is NodeRuntime.PYXIS:
        assert (folders["CACHE"], folders["DATA"]) == ("", own)
    else:
        assert folders["CACHEDIR"] == own


def test_what_a_killed_import_left_is_removed_by_a_later_one(node: Node) -> None:
    forget_image(node)
    images = node.shared / "images"
    for name in (".i0.1.5", ".i0.1.5.work", ".i0.1.6"):
        (images / name).mkdir()
    for name in (".i0.1.5", ".i0.1.5.work"):
        os.utime(images / name, (0, 0))
    node.run(node.importing(reference="lab/x:1"))
    assert sorted(path.name for path in images.iterdir()) == [".i0.1.6", "i1", "i1.1"]
