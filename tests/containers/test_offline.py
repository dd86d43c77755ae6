"""``--offline``, watched by strace: whatever is asked for, no socket but those of this host is opened.

A process of ours, of pip's or of uv's that opened another would be seen, whatever it is written in.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from projects import command, write_wheel

from tests.containers.conftest import GOOD, HERE, LIMITS, Project
from trtmatrix.launchers.docker_engine import find_address

NOWHERE = "onnxruntime-1.29.0"
CALLS = "trace=socket,connect,sendto,sendmsg,bind"
LEADS_OUT = re.compile(r"AF_INET|PF_INET|AF_PACKET|AF_VSOCK")


def watched(log: Path) -> list[str]:
    return ["strace", "-f", "-qq", "-e", CALLS, "-e", "signal=none", "-o", str(log)]


def calls_out(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if LEADS_OUT.search(line)]


def run(log: Path, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*watched(log), *command], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


def ours(project: Project, *words: str) -> list[str]:
    return [*command(words[0], project.folder, HERE / "repros", *words[1:]), "--offline"]


def test_what_is_watched_is_seen(tmp_path: Path) -> None:
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    assert not run(tmp_path / "log", [sys.executable, "-c", code]).returncode
    assert len(calls_out(tmp_path / "log")) == 2


@pytest.mark.engines
def test_an_image_that_is_here_runs_and_what_is_not_is_left_out(project: Project, tmp_path: Path) -> None:
    wanted = ("--trt", f"{GOOD},{NOWHERE},onnxruntime-1.32.0", "--pull", "all")
    done = project.run(
        *wanted, "--repro", "endings", "--case", "passes", "--offline", prefix=watched(tmp_path / "log")
    )
    assert done.cell("passes")["verdict"] == "PASS"
    assert done.code == 3, "what was asked for by name and cannot run is trouble"
    reasons = {name: done.cell("passes", name)["excluded"] for name in (NOWHERE, "onnxruntime-1.32.0")}
    assert all("not here, and --offline opens no connection" in str(why) for why in reasons.values())
    assert Path(find_address()).name in (tmp_path / "log").read_text()
    assert calls_out(tmp_path / "log") == []


def test_no_command_opens_a_connection(project: Project, tmp_path: Path) -> None:
    commands = [
        ["doctor"], ["run", "--plan", "--trt", NOWHERE],
        ["upgrade", "--from", "onnxruntime-1.30.0", "--to", GOOD, "--no-run"], ["merge", str(tmp_path)],
        ["bundle", "make", f"endings/passes@{GOOD}#cpu", "--yes"],
    ]  # fmt: skip
    log = tmp_path / "log"
    for words in commands:
        done = run(log, ours(project, *words))
        assert calls_out(log) == [], words
        assert "Traceback" not in done.stderr, done.stderr
    done = run(log, ours(project, "run", "--trt", GOOD, *LIMITS), DOCKER_HOST="tcp://127.0.0.1:1")
    assert calls_out(log) == []
    assert done.returncode == 3
    done = run(log, ours(project, "doctor", "--json"), DOCKER_HOST="tcp://127.0.0.1:1")
    assert "--offline: DOCKER_HOST is tcp://127.0.0.1:1, which is reached over the network" in done.stdout
    assert json.loads(done.stdout)
    assert calls_out(log) == []


def test_a_run_installs_wheels_from_the_project_s_wheelhouse_alone(project: Project, tmp_path: Path) -> None:
    wheelhouse, version = project.folder / "wheelhouse", "onnxruntime-1.32.0"
    write_wheel(wheelhouse, "onnxruntime", "1.32.0", {"onnxruntime.py": ""}, "trtmatrix-made-up")
    write_wheel(wheelhouse, "trtmatrix_made_up", "2.0", {"trtmatrix_made_up.py": ""})
    done = run(tmp_path / "log", ours(project, "run", "--trt", version, "--case", "endings/passes"))
    assert done.returncode == 3, "what was installed is no ONNX Runtime"
    assert calls_out(tmp_path / "log") == []
    assert len(list(project.cache.glob(f"envs/{version}*/**/trtmatrix_made_up.py"))) == 1, done.stderr
