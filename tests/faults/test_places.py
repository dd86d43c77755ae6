"""Outputs, a cache or results that cannot be written: what is said, the exit code, nothing left behind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from projects import ROOT

TRTMATRIX = f"{sys.executable} -m trtmatrix"
RUN = f"{TRTMATRIX} run --trt onnxruntime --repro cumsum-axes"


def shell(script: str, folder: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, "/bin/sh", "-c", f"export F={folder} TRTMATRIX_CACHE={folder}/cache; {script}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def on_a_disk(options: str, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line where ``$F/disk`` is a disk of its own, mounted with these options."""
    (folder / "disk").mkdir()
    mount = f"mount -t tmpfs -o {options} tmpfs {folder}/disk"
    done = shell(f"{mount} || exit 99; {script}", folder, "unshare", "--mount")
    assert done.returncode != 99, f"no disk can be mounted here: {done.stderr}"
    return done


FULL = "size=64k"
FILLED = "head -c 60000 /dev/zero >$F/disk/f; head -c 9999 /dev/zero >>$F/disk/f 2>/dev/null; "


@pytest.mark.parametrize(("option", "folder"), [("--results", "disk/r"), ("--cache", "disk/c")])
def test_a_full_disk_is_named_with_what_is_missing(option: str, folder: str, tmp_path: Path) -> None:
    usual = "--results $F/results" if option == "--cache" else ""
    done = on_a_disk(FULL, f"{FILLED}{RUN} {usual} {option} $F/{folder}", tmp_path)
    assert done.returncode == 3, done.stderr
    assert "the disk is full: " in done.stderr
    assert re.search(rf"\n  free 5 GB there, or name another folder by .*{option}\b", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_page_that_has_no_room_is_not_left_empty_and_one_that_was_there_stays_whole(tmp_path: Path) -> None:
    report = f"{TRTMATRIX} report -o $F/disk"
    script = f"echo old >$F/disk/old.md; {FILLED}{report}/old.md; cat $F/disk/old.md; "
    done = on_a_disk(FULL, f"{script}{report}/x.html; echo $? >&2; ls -A $F/disk >&2", tmp_path)
    assert done.stdout.endswith("old\n")
    told = "x.html: cannot be written: No space left on device; name another file\n2\nf\nold.md\n"
    assert done.stderr.endswith(told)


def test_a_checkout_that_is_read_only_says_which_options_name_other_folders(tmp_path: Path) -> None:
    ready = "mount -o remount,ro $F/disk; cd $F/disk; export TRTMATRIX_CACHE=$F/disk/cache; "
    place = f"--matrix {ROOT}/matrix.yaml --repros {ROOT}/repros"
    done = on_a_disk("size=1m", f"{ready}PYTHONPATH={ROOT}/src {RUN} {place}", tmp_path)
    assert done.returncode == 2, done.stderr
    told = "nothing can be written there: Read-only file system; name another folder by"
    assert f"results/local: {told} --results\n" in done.stderr
    assert f"cache: {told} --cache\n" in done.stderr


def test_a_case_that_has_no_room_leaves_no_folder(tmp_path: Path) -> None:
    script = f"{FILLED}{TRTMATRIX} prepare cumsum-axes/two-axes-48 --to $F/disk/p; ls $F/disk"
    done = on_a_disk(FULL, script, tmp_path)
    assert "the disk is full: " in done.stderr
    assert "\n  free 5 GB there, or name another folder by --to" in done.stderr
    assert done.stdout == "f\n"
