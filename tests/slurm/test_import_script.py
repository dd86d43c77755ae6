"""The script of an import, run by hand over the real engine; what it leaves is what a task's script loads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import pytest

from tests.containers.engines import client
from tests.slurm.script_kit import Node, a_node, read_facts
from tests.slurm.waiting import wait_until

SMALL = "trtmatrix/test-slurm-small:latest"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with a_node(tmp_path) as node:
        yield node


@pytest.fixture
def small(tmp_path: Path) -> Iterator[str]:
    """Make an image of a few bytes that nothing else has; returns its ID."""
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "file").write_text(str(tmp_path))
    (tmp_path / "context" / "Dockerfile").write_text('FROM scratch\nCOPY file /file\nCMD ["/file"]\n')
    image, _ = client().images.build(path=str(tmp_path / "context"), tag=SMALL, rm=True)
    yield str(image.id)
    forget(str(image.id))


def forget(image_id: str) -> None:
    with contextlib.suppress(docker.errors.ImageNotFound):
        client().images.remove(image_id, force=True)


def test_an_image_of_the_node_s_engine_is_had_whole_with_its_facts(node: Node, small: str) -> None:
    code, said = node.run(node.importing(reference=SMALL))
    assert code == 0, said
    folder = node.shared / "images" / "i1"
    facts = json.loads((folder / "image.json").read_text())
    tar = folder / "image.tar"
    assert facts == {"reference": SMALL, "id": small, "file": str(tar), "bytes": tar.stat().st_size}
    assert read_facts(folder / "facts")["id"] == small
    assert sorted(path.name for path in folder.parent.iterdir()) == ["i1", "i1.1"]
    ended = read_facts(folder.parent / "i1.1" / "ended")
    assert (ended["code"], ended["trouble"]) == ("0", "")


def test_what_was_imported_is_loaded_where_it_is_not(node: Node, small: str) -> None:
    node.run(node.importing(reference=SMALL))
    forget(small)
    node.add_try({"does": "passes"})
    node.run(node.task())
    assert client().images.get(small).tags == [f"trtmatrix/slurm:{small.removeprefix('sha256:')}"]
    assert (node.shared / "images" / "i1" / "loading.node1").exists()  # two tasks of a node load it once
    assert node.ended()["code"] not in {"", "0"}  # it has no Python, but it was started
    assert node.left() == []


def test_a_file_that_has_changed_is_not_loaded(node: Node, small: str) -> None:
    node.run(node.importing(reference=SMALL))
    forget(small)
    with (node.shared / "images" / "i1" / "image.tar").open("ab") as file:
        file.write(b"x")
    node.add_try({"does": "passes"})
    node.run(node.task())
    assert node.ended()["trouble"] == "image"
    assert "has changed since it was imported" in node.ended()["detail"]


def test_a_file_of_the_site_s_own_is_told_by_the_image_in_it(node: Node, small: str) -> None:
    file = node.folder / "its own, it's here.tar"
    with file.open("wb") as out:
        out.writelines(client().images.get(small).save(named=True))
    forget(small)
    code, said = node.run(node.importing(reference="", file=str(file)))
    assert code == 0, said
    facts = json.loads((node.shared / "images" / "i1" / "image.json").read_text())
    assert (facts["id"], facts["file"]) == (small, str(file))


def test_another_image_than_the_locked_one_is_refused(node: Node, small: str) -> None:
    assert small
    code, _ = node.run(node.importing(reference=SMALL, ids=("sha256:" + "1" * 64,)))
    assert code == 1
    ended = read_facts(node.shared / "images" / "i1.1" / "ended")
    assert ended["trouble"] == "image"
    assert "not the image of matrix.lock" in ended["detail"]
    assert not (node.shared / "images" / "i1").exists()


def test_an_image_that_nobody_has_is_told_in_the_engine_s_words(node: Node) -> None:
    code, _ = node.run(node.importing(reference="localhost:1/no/such:image"))
    assert code == 1
    ended = read_facts(node.shared / "images" / "i1.1" / "ended")
    assert ended["detail"].startswith("node1 cannot pull localhost:1/no/such:image: ")


def test_an_import_that_is_cancelled_leaves_no_half_an_image(node: Node) -> None:
    process, _ = node.start(node.importing())  # half a gigabyte
    images = node.shared / "images"
    wait_until(lambda: any(images.glob(".i1.1.*/*")), 30, "it is being saved")
    process.terminate()
    assert process.wait(timeout=20) == 143
    assert [path.name for path in images.iterdir()] == ["i1.1"]
    assert read_facts(images / "i1.1" / "ended")["trouble"] == "cancelled"


def test_of_two_imports_one_wins_and_both_are_well(node: Node, small: str) -> None:
    script = node.importing(reference=SMALL)
    both = [node.start(script, attempt)[0] for attempt in (1, 2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert read_facts(node.shared / "images" / "i1" / "facts")["id"] == small
    assert sorted(p.name for p in (node.shared / "images").iterdir()) == ["i1", "i1.1", "i1.2"]
