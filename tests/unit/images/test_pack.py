"""What goes into a pack: images, and files that git tracks; and what cannot be packed."""

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import docker
import pytest
from builders import make_version

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.images import pack
from trtmatrix.images.pack import PackedImage, fetch_wheels, find_suite, images_of
from trtmatrix.launchers.wheels import without_passwords
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.matrix import ImageOrigin, Pin, Version

ROOT = Path(__file__).resolve().parents[3]


def version(name: str, image: str, pin: Pin | None = None) -> Version:
    return replace(make_version(), version=name, origin=ImageOrigin(image=image, pin=pin))


def packed(held: dict[str, str], *versions: Version) -> tuple[PackedImage, ...]:
    """What is packed of an engine with images of these IDs, the first of which has a name."""
    tags = {"sha256:1": ["a/b:1"], "sha256:3": []}
    images = SimpleNamespace(get=lambda one: SimpleNamespace(attrs={"RepoTags": tags[one]}))
    return images_of(cast("docker.DockerClient", SimpleNamespace(images=images)), held, versions)


def test_images_that_versions_share_go_once() -> None:
    pin = Pin(manifest="sha256:m", ids=("sha256:1",))
    versions = [version("1", "a/b:1", pin), version("2", "a/b:2"), version("3", "c:1"), version("4", "d:1")]
    held = {"1": "sha256:1", "2": "sha256:1", "3": "sha256:3"}
    first, second = packed(held, *versions)
    assert (first.names, first.manifest) == (("a/b:1", "a/b:2"), "sha256:m")
    assert (second.id, second.names) == ("sha256:3", ("c:1",))


def test_an_image_that_no_run_would_find_again_is_refused() -> None:
    digest = f"a/b@sha256:{'0' * 64}"
    with pytest.raises(UsageError, match="nox -s lock -- --update --trt 1"):
        packed({"1": "sha256:3"}, version("1", digest))
    pinned = version("1", digest, Pin(manifest="sha256:m", ids=("sha256:3",)))
    assert packed({"1": "sha256:3"}, pinned)[0].names == (), "it is found by its ID"


def test_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [f"--matrix={ROOT / 'matrix.yaml'}", f"--repros={ROOT / 'repros'}", f"--cache={tmp_path}"]
    for more, code, told in (
        ("--trt=10.7.0", 3, "no images can be packed"), ("--runtime=container", 2, "nothing to pack"),
        ("--for-python=3.8", 2, "such as 3.12"),
    ):  # fmt: skip
        assert cli.run(["pack", "--to=p", *files, more]) == code
        assert told in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the project of a checkout with one commit, in which this program lies."""
    root = tmp_path / "checkout"
    for name in ("src/trtmatrix/a.py", "repros/good.py", "pyproject.toml", "matrix.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("schema: 1\n")
    (root / ".gitignore").write_text("*.json\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "x")
    monkeypatch.setitem(PACKAGES, "trtmatrix", root / "src" / "trtmatrix")
    return Project(
        matrix=root / "matrix.yaml", repros=root / "repros", results=root / "results", cache=root / "c"
    )


def git(root: Path, *words: str) -> None:
    subprocess.run([*GIT, "-C", str(root), *words], check=True, capture_output=True)


def test_only_what_git_tracks_goes_along(checkout: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("customer.key", "credentials.json", "new.py"):
        (checkout.repros / name).write_text("x")
    (checkout.repros / "link.py").symlink_to("/etc/passwd")
    git(checkout.folder, "add", "repros/link.py")
    git(checkout.folder, "commit", "-qm", "y")
    files, commit = find_suite(checkout)
    assert {name for name in files if name.startswith("repros/")} == {"repros/good.py"}
    told = capsys.readouterr().err.splitlines()
    assert [line.rpartition("/")[2].partition(":")[0] for line in told] == ["new.py", "link.py"]
    assert "git add takes it along" in told[0]
    assert len(commit) == 40
    (checkout.repros / "good.py").write_text("schema: 2\n")
    assert find_suite(checkout)[1] == f"{commit}-dirty"


def test_where_git_cannot_say_what_is_tracked_nothing_is_packed(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (128, "fatal: detected dubious ownership\n")
    monkeypatch.setattr(pack, "run_to_end", lambda *_: said)
    with pytest.raises(UsageError, match="dubious ownership") as told:
        find_suite(checkout)
    assert f"safe.directory {checkout.folder}" in str(told.value)


def test_no_password_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ["--default-index=https://user:hunter2@example.org/simple"]
    monkeypatch.setattr(pack, "index_options", lambda: index)
    answer = (1, "cannot reach https://user:hunter2@example.org/simple")
    monkeypatch.setattr(pack, "run_to_end", lambda *_: answer)
    with pytest.raises(MachineryError, match=r"\*\*\*@example\.org") as told:
        fetch_wheels(tmp_path / "b", [], ["3.12"])
    assert "hunter2" not in str(told.value)
    assert without_passwords("https://a.org/x@y") == "https://a.org/x@y"


def test_a_matrix_of_the_users_own_goes_along_without_the_lock_of_another(
    checkout: Project, tmp_path: Path
) -> None:
    (checkout.folder / "matrix.lock").write_text("schema: 1\n")
    git(checkout.folder, "add", "matrix.lock")
    (tmp_path / "m.yaml").write_text("schema: 1\n")
    files, commit = find_suite(replace(checkout, matrix=tmp_path / "m.yaml"))
    assert (files["matrix.yaml"], commit[40:]) == (tmp_path / "m.yaml", "-dirty")
    assert "matrix.lock" not in files
