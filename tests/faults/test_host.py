"""Trouble of this host ends a command with a clear line and code 3; a changed cache is not believed."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case
from merges import Place, make_place
from prepare.test_cases import loaded
from projects import ROOT

from tests.border.leaving import Left, in_time, reason, run_beside
from tests.faults.disturbing import flip
from trtmatrix.cli import commands, entry
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.launchers.containers import answer_of
from trtmatrix.prepare.cases import CaseCache, find_change
from trtmatrix.run.perform import check_paths


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    place = make_place(tmp_path / "place", capsys)
    place.measure("r1", 1e6)  # as expected, so that Python's own code for an error is another
    return place


def table(place: Place, shell: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run ``table`` as a shell would, with its streams as the line says; ``@`` stands for the command."""
    page = f"--output={place.folder}/page.html"  # that it is written is told among the errors
    words = " ".join(place.words(sys.executable, "-m", "trtmatrix", "table", "--full", "--offline", page))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        ["/bin/bash", "-c", shell.replace("@", words)], check=False, capture_output=True, env=environment,
        timeout=120, **more,
    )  # fmt: skip


CODE = "; echo ${PIPESTATUS[0]} >&2"
STREAMS = {
    "the reader of the output is gone": f"@ | true{CODE}",
    "the output is closed": "@ >&-; echo $? >&2",
    "the errors are closed": "@ 2>&- >/dev/null; echo $? >&2",
    "all three are closed": "(@ <&- >&- 2>&-); echo $? >&2",
    "the reader of the errors is gone": "{ { @ 2>&1 >/dev/null; echo $? >&3; } | true; } 3>&2",
}


@pytest.mark.parametrize("name", STREAMS)
def test_who_reads_changes_nothing(name: str, project: Place) -> None:
    said = table(project, STREAMS[name]).stderr
    assert said.splitlines()[-1] == b"0"
    assert b"Traceback" not in said


def test_a_full_disk_under_the_output_is_told_and_under_the_errors_trouble(project: Place) -> None:
    said = table(project, "@ >/dev/full; echo $? >&2").stderr
    assert said.splitlines()[-1] == b"3"
    assert b"cannot be written: No space left on device" in said
    assert b"Traceback" not in said
    assert table(project, "@ 2>/dev/full >/dev/null; echo $? >&2").stderr.splitlines()[-1] == b"3"


def test_an_output_of_ascii_alone_has_a_mark_for_each_sign_that_it_lacks(project: Place) -> None:
    plain, ascii_ = (
        table(project, f"PYTHONIOENCODING={name} @ 2>/dev/null").stdout for name in ("utf-8", "ascii")
    )
    assert ascii_ == plain.decode().encode("ascii", "replace")


PLACES = "name another folder by --results or --cache"
TROUBLES: dict[str, tuple[BaseException, str]] = {
    "full disk": (OSError(errno.ENOSPC, "No space left on device", "/cache/x"), "free 5 GB there"),
    "half an array": (OSError("3612672 requested and 191456 written"), "free 5 GB there"),
    "quota": (OSError(errno.EDQUOT, "Disk quota exceeded", "/cache/x"), "quota"),
    "rights": (PermissionError(errno.EACCES, "Permission denied", "/cache/x"), PLACES),
    "read-only": (OSError(errno.EROFS, "Read-only file system", "/cache/x"), PLACES),
    "disk": (OSError(errno.EIO, "Input/output error", "/cache/x"), "--traceback"),
    "memory": (MemoryError(), "memory is full"),
    "gone": (FileNotFoundError(errno.ENOENT, "No such file", "/cache/x"), "--traceback"),
    "a pipe of ours": (BrokenPipeError(errno.EPIPE, "Broken pipe"), "--traceback"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_of_the_host_is_named(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error, words = TROUBLES[name]

    def raising(_: object) -> ExitCode:
        raise error

    monkeypatch.setattr(commands, "table_command", raising)
    assert entry.run(["table"]) is ExitCode.MACHINERY
    said = capsys.readouterr().err
    assert words in said
    assert "trouble of this host" in said
    assert "Traceback" not in said
    assert "mistake in trtmatrix" not in said


def test_the_shell_s_umask_keeps_nobody_out_of_what_is_made(project: Place) -> None:
    shutil.rmtree(project.cache, ignore_errors=True)
    assert table(project, "umask 777; @ >/dev/null; echo $? >&2").stderr.splitlines()[-1] == b"0"
    assert (project.folder / "page.html").stat().st_mode & 0o600 == 0o600


def test_a_path_that_containers_cannot_have_is_refused(tmp_path: Path) -> None:
    here = Project(
        matrix=tmp_path / "matrix.yaml", repros=tmp_path, results=tmp_path / "results", cache=tmp_path
    )
    check_paths(here)
    with pytest.raises(UsageError, match="--cache DIR"):
        check_paths(replace(here, cache=tmp_path / "with:colon"))


def test_a_hung_engine_is_not_waited_for_for_ever() -> None:
    never = threading.Event()
    with in_time(), pytest.raises(MachineryError, match="has not answered"):
        answer_of(never.wait, lambda: None, seconds=0.1)
    never.set()


STRANGER = 12345  # a user whom no rights are given that their files' modes do not; root is denied nothing


def test_removing_needs_no_rights_that_were_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("left/in/deeper").mkdir(parents=True)
    Path("left/in/deeper/file").touch()
    for path in (Path(), *sorted(Path("left").rglob("*"), reverse=True), Path("left")):
        os.chown(path, STRANGER, -1)
        if path != Path():
            path.chmod(0)
    try:
        os.seteuid(STRANGER)
        remove_tree(Path("left"))
    finally:
        os.seteuid(0)
    assert not Path("left").exists()


@pytest.mark.parametrize("same_run", [True, False])
def test_a_file_that_cases_share_is_mended_for_all(same_run: bool, tmp_path: Path) -> None:
    """Both cases link one blob, whose digest the run that wrote it knows: neither is believed."""
    cache, source = CaseCache(tmp_path), loaded()
    cases = [make_case(name, params={"n": n}) for n, name in enumerate("ab")]
    first, second = (cache.prepare(source, case) for case in cases)
    assert (first / "reference/y.npy").samefile(second / "reference/y.npy")
    flip(first / "reference/y.npy")
    assert find_change(second) == "reference/y.npy differs"
    cache = cache if same_run else CaseCache(tmp_path)
    assert [find_change(cache.prepare(source, case)) for case in cases] == ["", ""]


def test_a_damaged_file_of_no_case_is_not_linked(tmp_path: Path) -> None:
    cache, source, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(source, case)
    right = np.load(folder / "reference/y.npy")
    flip(folder / "reference/y.npy")
    shutil.rmtree(folder)
    again = CaseCache(tmp_path).prepare(source, case)
    np.testing.assert_array_equal(np.load(again / "reference/y.npy"), right)


@pytest.mark.parametrize("ended", ["build failed", "probe failed"])
def test_on_a_full_disk_no_build_fails(ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe is played: a real one ends so only where the disk is filled at one moment of a build."""

    def attack(left: Left) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        left.record.update(ended=ended, detail="raised OSError: [Errno 28] No space left on device")
        left.keep()

    seen = run_beside(tmp_path, attack)
    assert seen["attacked"] == ("NO VERDICT", "launcher failed")
    assert "bytes left" in reason(tmp_path)
