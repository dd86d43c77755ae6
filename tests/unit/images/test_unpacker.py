"""A pack that is not as it was made is refused by name, before an engine or the disk sees any of it."""

from __future__ import annotations

import ast
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from packs import IMAGE, IMAGE_BYTES, StandIn, tree_of, write_pack

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import ExitCode
from trtmatrix.images import unpacker
from trtmatrix.images.unpacker import FILES, IMAGES, MANIFEST, SCRIPT, SUMS

Spoil = Callable[[Path], object]
LOADED = [sha256(IMAGE_BYTES).hexdigest()]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(tmp_path, monkeypatch)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    write_pack(tmp_path / "p", files={"matrix.yaml": b"schema: 1\n", "src/a.py": b"print()\n"})
    return tmp_path / "p"


def unpack(pack: Path, *words: str) -> int:
    return cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}", "--no-venv", *words])


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def manifest_of(pack: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest and give it its digest: what is then refused is refused for what it says."""
    data = json.loads((pack / MANIFEST).read_text())
    change(data)
    text = json.dumps(data)
    (pack / MANIFEST).write_text(text)
    lines = (pack / SUMS).read_text().splitlines()
    new = [f"{sha256(text.encode()).hexdigest()}  {MANIFEST}" if MANIFEST in line else line for line in lines]
    (pack / SUMS).write_text("\n".join(new) + "\n")


UNUSABLE = f"{SUMS} or {MANIFEST} cannot be used"
SPOILT: dict[str, tuple[Spoil, str]] = {
    "a byte of the images": (lambda p: flip(p / IMAGES, 2000), r"images\.tar differs"),
    "a byte of the digests": (lambda p: flip(p / SUMS, 3), "differs"),
    "a byte of the script": (lambda p: flip(p / SCRIPT, 300), "unpack differs"),
    "the images are missing": (lambda p: (p / IMAGES).unlink(), r"images\.tar is missing"),
    "one too many": (lambda p: shutil.copy(p / IMAGES, p / "images.009"), r"'images\.009' is extra"),
    "no manifest": (lambda p: (p / MANIFEST).unlink(), "writing it was cut off"),
    "no digests": (lambda p: (p / SUMS).unlink(), UNUSABLE),
    "without end": (lambda p: (p / MANIFEST).write_text("[" * 200_000), UNUSABLE),
    "another schema": (lambda p: manifest_of(p, lambda d: d.update(schema=3)), "of schema 3"),
    "no images": (lambda p: manifest_of(p, lambda d: d.update(images=[])), "the same files"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_pack_is_refused_by_name_before_anything_is_loaded(
    how: str, pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words = SPOILT[how]
    spoil(pack)
    assert unpack(pack) == ExitCode.SURPRISE
    told = capsys.readouterr().err
    assert re.search(words, told)
    assert "\x1b" not in told
    assert engine.asked == []
    assert not (pack.parent / "into").exists()


def with_files(folder: Path, content: bytes) -> Path:
    """Return a pack whose suite is these bytes, with their digest."""
    write_pack(folder, images=())
    old, new = (sha256(each).hexdigest() for each in ((folder / FILES).read_bytes(), content))
    (folder / FILES).write_bytes(content)
    (folder / SUMS).write_text((folder / SUMS).read_text().replace(old, new))
    return folder


@pytest.mark.parametrize("kind", ["a way out", "an absolute path", "a link", "a device"])
def test_a_suite_that_could_do_harm_is_not_unpacked(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tarfile.TarInfo({"a way out": "a/../../x", "an absolute path": f"{tmp_path}/x"}.get(kind, "x"))
    info.type = {"a link": tarfile.SYMTYPE, "a device": tarfile.CHRTYPE}.get(kind, tarfile.REGTYPE)
    info.linkname = "/etc/passwd" if kind == "a link" else ""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(info, io.BytesIO())
    assert unpack(with_files(tmp_path / "q", tar.getvalue())) == ExitCode.SURPRISE
    assert "which is no plain file" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "into").exists()


def test_a_whole_pack_is_loaded_and_the_second_time_changes_nothing(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lost+found", ".Trash-1000", "System Volume Information"):
        (pack / name).mkdir()  # as a disk has them at its root
    assert unpack(pack) == 0
    assert engine.loaded == LOADED
    assert engine.held == {IMAGE.id: IMAGE.id, "a/b:1": IMAGE.id}
    assert (pack.parent / "into" / "src" / "a.py").read_bytes() == b"print()\n"
    printed = capsys.readouterr().out
    assert "-m trtmatrix run --offline --trt onnxruntime-1.31.1" in printed
    before = tree_of(pack.parent / "into")
    assert unpack(pack) == 0
    assert (engine.loaded, tree_of(pack.parent / "into")) == (LOADED, before)


def test_check_looks_at_every_byte_and_loads_nothing(pack: Path, engine: StandIn) -> None:
    assert unpack(pack, "--check") == 0
    assert (engine.asked, (pack.parent / "into").exists()) == ([], False)


REFUSED: dict[str, tuple[dict[str, object], int, str]] = {
    "a name of another's": ({"held": {"a/b:1": "sha256:mine"}}, 2, "docker tag a/b:1 OTHER"),
    "another platform": ({"info": {"OSType": "linux", "Architecture": "aarch64"}}, 2, "linux/arm64"),
    "Podman's platform": ({"info": {"host": {"arch": "arm64", "os": "linux"}}}, 2, "linux/arm64"),
    "another image store": ({"loads": "sha256:other"}, 3, "containerd-snapshotter"),
    "an engine's error": ({"error": "no space left on device"}, 3, "no space left"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_an_engine_that_cannot_have_the_images_is_told_of(
    how: str, pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, code, words = REFUSED[how]
    engine.set(**facts)
    assert unpack(pack) == code
    assert words in capsys.readouterr().err
    assert not (pack.parent / "into").exists()


@pytest.mark.parametrize("how", ["not installed", "does not answer", "no JSON"])
def test_without_an_engine_the_rest_is_unpacked(
    how: str, pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.set(info="nothing" if how == "no JSON" else {})
    if how == "not installed":
        monkeypatch.setattr("trtmatrix.images.unpacker.shutil.which", lambda _: None)
    assert unpack(pack) == 0
    told = capsys.readouterr().out
    assert "THE IMAGES WERE NOT LOADED" in told
    words = "neither docker nor podman" if how == "not installed" else "usermod -aG docker"
    assert words in told
    assert (pack.parent / "into" / "matrix.yaml").is_file()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "ssh://user@host"])
def test_an_engine_behind_a_network_is_refused(
    address: str, pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("DOCKER_HOST", address)
    assert unpack(pack) == ExitCode.USAGE
    assert "opens no connection" in capsys.readouterr().err
    assert engine.asked == []


def test_a_file_that_somebody_changed_is_never_overwritten(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    into = pack.parent / "into"
    (into / "results").mkdir(parents=True)
    (into / "results" / "mine.json").write_text("{}")
    (into / "matrix.yaml").write_text("mine")
    assert unpack(pack) == ExitCode.USAGE
    assert "other files of the same names (matrix.yaml)" in capsys.readouterr().err
    assert engine.loaded == []
    (into / "matrix.yaml").unlink()
    assert unpack(pack) == 0
    assert (into / "results" / "mine.json").read_text() == "{}"


def test_what_the_wheels_cannot_be_used_with_is_told_before_anything_is_loaded(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["unpack", str(pack), f"--into={pack.parent / 'into'}", "--no-images"]
    monkeypatch.setattr(unpacker, "call", lambda command, *_: (0, "3.9" if "-c" in command else "{}"))
    assert cli.run(words) == ExitCode.USAGE
    assert "for Python 3.12" in capsys.readouterr().err
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cli.run(words) == ExitCode.USAGE
    assert "are of linux/arm64" in capsys.readouterr().err
    assert engine.loaded == []


def test_an_environment_of_somebody_else_is_left_as_it_is(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pack.parent / "into" / ".venv" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("x")
    monkeypatch.setattr(unpacker, "find_python", lambda *_: sys.executable)
    assert cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}"]) == ExitCode.USAGE
    assert "this script did not make it" in capsys.readouterr().err
    assert (own.read_text(), engine.loaded) == ("x", [])


@pytest.mark.parametrize("way", ["from elsewhere", "in its folder"])
def test_no_file_beside_the_script_is_run(way: str, pack: Path, tmp_path: Path) -> None:
    for module in ("__future__", "hashlib", "argparse", "json", "tarfile"):
        (pack / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    script, folder = ("unpack", pack) if way == "in its folder" else (str(pack / "unpack"), tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", script, "--check"], cwd=folder, env={}, capture_output=True, check=False
    )
    assert b"hashlib.py' is extra" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_script_is_of_the_standard_library_alone_and_reads_as_python_3_8(tmp_path: Path) -> None:
    write_pack(tmp_path / "p")
    tree = ast.parse((tmp_path / "p" / SCRIPT).read_text(), feature_version=(3, 8))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names}
    assert "python3 -I unpack" in (ast.get_docstring(tree) or "")
    assert os.access(unpacker.__file__, os.R_OK)
