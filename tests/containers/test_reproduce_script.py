"""An archive's ``reproduce.sh``, run as its reader would: odd folders, changed files, signals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.containers.conftest import IMAGE, end
from tests.containers.engines import ADDRESS, COMMAND, ID_FROM, client
from trtmatrix.core.bundle.facts import RUN, SCRIPT, SUMS, Environment, Failure, Image
from trtmatrix.core.bundle.run_script import render_reproduce
from trtmatrix.core.container import SCRATCH
from trtmatrix.core.model import CellId, Product, Verdict

TAG, MADE = "trtmatrix/test-reproduced:latest", "reproduce:000000000000"
SOURCE = """\
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
for name in ("files", "out"):
    parser.add_argument("--" + name)
parser.add_argument("--code", type=int, default=1)
parser.add_argument("--sleep", type=float, default=0)
parser.add_argument("--silent", action="store_true")
args = parser.parse_args()
def writable(folder):
    try:
        open(os.path.join(folder, "try"), "w").close()
    except OSError:
        return False
    return True
print("started", flush=True)
time.sleep(args.sleep)
if args.silent:
    sys.exit(args.code)
seen = {"files": sorted(os.listdir(args.files)), "uid": os.getuid(),
        "interfaces": os.listdir("/sys/class/net"),
        "writable": [f for f in (args.files, args.out, "/", os.environ.get("TMPDIR", "/no")) if writable(f)],
        "gpu": os.environ.get("NVIDIA_VISIBLE_DEVICES"), "cwd": os.getcwd()}
json.dump(seen, open(os.path.join(args.out, "result.json"), "w"))
sys.exit(args.code)
"""


def render(image: Image | None) -> str:
    """Return the script of a failure on the CPU of which nothing else is told."""
    names = ("title", "upstream", "url", "summary", "kind", "reason", "figure", "figure_label", "manner")
    texts: dict[str, Any] = dict.fromkeys(names, "")
    return render_reproduce(
        Failure(
            cell=CellId.parse("r/c@onnxruntime-1.31.1#cpu"), version="onnxruntime-1.31.1", params={},
            product=Product.ONNXRUNTIME, product_name="ONNX Runtime", verdict=Verdict.FAIL, builds=1,
            failed=1, precision="", environment=Environment(library="1.31.1"), image=image,
            **texts,
        )
    )  # fmt: skip


def image_id(name: str = IMAGE) -> str:
    return str(client().images.get(name).id)


def write_archive(folder: Path, image: Image | None) -> Path:
    folder.mkdir(parents=True)
    (folder / SCRIPT).write_text(SOURCE)
    (folder / RUN).write_text(render(image))
    write_sums(folder)
    return folder


def write_sums(folder: Path) -> None:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SUMS]
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(folder)}\n" for f in files]
    (folder / SUMS).write_text("".join(lines))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "archive", Image(name=IMAGE, id=image_id()))


def reproduce(
    folder: Path, *words: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["/bin/sh", str(folder / RUN), *words], cwd=cwd or folder.parent, env={**os.environ, **variables},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    return done


def read_result(out: Path) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads((out / "result.json").read_text())
    return found


def test_what_the_container_sees(archive: Path) -> None:
    assert reproduce(archive).returncode == 1
    seen = read_result(archive.parent / "out")
    assert seen["files"] == sorted([SCRIPT, RUN, SUMS])
    assert seen["writable"] == ["/out", SCRATCH]
    assert seen["interfaces"] == ["lo"]
    assert (seen["uid"], seen["gpu"], seen["cwd"]) == (os.getuid(), "void", SCRATCH)


@pytest.mark.parametrize(("code", "wanted"), [(0, 0), (1, 1), (125, 125), (2, 125), (3, 125), (137, 125)])
def test_exit_codes(archive: Path, code: int, wanted: int) -> None:
    done = reproduce(archive, "--code", str(code))
    assert done.returncode == wanted
    assert ("says nothing of the failure" in done.stderr) is (code not in {0, 1, 125})


@pytest.mark.parametrize("code", [0, 1])
def test_without_a_result_nothing_is_said(archive: Path, code: int) -> None:
    done = reproduce(archive, "--code", str(code), "--silent")
    assert done.returncode == 125
    assert "left no result" in done.stderr


def test_a_folder_of_the_callers_own_shell_is_left_alone(archive: Path, tmp_path: Path) -> None:
    assert reproduce(archive, OUT=str(tmp_path / "theirs")).returncode == 1
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("name", ["with blanks", "a,b", "a:b", 'a"b', "ä'b", "-a"])
def test_any_folder_will_do(tmp_path: Path, name: str) -> None:
    folder = write_archive(tmp_path / name / "archive", Image(name=IMAGE, id=image_id()))
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    assert reproduce(folder, cwd=elsewhere, REPRODUCE_OUT=f"o {name}").returncode == 1
    assert read_result(elsewhere / f"o {name}")["uid"] == os.getuid()
    assert sorted(path.name for path in folder.iterdir()) == sorted([SCRIPT, RUN, SUMS])


def test_it_runs_inside_its_own_folder_and_twice(archive: Path) -> None:
    for _ in range(2):
        done = subprocess.run(["/bin/sh", RUN], cwd=archive, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
    assert read_result(archive / "out")


def test_a_changed_file_is_named_and_nothing_is_run(archive: Path) -> None:
    (archive / "out of date").write_text("x")
    write_sums(archive)
    (archive / "out of date").write_text("y")
    done = reproduce(archive)
    assert done.returncode == 125
    assert "out of date: FAILED" in done.stderr
    assert SCRIPT not in done.stderr.split("reproduce.sh: ")[0]
    assert not (archive.parent / "out" / "result.json").exists()
    assert reproduce(archive, UNCHECKED="1").returncode == 1
    (archive / "out of date").unlink()
    assert "No such file" in reproduce(archive).stderr


def test_an_old_result_is_not_left(archive: Path) -> None:
    assert reproduce(archive).returncode == 1
    assert reproduce(archive, IMAGE="127.0.0.1:1/nowhere:1").returncode == 125
    assert not (archive.parent / "out" / "result.json").exists()


def test_another_image_can_be_asked_for(archive: Path) -> None:
    (archive / RUN).write_text(render(Image(name="x", id="sha256:" + "0" * 64)))
    write_sums(archive)
    done = reproduce(archive)
    assert done.returncode == 125
    assert "does not say how it was built" in done.stderr
    assert "IMAGE to one with onnxruntime 1.31.1" in done.stderr
    done = reproduce(archive, IMAGE=IMAGE)
    assert done.returncode == 1
    assert f"in {IMAGE}, as IMAGE asks" in done.stderr


def test_an_image_of_a_registry_that_does_not_answer_is_looked_for_by_its_id(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1/nowhere@sha256:" + "1" * 64
    here = write_archive(tmp_path / "a", Image(name="x", id=image_id(), reference=nowhere))
    assert reproduce(here).returncode == 1
    gone = write_archive(tmp_path / "b", Image(name="x", id="sha256:" + "0" * 64, reference=nowhere))
    done = reproduce(gone)
    assert done.returncode == 125
    assert f"pulling {nowhere}" in done.stderr
    assert f"{COMMAND} login nvcr.io" in done.stderr


def test_an_image_in_no_registry_is_built_from_the_archive(tmp_path: Path) -> None:
    build = f"docker build --quiet --network none --tag {TAG} image"
    image = Image(name="mine", id="sha256:" + "0" * 64, tag=TAG, build=build)
    archive = write_archive(tmp_path / "archive", image)
    (archive / "image").mkdir()
    (archive / "image" / "Dockerfile").write_text(f"FROM {IMAGE}\nLABEL a=b\n")
    write_sums(archive)
    try:
        done = reproduce(archive)
        assert done.returncode == 1
        told = f"its id is {image_id(TAG)[ID_FROM:]}, not sha256:000"
        assert told in done.stderr
        again = reproduce(archive)
        assert again.returncode == 1
        assert "building" not in again.stderr
        assert told in again.stderr
    finally:
        for name in (TAG, MADE):
            client().images.remove(name, force=True)
    (archive / "image" / "Dockerfile").write_text("FROM nothing-of-the-kind:0\n")
    done = reproduce(archive, UNCHECKED="1")
    assert done.returncode == 125
    assert "cannot be built" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("whole_group", [True, False])
def test_a_signal_leaves_no_container(
    archive: Path, number: signal.Signals, code: int, whole_group: bool
) -> None:
    process = subprocess.Popen(
        ["/bin/sh", str(archive / RUN), "--sleep", "60"], cwd=archive.parent, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert names_of(process.pid) != []
        (os.killpg if whole_group else os.kill)(process.pid, number)
        assert process.wait(timeout=30) == code
    finally:
        end(process)
    assert names_of(process.pid) == []


def names_of(pid: int) -> list[str]:
    """Return the containers that the script of a process has started."""
    found = client().api.containers(all=True, filters={"name": f"^/?reproduce-{pid}-"})
    return [name for container in found for name in container["Names"]]


@pytest.mark.parametrize("whole_group", [True, False])
def test_a_signal_while_the_container_is_made_leaves_none(archive: Path, whole_group: bool) -> None:
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4):
        process = subprocess.Popen(
            ["/bin/sh", str(archive / RUN), "--sleep", "60"], cwd=archive.parent, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            time.sleep(0.15 + delay)
            (os.killpg if whole_group else os.kill)(process.pid, signal.SIGTERM)
            process.wait(timeout=30)
        finally:
            end(process)
        assert names_of(process.pid) == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"DOCKER": "no-such-docker"}, "there is no no-such-docker here"),
        ({ADDRESS: "unix:///nowhere"}, f"{COMMAND} does not answer"),
        ({"REPRODUCE_OUT": "/proc/nothing"}, "cannot write to /proc/nothing: set REPRODUCE_OUT"),
        ({"GPU_OPTIONS": "--no-such-option"}, "the container cannot be made: see above"),
    ],
)
def test_what_cannot_work_says_why(archive: Path, variables: dict[str, Any], words: str) -> None:
    done = reproduce(archive, **variables)
    assert done.returncode == 125
    assert words in done.stderr


def test_without_a_container_it_runs_where_the_failure_was_seen(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", None)
    assert reproduce(archive, PYTHON=sys.executable, HOME=str(tmp_path)).returncode == 1
    assert re.search("no python-of-mine", reproduce(archive, PYTHON="python-of-mine").stderr)
