"""``lock`` by the command line against a real registry: what is written, what moved, what cannot be asked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bench.registry import Serving
from projects import files_of

from tests import calling
from tests.registry.registries import NGC_VARIABLES, Image, push_image, serve_registry
from trtmatrix.cli import entry as cli
from trtmatrix.plan.context import own_platform, read_lock
from trtmatrix.plan.lockfile import Lock

REPROS = Path(__file__).resolve().parents[1] / "containers" / "repros"
HERE, OTHER = Image(platform=own_platform()), Image(platform="linux/s390x", layers=({"a": b"other\n"},))
COLUMN = """\
  - version: "{version}"
    origin: {{image: "{image}"}}
    library: {{value: "{library}", known: recalled, source: here}}
    cuda: {{value: "12.6.3", known: read, source: here}}
"""
NOWHERE = "127.0.0.1:1/nowhere:1"


class Done(calling.Done):
    """How ``lock`` ended."""

    def kinds(self) -> dict[str, str]:
        return {finding["subject"]: finding["kind"] for finding in self.data["findings"]}

    def facts(self, subject: str) -> str:
        return "\n".join(
            fact for f in self.data["findings"] if f["subject"] == subject for fact in f["facts"]
        )


class Project:
    """A matrix over images of a registry, and the real command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.file = folder, capsys, folder / "matrix.lock"

    def write(self, images: Mapping[str, str], *, library: str = "10.7.0.23", more: str = "") -> None:
        columns = [COLUMN.format(version=v, image=image, library=library) for v, image in images.items()]
        head = f'schema: 1\n{more}sources: {{here: {{title: "This test"}}}}\nversions:\n'
        (self.folder / "matrix.yaml").write_text(head + "".join(columns))

    def lock(self, *words: str) -> Done:
        code = self.command("lock", "--json", *words)
        said = self.capsys.readouterr()
        return Done(code=code, printed=said.out, told=said.err)

    def command(self, name: str, *words: str) -> int:
        return int(cli.run([name, *files_of(self.folder, REPROS), *words]))

    @property
    def locked(self) -> Lock:
        return read_lock(self.file)


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.delenv("TRTMATRIX_REGISTRY", raising=False)
    return Project(tmp_path, capsys)


def test_nothing_is_written_without_update_and_one_is_then_current(project: Project, plain: Serving) -> None:
    pushed = push_image(plain.host, "lock/first", "1", HERE, OTHER)
    image = f"{plain.host}/lock/first:1"
    project.write({"10.7.0": image})
    looked = project.lock()
    assert (looked.code, looked.kinds(), looked.data["written"]) == (1, {image: "new"}, None)
    assert not project.file.exists()

    updated = project.lock("--update")
    assert (updated.code, updated.data["written"]) == (0, True)
    locked = project.locked.images[image]
    assert (locked.digest, locked.registry) == (pushed.digest, plain.host)
    assert {platform: found.image_id for platform, found in locked.platforms.items()} == dict(
        pushed.image_ids
    )

    text = project.file.read_bytes()
    again = project.lock("--update")
    assert (again.code, again.kinds(), again.data["written"]) == (0, {image: "locked"}, False)
    assert project.file.read_bytes() == text
    assert sorted(path.name for path in project.folder.iterdir()) == ["matrix.lock", "matrix.yaml"]


def test_a_tag_that_moved_is_told_and_locked_anew_by_update_alone(project: Project, plain: Serving) -> None:
    image = f"{plain.host}/lock/moved:1"
    old = push_image(plain.host, "lock/moved", "1", HERE, OTHER)
    project.write({"10.7.0": image})
    project.lock("--update")
    other = {**NGC_VARIABLES, "TRT_VERSION": "10.8.0.40+cuda12.8"}
    push_image(plain.host, "lock/moved", "1", replace(HERE, environment=other), OTHER)
    moved = project.lock()
    assert (moved.code, [f["kind"] for f in moved.data["findings"]]) == (1, ["moved", "contradicted"])
    assert "TensorRT 10.7.0.23 → 10.8.0.40" in moved.facts(image)
    assert project.locked.images[image].digest == old.digest
    assert project.lock("--update").code == 0
    again = project.lock()
    assert (again.code, [f["kind"] for f in again.data["findings"]]) == (1, ["locked", "contradicted"])
    assert "matrix.yaml says 10.7.0.23, the image 10.8.0.40" in again.facts(image)


def test_a_registry_that_is_gone_keeps_its_entries(project: Project, plain: Serving, tmp_path: Path) -> None:
    image = f"{plain.host}/lock/other:1"
    push_image(plain.host, "lock/other", "1", HERE)
    with serve_registry(tmp_path / "gone") as serving:
        gone = f"{serving.host}/lock/gone:1"
        push_image(serving.host, "lock/gone", "1", HERE)
        project.write({"10.6.0": gone})
        assert project.lock("--update").code == 0
    before = project.locked.images[gone]
    project.write({"10.6.0": gone, "10.7.0": image})
    done = project.lock("--update")
    assert (done.code, done.kinds()) == (3, {gone: "unknown", image: "new"})
    assert "cannot be reached" in done.facts(gone)
    assert project.locked.images[gone] == before
    assert image in project.locked.images
    assert project.command("lock", "--update") == 3
    assert "could not be asked: the lock's entry stays as it was" in project.capsys.readouterr().out


def test_trt_limits_which_tags_are_asked_for_and_what_is_written(project: Project, plain: Serving) -> None:
    image = f"{plain.host}/lock/chosen:1"
    push_image(plain.host, "lock/chosen", "1", HERE)
    project.write({"10.6.0": NOWHERE, "10.7.0": image})
    done = project.lock("--update", "--trt", "10.7.0")
    assert (done.code, done.kinds(), list(project.locked.images)) == (0, {image: "new"}, [image])
    project.write({"10.6.0": NOWHERE})
    assert project.lock("--update", "--trt", "10.6.0").code == 3
    assert list(project.locked.images) == [image], "of versions that were not looked at nothing goes"
    assert project.lock("--update").kinds() == {NOWHERE: "unknown"}
    assert project.locked == Lock()


def test_a_mirror_leaves_name_and_digest_as_they_are(project: Project, plain: Serving) -> None:
    image = "nvcr.io/nvidia/pytorch:24.12-py3"
    pushed = push_image(plain.host, "mirror/pytorch", "24.12-py3", HERE)
    project.write({"10.7.0": image}, more=f'registry: "{plain.host}/mirror"\n')
    assert project.lock("--update").code == 0
    locked = project.locked.images[image]
    assert (locked.digest, locked.registry) == (pushed.digest, plain.host)


def test_offline_and_a_broken_lock_are_refused_with_what_to_do(project: Project) -> None:
    project.write({"10.7.0": NOWHERE})
    assert project.lock("--offline").code == 2
    project.file.write_text("schema: 1\nimages: {}\nbuilds: {}\n<<<<<<< HEAD\n")
    done = project.lock("--update")
    assert done.code == 2
    assert "not valid YAML" in done.told
    assert "git checkout" in done.told
    assert project.file.read_text().endswith("HEAD\n")
