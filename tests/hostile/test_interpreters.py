"""Attacks on the host's disk where no container has a file system of its own: the host ends them."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
from builders import make_case, make_cell, make_repro
from playing import make_a_plan, make_run
from prepare.test_cases import loaded

from tests.border.leaving import in_time, nest, reason, shown
from trtmatrix.common.border import remove_tree
from trtmatrix.launchers.child_containers import ChildLauncher
from trtmatrix.launchers.container import SCRATCH, Limits
from trtmatrix.launchers.launcher import Overfull, Ready, disk_bytes
from trtmatrix.launchers.wheels import InterpreterLauncher
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.plan import Engine, Launch
from trtprobe.plans import ALL as ALL_PLANS

REPRO = f"""
import ctypes, os, signal, time
from pathlib import Path


def run(params, files, trt):
    job = Path(files.model).parents[2] / "jobs"
    work = next(job.glob("*/work"))
    if params["does"] == "stops":
        os.kill(os.getppid(), signal.SIGSTOP)
        file = os.open(str(work / "allocated"), os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(file, 0, {ALL_PLANS + (1 << 25)})
        time.sleep(60)
    if params["does"] == "hides":  # allocated, and no file is longer for that: FALLOC_FL_KEEP_SIZE
        file = os.open(str(work / "allocated"), os.O_RDWR | os.O_CREAT)
        assert ctypes.CDLL(None).fallocate64(file, 1, ctypes.c_int64(0), ctypes.c_int64({ALL_PLANS + (1 << 25)})) == 0
        time.sleep(60)
    return {{"y": files.inputs["x"] + (params["does"] == "wrong")}}
"""  # noqa: E501
DONE = ("right", "stops", "wrong", "hides", "last")
SECONDS = 12


class Here(InterpreterLauncher):
    """Takes this very interpreter instead of making an environment of the version's wheels."""

    def make_ready(self, launch: Launch) -> Ready:
        return Ready(launch=launch, digests={"image": "i", "runtime": "wheels"}, handle=sys.executable)


def test_a_cell_that_fills_the_disk_is_ended_by_the_host(tmp_path: Path) -> None:
    cases = [
        make_case(does, params={"does": does}, limits={"max_abs": 0.0}, seconds=SECONDS) for does in DONE
    ]
    repro = make_repro(*cases)
    cells = [make_cell(repro, case, f"onnxruntime-{onnxruntime.__version__}") for case in cases]
    source = replace(loaded(), repro=repro)
    (tmp_path / "repros").mkdir()
    (tmp_path / "repros" / source.file.name).write_text(REPRO)
    launcher = Here(tmp_path, tmp_path / "repros", lambda _: None)
    state = make_run(tmp_path, launcher, [source], confirm=False, output_bytes=1 << 20)
    with in_time(60):
        execute_plan(make_a_plan(cells), frozenset(), state)
    ended = ("NO VERDICT", "crashed")
    assert shown(tmp_path, cells) == {
        "right": ("PASS", ""), "stops": ended, "wrong": ("FAIL", ""), "hides": ended, "last": ("PASS", ""),
    }  # fmt: skip
    for case in ("stops", "hides"):
        assert "it may hold 1,074,790,400" in reason(tmp_path, case)
    assert not list((tmp_path / "jobs").iterdir())


def test_bytes_are_those_on_disk_and_none_is_hidden_too_deep(tmp_path: Path) -> None:
    """A hole takes none, what lies beyond a file's end does, and a link is not followed."""
    (tmp_path / "work").mkdir()
    assert disk_bytes(tmp_path / "work", 1 << 30) == 0
    with (tmp_path / "big").open("wb") as file:
        file.write(bytes(1 << 22))
    (tmp_path / "work" / "link").symlink_to(tmp_path)
    with (tmp_path / "work" / "hole").open("wb") as file:
        file.truncate(1 << 40)
    assert disk_bytes(tmp_path / "work", 1 << 30) < 1 << 20
    (tmp_path / "work" / "in").mkdir()
    (tmp_path / "big").rename(tmp_path / "work" / "in" / "big")
    assert disk_bytes(tmp_path / "work", 1 << 30) >= 1 << 22
    assert disk_bytes(tmp_path / "work" / "gone", 1 << 30) == 0
    nest(tmp_path, 3000)
    assert disk_bytes(tmp_path, 1 << 30) == (1 << 30) + 1
    remove_tree(tmp_path)  # pytest's own way of removing cannot


def test_the_scratch_of_a_child_s_container_is_watched_too(tmp_path: Path) -> None:
    """A stand-in for Apptainer, which runs nothing inside: its command allocates in the scratch folder."""

    class Runtime:
        name = "a stand-in"

        def command(self, _image: str, _gpu: object, mounts: Sequence[str], *_: object) -> list[str]:
            inside = {mount.split(":")[1]: mount.split(":")[0] for mount in mounts}
            return ["sh", "-c", f"fallocate -l 32M {inside[SCRATCH]}/x && sleep 50"]

        def environment(self, _: object) -> dict[str, str]:
            return dict(os.environ)

    for part in ("repros", "job/job", "job/work"):
        (tmp_path / part).mkdir(parents=True)
    launch = make_a_plan([make_cell()]).launches[0]
    launcher = ChildLauncher(
        runtime=Runtime(), engine=Engine(available=True), cache=tmp_path, repros=tmp_path / "repros",  # type: ignore[arg-type]
        limits=Limits(scratch=1 << 20), note=lambda _: None,
    )  # fmt: skip
    ready = Ready(launch=launch, digests={}, handle=("image.sif", ()))
    with in_time(), pytest.raises(Overfull, match="it may hold 1,048,576"):
        launcher.run(ready, tmp_path / "job", lambda: None)
