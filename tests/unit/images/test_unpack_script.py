"""A pack that is not as it was made is refused by name, before an engine or the disk sees any of it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from packs import IMAGE, IMAGE_BYTES, StandIn, tree_of, write_pack

from trtmatrix.common.errors import ExitCode
from trtmatrix.images.pack import FILES, IMAGES, MANIFEST, SCRIPT, SOURCE, SUMS

Spoil = Callable[[Path], object]
LOADED = [sha256(IMAGE_BYTES).hexdigest()]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(tmp_path, monkeypatch)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    write_pack(tmp_path / "p")
    return tmp_path / "p"


def unpack(pack: Path, *words: str) -> int:
    words = words if any(word.startswith("--python") for word in words) else ("--no-venv", *words)
    command = ["/bin/sh", str(SOURCE), str(pack), f"--into={pack.parent / 'into'}", *words]
    return subprocess.run(command, check=False).returncode


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def manifest_of(pack: Path, change: Callable[[str], str]) -> None:
    """Change the manifest and give it its digest: what is then refused is refused for what it says."""
    (pack / MANIFEST).write_text(change((pack / MANIFEST).read_text()))
    sum_again(pack / MANIFEST)


def sum_again(file: Path) -> None:
    sums = file.with_name(SUMS)
    line = f"{sha256(file.read_bytes()).hexdigest()}  {file.name}"
    sums.write_text(re.sub(f".*  {file.name}$", line, sums.read_text(), flags=re.MULTILINE))


def instead(name: str, make: Spoil) -> Spoil:
    """Put something else in the place of a file."""

    def spoil(pack: Path) -> None:
        (pack / name).unlink()
        make(pack / name)

    return spoil


def sparse(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 42)


def link_to(target: str) -> Spoil:
    return lambda file: file.symlink_to(target)


SPOILT: dict[str, tuple[Spoil, str]] = {
    "a FIFO of digests": (instead(SUMS, os.mkfifo), "^unpack: "),
    "digests of 4 TB": (instead(SUMS, sparse), "^unpack: "),
    "digests that are a link": (instead(SUMS, link_to("/dev/zero")), "^unpack: "),
    "a script that is a FIFO": (instead(SCRIPT, os.mkfifo), "^unpack: "),
    "a manifest that is a link": (instead(MANIFEST, link_to("/etc/hostname")), "^unpack: "),
    "a suite that is a link": (instead(FILES, link_to("/etc/hostname")), "^unpack: "),
    "a name of markup": (lambda p: manifest_of(p, lambda t: f"{t}by \x1b[2J\n"), "^unpack: "),
    "a command": (lambda p: manifest_of(p, lambda t: f"{t}version $(reboot)\n"), "^unpack: "),
    "a byte of the images": (lambda p: flip(p / IMAGES, 2000), r"images\.tar differs"),
    "a byte of the script": (lambda p: flip(p / SCRIPT, 300), "unpack differs"),
    "the images are missing": (lambda p: (p / IMAGES).unlink(), r"images\.tar is missing"),
    "a hidden one": (lambda p: shutil.copy(p / IMAGES, p / ".x\x1b[2J"), r"\.x\?\[2J is extra"),
    "no manifest": (lambda p: (p / MANIFEST).unlink(), "writing it was cut off"),
    "without end": (lambda p: (p / MANIFEST).write_text("[" * 2_000_000), "manifest.txt cannot be used"),
    "another schema": (lambda p: manifest_of(p, lambda t: t.replace("schema 4", "schema 3")), "of schema 3"),
    "no images": (lambda p: manifest_of(p, lambda t: re.sub("image .*\n", "", t)), "the same files"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_pack_is_refused_by_name_before_anything_is_loaded(
    how: str, pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, words = SPOILT[how]
    spoil(pack)
    assert unpack(pack) == ExitCode.SURPRISE
    told = capfd.readouterr().err
    assert re.search(words, told)
    assert "\x1b" not in told
    assert engine.asked == []
    assert not (pack.parent / "into").exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a/../../x", b"0"), ("{folder}/x", b"0"), ("x", tarfile.SYMTYPE), ("x", tarfile.CHRTYPE)],
)
def test_a_suite_that_could_do_harm_is_not_unpacked(
    name: str, kind: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    info = tarfile.TarInfo(name.format(folder=tmp_path))
    info.type, info.linkname = kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
    write_pack(tmp_path / "q", images=())
    with tarfile.open(tmp_path / "q" / FILES, mode="w") as archive:
        archive.addfile(info)
    sum_again(tmp_path / "q" / FILES)
    assert unpack(tmp_path / "q") == ExitCode.SURPRISE
    assert "what is no plain file" in capfd.readouterr().err
    assert not any((tmp_path / left).exists() for left in ("x", "into"))


def test_a_whole_pack_is_loaded_and_the_second_time_changes_nothing(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("lost+found", ".Trash-1000", "System Volume Information"):
        (pack / name).mkdir()  # as a disk has them at its root
    assert unpack(pack, "--check") == 0
    assert (engine.asked, (pack.parent / "into").exists()) == ([], False)
    assert unpack(pack) == 0
    assert engine.loaded == LOADED
    assert engine.held == {IMAGE.id: IMAGE.id, "a/b:1": IMAGE.id}
    assert not list(pack.parent.glob(".trtmatrix-*"))
    assert (pack.parent / "into" / "src" / "a.py").read_bytes() == b"print()\n"
    printed = capfd.readouterr().out
    assert "PYTHONPATH=src python3 -m trtmatrix run --offline --trt onnxruntime-1.31.1" in printed
    before = tree_of(pack.parent / "into")
    assert unpack(pack) == 0
    assert (engine.loaded, tree_of(pack.parent / "into")) == (LOADED, before)


REFUSED: dict[str, tuple[dict[str, object], int, str]] = {
    "one behind a network": ({"host": "tcp://127.0.0.1:2375"}, 2, "opens no connection"),
    "one behind a shell": ({"host": "ssh://user@host"}, 2, "opens no connection"),
    "a name of another's": ({"held": {"a/b:1": "sha256:beef"}}, 2, "docker tag a/b:1 OTHER"),
    "another platform": ({"info": "linux/aarch64"}, 2, "linux/arm64"),
    "Podman's platform": ({"info": "linux/arm64", "podman": True}, 2, "linux/arm64"),
    "another image store": ({"loads": "sha256:other"}, 3, "containerd-snapshotter"),
    "an engine's error": ({"error": "no space left on device"}, 3, "no space left"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_an_engine_that_cannot_have_the_images_is_told_of(
    how: str, pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, code, words = REFUSED[how]
    engine.set(**facts)
    if host := facts.get("host"):
        monkeypatch.setenv("DOCKER_HOST", str(host))
    assert unpack(pack) == code
    assert words in capfd.readouterr().err
    assert "host" not in facts or engine.asked == []
    assert not (pack.parent / "into").exists()


def test_without_an_engine_the_rest_is_unpacked(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    engine.set(info="")
    for words in ("usermod -aG docker", "neither docker nor podman"):
        assert unpack(pack) == 0
        told = capfd.readouterr().out
        assert ("THE IMAGES WERE NOT LOADED" in told, words in told) == (True, True)
        assert (pack.parent / "into" / "matrix.yaml").is_file()
        shutil.rmtree(pack.parent / "into")
        (engine.bin / "docker").unlink(missing_ok=True)


def test_a_file_that_somebody_changed_is_never_overwritten(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    into = pack.parent / "into"
    (into / "results").mkdir(parents=True)
    (into / "results" / "mine.json").write_text("{}")
    (into / "matrix.yaml").write_text("mine")
    assert unpack(pack) == ExitCode.USAGE
    assert "other files of the same names (matrix.yaml)" in capfd.readouterr().err
    assert engine.loaded == []
    (into / "matrix.yaml").unlink()
    assert unpack(pack) == 0
    assert (into / "results" / "mine.json").read_text() == "{}"


def test_what_the_wheels_cannot_be_used_with_is_told_before_anything_is_loaded(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in ("for Python 3.12", "are of linux/arm64"):
        assert unpack(pack, f"--python={pack}/no-python") == ExitCode.USAGE
        assert words in capfd.readouterr().err
        (engine.bin / "uname").unlink()
        (engine.bin / "uname").write_text('#!/bin/sh\n[ "$1" = -m ] && echo aarch64 || echo Linux\n')
        (engine.bin / "uname").chmod(0o755)
    assert engine.loaded == []


def test_a_folder_that_cannot_be_written_is_no_damage_of_the_pack(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    assert unpack(pack.parent / "nowhere") == ExitCode.USAGE
    assert "nowhere: there is no such folder" in capfd.readouterr().err
    assert unpack(pack, "--into=/proc/x/y") == ExitCode.USAGE
    assert "--into /proc/x/y: cannot be written" in capfd.readouterr().err
    assert engine.loaded == []
    target = pack.parent / "into"
    target.mkdir()
    (target / "src").write_text("a file where a folder must be")
    assert unpack(pack) == ExitCode.MACHINERY
    assert "into/src/a.py cannot be written" in capfd.readouterr().err


def test_an_environment_of_somebody_else_is_left_as_it_is(
    pack: Path, engine: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest_of(pack, lambda text: text.replace("python 3.12", "python {}.{}".format(*sys.version_info)))
    own = pack.parent / "into" / ".venv" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("x")
    python = pack.parent / "my python"
    python.symlink_to(sys.executable)
    assert unpack(pack, f"--python={python}") == ExitCode.USAGE
    assert "this script did not make it" in capfd.readouterr().err
    assert (own.read_text(), engine.loaded) == ("x", [])
