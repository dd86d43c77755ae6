"""What a pack's script does with a manifest that lies, with a folder that is not its own, on another host."""

from __future__ import annotations

import ast
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from packs import IMAGE, tree_of, write_pack
from test_unpack_packs import StandIn, engine, manifest_of, pack, unpack

from trtmatrix import cli
from trtmatrix.core.errors import ExitCode
from trtmatrix.effects.pack_parts import script_text
from trtmatrix.unpacker import unpack_pack
from trtmatrix.unpacker.pack_check import HEADER, MANIFEST, SUMS, Refused, part_header, wrong_names
from trtmatrix.unpacker.pack_engine import Engine, check_platform, check_store
from trtmatrix.unpacker.unpack_pack import MARK, is_new_enough, next_command

__all__ = ["engine", "pack"]  # fixtures

LIES: dict[str, Callable[[Any], object]] = {
    "a version for the shell": lambda d: d.update(versions=["1;touch x"]),
    "a version that is none": lambda d: d.update(versions=[["1"]]),
    "a Python that is none": lambda d: d.update(pythons=[312]),
    "a pack that is none": lambda d: d.update(pack="\x1b[2J"),
    "a platform that is none": lambda d: d.update(platform=""),
    "an ID that is none": lambda d: d["images"][0].update(id="../containers"),
    "a name that is none": lambda d: d["images"][0].update(names=["a b"]),
    "a name that is no text": lambda d: d["images"][0].update(names=[{}]),
    "an entry that is none": lambda d: d["files"].append([]),
    "a size that is none": lambda d: d["files"][0].update(size=10**400),
    "a size below none": lambda d: d["images"][0].update(size=-1),
    "a digest that is none": lambda d: d["files"][0].update(sha256="x"),
    "a file that is a folder": lambda d: d["files"].append({**d["files"][0], "name": "matrix.yaml/x"}),
    "names that differ in case": lambda d: d["files"].append({**d["files"][0], "name": "Matrix.yaml"}),
}


@pytest.mark.parametrize("how", LIES)
def test_a_manifest_that_lies_is_refused_before_anything_is_loaded(
    how: str, pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest_of(pack, LIES[how])
    assert unpack(pack) == ExitCode.SURPRISE
    told = capsys.readouterr().err
    assert "cannot be used" in told
    assert "\x1b" not in told
    assert (engine.asked, (pack.parent / "into").exists()) == ([], False)


def test_a_manifest_that_is_nested_without_end_is_refused(
    pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pack / MANIFEST).write_text("[" * 200_000)
    assert unpack(pack) == ExitCode.SURPRISE
    assert "nested too deeply" in capsys.readouterr().err


def test_a_part_that_is_no_tar_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "q"
    part = write_pack(folder, images=()).parts[0]
    content = part_header("20261122t000000-00000001", part.name) + b"no tar" * 1000
    digest = sha256(content).hexdigest()
    (folder / part.name).write_bytes(content)
    (folder / SUMS).write_text((folder / SUMS).read_text().replace(part.sha256, digest))
    manifest_of(folder, lambda d: d["parts"][0].update(size=len(content), sha256=digest))
    assert unpack(folder) == ExitCode.SURPRISE
    assert "no tar" in capsys.readouterr().err


def test_a_header_that_is_no_text_is_told_as_damage(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = pack / "images.001"
    content = part.read_bytes()
    part.write_bytes(b"trtmatrix pack 1\npack: \xff\xfe\npart: \xff\n".ljust(HEADER) + content[HEADER:])
    assert unpack(pack) == ExitCode.SURPRISE
    assert "images.001 differs" in capsys.readouterr().err


@pytest.mark.parametrize("extra", ["hashlib.py", "__future__.py", "json", "sitecustomize.py"])
def test_what_is_not_the_packs_is_refused_by_name(
    extra: str, pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    (pack / extra).mkdir() if extra == "json" else (pack / extra).write_text("")
    assert unpack(pack) == ExitCode.SURPRISE
    assert f"{extra} is extra" in capsys.readouterr().err
    assert engine.asked == []


def test_what_a_disk_has_at_its_root_is_no_fault(pack: Path) -> None:
    for name in ("lost+found", ".Trash-1000", "System Volume Information"):
        (pack / name).mkdir()
    assert unpack(pack, "--check") == 0


@pytest.mark.parametrize("way", ["from elsewhere", "in its folder", "on PYTHONPATH"])
def test_no_file_beside_the_script_is_run(way: str, pack: Path, tmp_path: Path) -> None:
    for module in ("__future__", "hashlib", "argparse", "json", "tarfile"):
        (pack / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    script, folder = ("unpack", pack) if way == "in its folder" else (str(pack / "unpack"), tmp_path)
    variables = {**os.environ, "PYTHONPATH": str(pack)} if way == "on PYTHONPATH" else {}
    done = subprocess.run(
        [sys.executable, "-S", script, "--check"], cwd=folder, env=variables, capture_output=True, check=False
    )
    assert b"hashlib.py is extra" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_in_its_own_folder_it_can_be_run_twice(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pack)
    words = ["unpack", ".", "--into=suite", "--no-venv", "--no-images"]
    assert [cli.run(words), cli.run(words)] == [0, 0]


def test_an_environment_of_somebody_else_is_left_as_it_is(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pack.parent / "into" / ".venv" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("x")
    monkeypatch.setattr(unpack_pack, "find_python", lambda *_: sys.executable)
    assert cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}"]) == ExitCode.USAGE
    assert "this script did not make it" in capsys.readouterr().err
    assert (own.read_text(), engine.loaded) == ("x", [])


def test_a_second_pack_adds_to_the_environment_and_a_cut_off_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str]) -> str:
        ran.append(command)
        return str(tmp_path) if "purelib" in command[-1] else "3.12"

    monkeypatch.setattr(unpack_pack, "_run", run)
    (tmp_path / "wheelhouse").mkdir()
    (tmp_path / "wheelhouse" / "pip-1-py3-none-any.whl").touch()
    (tmp_path / ".venv").mkdir()
    for name in (MARK, "half"):
        (tmp_path / ".venv" / name).touch()
    unpack_pack.make_environment("python3", tmp_path, "a")
    assert tree_of(tmp_path / ".venv").keys() == {MARK, "complete-a"}
    (tmp_path / ".venv" / "mine").touch()
    unpack_pack.make_environment("python3", tmp_path, "b")
    assert tree_of(tmp_path / ".venv").keys() == {MARK, "complete-a", "complete-b", "mine"}
    assert sum("venv" in command for command in ran) == 1


class Told(Engine):
    """An engine that says this of itself."""

    def __init__(self, **info: object) -> None:
        """Keep it."""
        super().__init__("/s")
        self.info = info

    def ask(self, *_: Any, **__: Any) -> Any:
        return self.info


CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]
BY_ID = {"id": IMAGE.id, "manifest": f"sha256:{'b' * 64}", "versions": ["1"], "names": []}
BY_MANIFEST = {**BY_ID, "manifest": IMAGE.id}


def test_an_image_store_that_gives_other_ids_is_refused_before_loading() -> None:
    old, new = Told(DriverStatus=[["Backing Filesystem", "extfs"]]), Told(DriverStatus=CONTAINERD)
    check_store(old, [BY_ID])
    check_store(new, [BY_MANIFEST])
    check_store(new, [])
    with pytest.raises(Refused, match="containerd-snapshotter"):
        check_store(new, [BY_ID])
    with pytest.raises(Refused, match="pack by an engine without"):
        check_store(old, [BY_MANIFEST])


def test_images_and_wheels_of_another_platform_are_refused(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = {"platform": "linux/amd64"}
    check_platform(Told(OSType="linux", Architecture="x86_64"), manifest)
    check_platform(Told(OSType="linux", Architecture="amd64"), manifest)
    with pytest.raises(Refused, match="runs linux/arm64"):
        check_platform(Told(OSType="linux", Architecture="aarch64"), manifest)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}"]) == ExitCode.USAGE
    assert "this Python is of linux/arm64" in capsys.readouterr().err
    assert engine.loaded == []


def test_an_old_or_another_c_library_is_known() -> None:
    assert [is_new_enough(f"glibc {each}") for each in ("2.27", "2.28", "2.36", "3.0")] == [
        False,
        *[True] * 3,
    ]
    assert not any(map(is_new_enough, ("", "musl 1.2", "glibc x")))


def test_an_image_that_is_here_by_its_manifest_is_not_loaded(tmp_path: Path, engine: StandIn) -> None:
    other = f"sha256:{'b' * 64}"
    write_pack(tmp_path / "q", images=(replace(IMAGE, manifest=other, names=("host:5000/a/b",)),))
    engine.held[other] = other
    assert unpack(tmp_path / "q") == 0
    assert engine.loaded == []
    assert engine.held["host:5000/a/b:latest"] == other


def test_without_rights_on_the_socket_the_rest_is_unpacked(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert unpack(pack) == 0
    assert "no rights on" in (told := capsys.readouterr().out)
    assert "usermod -aG docker" in told
    assert (pack.parent / "into" / "matrix.yaml").is_file()
    assert engine.asked == []


def test_the_next_command_can_be_typed(tmp_path: Path) -> None:
    line = next_command(tmp_path / "a b", Path(".venv/bin/python"), ["10.7.0"])
    assert shlex.split(line)[:3] == ["cd", str(tmp_path / "a b"), "&&"]


def test_names_that_no_pack_has() -> None:
    assert wrong_names(["a/b", "a/c", "b"]) == []
    for bad in ("a\\b", "a: b", "\udcff", "../a", "/a", "a//b", "a\n"):
        assert len(wrong_names(["x", bad])) == 1, bad
    assert "file and a folder" in wrong_names(["A/b/c", "a"])[0]


def test_the_script_imports_what_is_built_in_before_it_looks_elsewhere() -> None:
    nodes = ast.parse(script_text()).body
    first = next(n for n, node in enumerate(nodes) if isinstance(node, ast.Assign))
    names = {a.name for node in nodes[:first] if isinstance(node, ast.Import) for a in node.names}
    assert names == {"posix", "sys"}
    assert names <= {*sys.builtin_module_names}
    assert not any(isinstance(node, ast.ImportFrom) for node in nodes[:first])
