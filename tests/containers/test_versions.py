"""Images that are there, not there, and not what they are pinned for; and the plan, typed by hand."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.containers.conftest import GOOD, Done, Project
from tests.containers.engines import COMMAND

PASSES = ("--repro", "endings", "--case", "passes")
MISSING, MISPINNED, RTX = "onnxruntime-1.29.0", "onnxruntime-1.30.0", "tensorrt-rtx-1.7"


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Run one case on each version, none of them named."""
    return Project(tmp_path_factory.mktemp("versions")).run(*PASSES)


def test_tensorrt_rtx_parses_and_builds_without_a_gpu(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", RTX)
    assert cell["verdict"] == "BUILT", cell["reason"]
    assert "parsed and built" in cell["reason"]


def test_another_library_than_pinned_is_no_verdict(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", MISPINNED)
    assert (cell["verdict"], cell["cause"]) == ("NO VERDICT", "version mismatch")
    assert cell["reason"] == "pinned for 1.30.0, the image or wheel ships 1.31.1"
    assert f"{MISPINNED}: {cell['reason']}" in all_of_them.told, "before any cell of it was started"
    assert all_of_them.code == 3


def test_the_same_image_rightly_pinned_passes(all_of_them: Done) -> None:
    assert all_of_them.cell("passes")["verdict"] == "PASS"


def test_an_image_that_nobody_named_is_not_pulled(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", MISSING)
    assert cell["verdict"] is None
    assert cell["excluded"]["why"] == "image not pulled"
    assert "cannot be had" not in all_of_them.told


def test_an_image_that_is_named_and_cannot_be_pulled_is_trouble(project: Project) -> None:
    done = project.run("--trt", f"{MISSING},{GOOD}", *PASSES)
    assert done.code == 3
    assert "127.0.0.1:1 cannot be reached for 127.0.0.1:1/trtmatrix/nowhere:1.29.0" in done.told
    assert "-> check the network and the proxy" in done.told
    assert "Traceback" not in done.told
    assert done.cell("passes", MISSING)["excluded"]["why"] == "the registry does not give the image"
    assert done.cell("passes")["verdict"] == "PASS"


def test_the_plan_starts_nothing_and_writes_nothing(project: Project) -> None:
    words = project.command("--trt", GOOD, *PASSES, "--plan")
    planned = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert planned.splitlines()[0].startswith(f"{GOOD} on CPU: run 1 cells in ")
    assert not project.results.exists()
    assert not project.cache.exists()


def test_the_printed_command_does_what_the_run_does(project: Project) -> None:
    done = project.run("--trt", GOOD, *PASSES)
    words = project.command("--trt", GOOD, *PASSES, "--plan", "--rerun")
    planned = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    line = next(line for line in planned.splitlines() if f"{COMMAND} run" in line)
    job = write_job(project, done)
    command = shlex.split(line.strip().replace("JOB/", f"{job}/"))
    subprocess.run([*command[:2], "--rm", *command[2:]], check=True, timeout=60, capture_output=True)
    record = json.loads((job / "out" / "0.record.json").read_text())
    assert record["ended"] == "ran"
    assert record["measurements"] == project.record(done.cell("passes"))["measurements"]


def write_job(project: Project, done: Done) -> Path:
    """Write what a run writes into a job's folder, for the one case that is prepared."""
    job = project.folder / "by-hand"
    for part in ("job", "out"):
        (job / part).mkdir(parents=True)
    prepared = next(path for path in (project.cache / "cases").iterdir() if not path.name.startswith("."))
    cell = {
        "cell": project.record(done.cell("passes"))["cell"], "run": "by-hand", "repro_file": "endings.py",
        "params": json.loads((prepared / "case.json").read_text())["params"], "seconds": 60,
        "files": prepared.name, "keep_outputs": False, "alone": False,
    }  # fmt: skip
    whole = {"product": "onnxruntime", "output_bytes": 1 << 20, "isolation": "worker"}
    (job / "job" / "job.json").write_text(json.dumps(whole))
    (job / "job" / "0.cell.json").write_text(json.dumps(cell))
    (job / "job" / "end").touch()
    (job / "job" / "heartbeat").touch()
    return job
