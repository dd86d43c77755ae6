"""What goes into a pack, and what cannot be packed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import docker
import pytest
from packs import IMAGE_BYTES, write_pack

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import UsageError
from trtmatrix.images.pack import IMAGES, SUMS, PackedImage, images_of
from trtmatrix.images.pack_suite import wanted_pythons
from trtmatrix.suite.matrix import Fact, ImageOrigin, Pin, Version
from trtmatrix.suite.model import Known

FACT = Fact(value="1", known=Known.READ, source="here")
ROOT = Path(__file__).resolve().parents[3]


def version(name: str, image: str, pin: Pin | None = None) -> Version:
    return Version(version=name, origin=ImageOrigin(image=image, pin=pin), library=FACT)


def test_a_pack_is_checked_by_the_tools_of_any_host(tmp_path: Path) -> None:
    write_pack(tmp_path / "p")
    assert (tmp_path / "p" / IMAGES).read_bytes() == IMAGE_BYTES
    subprocess.run(["/usr/bin/sha256sum", "--check", "--strict", SUMS], cwd=tmp_path / "p", check=True)


def packed(
    held: dict[str, str], versions: list[Version], tags: dict[str, list[str]]
) -> tuple[PackedImage, ...]:
    """What is packed of an engine with images of these IDs and names."""
    found = {one: SimpleNamespace(attrs={"RepoTags": names}) for one, names in tags.items()}
    client = SimpleNamespace(images=SimpleNamespace(get=found.__getitem__))
    return images_of(cast("docker.DockerClient", client), held, versions)


def test_images_that_versions_share_go_once() -> None:
    pin = Pin(manifest="sha256:m", ids=("sha256:1",))
    versions = [version("1", "a/b:1", pin), version("2", "a/b:2"), version("3", "c:1"), version("4", "d:1")]
    held = {"1": "sha256:1", "2": "sha256:1", "3": "sha256:3"}
    first, second = packed(held, versions, {"sha256:1": ["a/b:1"], "sha256:3": []})
    assert (first.names, first.versions, first.manifest) == (("a/b:1", "a/b:2"), ("1", "2"), "sha256:m")
    assert (second.id, second.names, second.versions) == ("sha256:3", ("c:1",), ("3",))
    untagged = packed({"1": "sha256:1"}, versions, {"sha256:1": []})
    assert untagged[0].names == (), "a locked image is found by its ID"


def test_an_image_that_no_run_would_find_again_is_refused() -> None:
    digest = f"a/b@sha256:{'0' * 64}"
    with pytest.raises(UsageError, match="nox -s lock -- --update --trt 1"):
        packed({"1": "sha256:1"}, [version("1", digest)], {"sha256:1": []})
    pinned = version("1", digest, Pin(manifest="sha256:m", ids=("sha256:1",)))
    assert packed({"1": "sha256:1"}, [pinned], {"sha256:1": []})[0].names == ()


def test_pythons() -> None:
    assert wanted_pythons([]) == (f"{sys.version_info[0]}.{sys.version_info[1]}",)
    assert wanted_pythons(["3.10", "3.12", "3.10"]) == ("3.10", "3.12")
    for bad in ("3", "3.8", "python3.12", "3.12.1"):
        with pytest.raises(UsageError, match=r"such as 3\.12"):
            wanted_pythons([bad])


def test_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    words = [f"--matrix={ROOT / 'matrix.yaml'}", f"--repros={ROOT / 'repros'}", f"--cache={tmp_path}"]
    assert cli.run(["pack", *words, "--to", "p", "--trt", "10.7.0"]) == 3
    assert "no images can be packed" in capsys.readouterr().err
    assert cli.run(["pack", *words, "--to", "p", "--runtime", "container"]) == 2
    assert "nothing to pack" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()
