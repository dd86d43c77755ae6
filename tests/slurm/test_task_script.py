"""The script of a task, run by hand with the variables of Slurm, over the real engine and the real probe."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.containers.engines import client
from tests.slurm.script_kit import CLUSTER, IMAGE, KEY, Node, a_node, containers, read_facts
from tests.slurm.waiting import wait_until
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm.words import CONTAINER_LABEL

EPILOG = Path(__file__).resolve().parents[2] / "docker" / "slurm" / "epilog"
GOOD = {"does": "passes"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with a_node(tmp_path) as node:
        node.note_image(str(client().images.get(IMAGE).id))
        yield node


def hangs(seconds: float = 60) -> dict[str, object]:
    return {"does": "hangs", "seconds": seconds}


def test_cells_run_to_their_end_whatever_one_of_them_does(node: Node) -> None:
    node.add_try(GOOD, {"does": "faults"}, hangs(2), GOOD)
    code, said = node.run(node.task())
    assert code == 0, said
    assert [node.record(n)["ended"] for n in range(4)] == ["ran", "crashed", "time-out", "ran"]
    assert (node.ended()["code"], node.ended()["trouble"], node.ended()["oom"]) == ("0", "", "")
    scalars = node.record(0)["measurements"]["scalars"]
    assert scalars["device"] == 1
    assert scalars["network"] == 1  # the loopback alone
    assert scalars["uid"] == os.getuid()
    assert (node.ran() / "0" / "y.npy").stat().st_size == 160
    started = read_facts(node.ran() / "started")
    assert (started["task"], started["node"], started["attempt"]) == ("0", "node1", "1")
    assert (node.ran() / "gpu.csv").read_text().startswith("NVIDIA L4, GPU-11111111-")
    assert [path.name for path in node.ran().iterdir() if path.name.startswith(".")] == []
    assert node.left() == []


def test_a_probe_that_dies_is_told_with_its_code_and_its_log(node: Node) -> None:
    node.add_try(GOOD, {"does": "ends-its-supervisor"}, GOOD)
    code, said = node.run(node.task())
    assert code == 0, said
    assert (node.ended()["code"], node.ended()["trouble"]) == ("137", "")
    assert (node.ran() / "1.started.json").exists()
    assert not (node.ran() / "1.record.json").exists()
    assert not (node.ran() / "2.started.json").exists()
    assert node.left() == []


def test_what_the_engine_says_of_memory_is_told(node: Node) -> None:
    node.add_try(GOOD)
    node.limits = type(node.limits)(memory=8 << 20)
    node.run(node.task())
    assert (node.ended()["oom"], node.ended()["code"]) == ("1", "137")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cancelled_job_leaves_its_records_and_nothing_on_the_node(node: Node, number: int) -> None:
    node.add_try(GOOD, hangs(), GOOD)
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "1.started.json").exists, 60, "the second cell has started")
    assert containers(job)
    began = time.monotonic()
    process.send_signal(number)  # to the shell alone, as --signal=B:TERM does
    assert process.wait(timeout=20) == 143
    assert time.monotonic() - began < 10
    assert node.ended()["trouble"] == "cancelled"
    assert node.record(0)["ended"] == "ran"
    assert not (node.ran() / "1.record.json").exists()
    assert node.left() == []


def test_the_end_of_its_time_is_told_from_a_cancellation(node: Node) -> None:
    node.add_try(hangs())
    process, job = node.start(node.task(), SLURM_JOB_END_TIME=str(int(time.time()) + 50))
    wait_until((node.ran(job=job) / "0.started.json").exists, 60, "the cell has started")
    process.terminate()
    assert process.wait(timeout=20) == 143
    assert node.ended()["trouble"] == "time"


def test_the_probe_is_told_all_along_that_the_script_lives(node: Node) -> None:
    node.add_try(hangs())
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "0.started.json").exists, 60, "the cell has started")
    (sign,) = node.local.glob("*/job/heartbeat")
    before = sign.stat().st_mtime_ns
    wait_until(lambda: sign.stat().st_mtime_ns > before, 5, "a further sign of life")
    assert (node.ran(job=job) / "alive").exists()  # for who waits elsewhere
    process.terminate()
    process.wait(timeout=20)


def test_after_a_kill_the_epilog_removes_the_container(node: Node) -> None:
    node.add_try(hangs())
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "0.started.json").exists, 60, "the cell has started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(containers(job)) == 1
    run_epilog(job, "another-cluster")
    run_epilog(f"{job}0")
    assert len(containers(job)) == 1
    run_epilog(job)
    assert containers(job) == []


def run_epilog(job: str, cluster: str = "") -> None:
    told = {"SLURM_JOB_ID": job, "SLURM_CLUSTER_NAME": cluster or CLUSTER, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([str(EPILOG)], env=told, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


SLOW_COPY = """\
#!/bin/bash
if [[ ${{!#}} == */.0 ]]; then
    touch {folder}/copying
    sleep 60
fi
exec /bin/cp "$@"
"""


def test_a_shared_folder_that_keeps_a_copy_waiting_does_not_end_the_probe(node: Node) -> None:
    node.command("cp", SLOW_COPY.format(folder=node.folder))
    node.add_try(GOOD, hangs())
    node.start(node.task())
    wait_until((node.folder / "copying").exists, 60, "the first record is copied")
    (sign,) = node.local.glob("*/job/heartbeat")
    for _ in range(2):  # the first may have been on its way
        before = sign.stat().st_mtime_ns
        wait_until(partial(is_newer, sign, before), 5, "a further sign of life")


def is_newer(file: Path, than: int) -> bool:
    return file.stat().st_mtime_ns > than


def test_a_script_that_is_killed_alone_gives_no_further_sign_of_life(node: Node) -> None:
    """Even where nobody has waited for it yet, and its number is still taken."""
    node.add_try(hangs())
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "0.started.json").exists, 60, "the cell has started")
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: not containers(job), 25, "the probe ended for want of a heartbeat")


@pytest.mark.parametrize("mark", ["stopping", "over", "tries/0.1/gone.json"])
def test_a_job_that_comes_too_late_runs_nothing(node: Node, mark: str) -> None:
    node.add_try(GOOD)
    (node.ran().parents[1] / mark).write_text("{}")
    code, said = node.run(node.task())
    assert code == 0
    assert "nothing to do" in said
    assert not node.ran().parent.exists()


def test_without_an_epilog_the_container_of_a_killed_script_ends_and_goes_by_itself(node: Node) -> None:
    node.add_try(hangs())
    process, job = node.start(node.task())
    wait_until((node.ran(job=job) / "0.started.json").exists, 60, "the cell has started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not containers(job), 25, "the probe ended for want of a heartbeat")


@pytest.mark.parametrize(
    ("name", "gpus", "words"),
    [
        ("NVIDIA A100", "", "gave 'NVIDIA A100', wanted was NVIDIA L4"),
        ("NVIDIA L4", "MIG-1234", "a part of a GPU"),
    ],
)
def test_another_gpu_than_was_asked_for_is_trouble_of_the_site(
    node: Node, name: str, gpus: str, words: str
) -> None:
    node.name = name
    node.prepare()
    node.add_try(GOOD)
    code, said = node.run(node.task(), CUDA_VISIBLE_DEVICES=gpus)
    assert code == 1
    assert node.ended()["trouble"] == "gpu"
    assert words in node.ended()["detail"]
    assert words in said
    assert node.left() == []


def test_a_driver_that_lacks_a_fact_tells_the_others(node: Node) -> None:
    node.lacking = ("compute_cap",)
    node.prepare()
    node.add_try(GOOD)
    code, said = node.run(node.task(driver_least="560.1"))
    assert code == 0, said
    facts = (node.ran() / "gpu.csv").read_text().split(", ")
    assert (facts[0], facts[2], facts[4]) == ("NVIDIA L4", "[N/A]", "550.54.15")
    assert node.record(0)["measurements"]["scalars"]["compat"] == 1  # 550 is older than 560


def test_an_image_that_is_nowhere_is_trouble_of_the_site(node: Node) -> None:
    node.note_image("sha256:" + "0" * 64)
    node.add_try(GOOD)
    code, _ = node.run(node.task())
    assert code == 1
    assert node.ended()["trouble"] == "image"
    assert "/nowhere/image.tar cannot be read" in node.ended()["detail"]
    assert node.left() == []


def test_an_engine_that_does_not_answer_is_trouble_of_the_site(node: Node) -> None:
    node.add_try(GOOD)
    node.run(node.task(), DOCKER_HOST="unix:///nowhere/docker.sock")
    assert node.ended()["trouble"] == "runtime"
    assert "Docker does not answer on node1" in node.ended()["detail"]


def test_a_container_that_cannot_be_started_is_trouble_of_the_site(node: Node) -> None:
    node.access = GpuAccess.TOOLKIT  # which is not installed where the GPU is fake
    node.add_try(GOOD)
    node.run(node.task())
    assert node.ended()["trouble"] == "runtime"
    assert "could not select device driver" in node.ended()["detail"]
    assert node.left() == []


def test_an_attempt_is_run_once_however_often_it_is_started(node: Node) -> None:
    node.add_try(GOOD, hangs(3))
    script = node.task()
    both = [node.start(script), node.start(script)]
    assert [process.wait(timeout=60) for process, _ in both] == [0, 0]
    said = [(node.folder / f"said.{job}").read_text() for _, job in both]
    assert sorted("nothing to do" in text for text in said) == [False, True]
    assert node.record(0)["ended"] == "ran"
    assert [path.name for path in node.ran().parent.iterdir()] == ["0.1"]
    assert node.left() == []


def test_a_shared_folder_that_cannot_be_written_to_runs_nothing(node: Node) -> None:
    node.add_try(GOOD)
    script = node.task()
    subprocess.run(["/bin/mount", "--bind", node.shared, node.shared], check=True)
    try:
        subprocess.run(["/bin/mount", "-o", "remount,ro,bind", node.shared], check=True)
        code, said = node.run(script)
    finally:
        subprocess.run(["/bin/umount", node.shared], check=True)
    assert code == 1
    assert "cannot be written to" in said
    assert node.left() == []


def test_a_record_never_comes_before_its_outputs(node: Node) -> None:
    """Each name is looked at as it appears: what is seen is whole."""
    reference = node.shared / "cases" / "big" / "reference"
    reference.mkdir(parents=True)
    np.save(reference / "y.npy", np.arange(float(1 << 20)))
    cells = [{"does": "passes", "size": 1 << 20, "files": "big"} for _ in range(12)]
    node.add_try(*cells)
    process, job = node.start(node.task())
    seen: set[int] = set()
    while process.poll() is None:
        for ran in (node.ran(job=job), node.ran()):
            for record in ran.glob("[0-9]*.record.json"):
                number = int(record.name.split(".")[0])
                if number not in seen and record.read_bytes().endswith(b"}"):
                    seen.add(number)
                    files = list((node.ran(job=job) / str(number)).glob("*.npy"))
                    files += list((node.ran() / str(number)).glob("*.npy"))
                    assert files
                    assert all(file.stat().st_size > 1 << 22 for file in files if file.exists())
        time.sleep(0.005)
    assert len(seen) == len(cells)


def test_a_container_that_a_killed_script_never_started_is_removed_by_a_later_task(node: Node) -> None:
    labels = {CONTAINER_LABEL: "1", "io.trtmatrix.cluster": CLUSTER}
    old = client().containers.create(IMAGE, "true", labels=labels)
    time.sleep(2.1)
    node.add_try(GOOD)
    script = node.task()
    script.write_text(script.read_text().replace("unstarted_seconds=600", "unstarted_seconds=1"))
    assert node.run(script)[0] == 0
    assert old.id not in {container.id for container in containers()}
    fresh = client().containers.create(IMAGE, "true", labels=labels)  # about to start
    node.add_try(GOOD, attempt=2)
    assert node.run(node.task(), attempt=2)[0] == 0
    assert fresh.id in {container.id for container in containers()}
    fresh.remove()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("module load apptainer", "with code 127: module load apptainer"),
        ("set_up() { return 3; }; set_up", "with code 3: return 3"),
        ("source /nowhere/profile", "with code 1: source /nowhere/profile"),
        ("exit 4", "the script ended with code 4 while: the lines of setup"),
    ],
)
def test_a_line_of_setup_that_fails_runs_nothing_and_is_told(node: Node, line: str, told: str) -> None:
    node.setup = (line,)
    node.add_try(GOOD)
    process, job = node.start(node.task())
    assert process.wait(timeout=30) != 0
    assert node.ended()["trouble"] == "setup"
    assert told in node.ended()["detail"]
    assert node.ended()["detail"].endswith(f"; see {node.shared}/arrays/{KEY}/said.0.1.{job}.txt")
    assert not (node.ran() / "gpu.csv").exists()


def test_what_may_fail_in_lines_of_setup_is_no_failure(node: Node) -> None:
    profile = node.folder / "profile"
    profile.write_text("false\ngrep -q x /dev/null\ntrue\n")
    node.setup = (f"source '{profile}'", "[[ -d /nowhere ]] && cd /nowhere", "if false", "then true", "fi")
    node.setup += ("false || true",)
    node.add_try(GOOD)
    code, said = node.run(node.task())
    assert code == 0, said


def test_a_job_without_the_environment_of_a_login_runs_nothing(node: Node) -> None:
    node.add_try(GOOD)
    code, _ = node.run(node.task(), HOME="")
    assert code == 1
    assert node.ended()["trouble"] == "setup"
    assert "no environment of a login" in node.ended()["detail"]
    node.setup = ("export HOME=/nowhere",)  # what a site may do about it
    node.add_try(GOOD, attempt=2)
    assert node.run(node.task(), attempt=2, HOME="")[0] == 0


PRIVATE = """\
exec unshare --mount /bin/bash -c 'mount -t tmpfs none "$0" && exec /bin/bash "$@"' '{local}' '{script}' "$@"
"""


def test_a_folder_that_the_engine_does_not_see_is_told_as_such(node: Node) -> None:
    """As under job_container/tmpfs: each job has a /tmp of its own."""
    node.add_try(GOOD)
    script = node.task()
    node.run(node.write("private.sh", PRIVATE.format(local=node.local, script=script)))
    assert node.ended()["trouble"] == "files"
    assert f"Docker on node1 does not see {node.local}/" in node.ended()["detail"]
    assert "by scratch: in the site's file" in node.ended()["detail"]
    assert node.left() == []  # no folder was made for it


def test_a_job_s_files_lie_where_the_site_says(node: Node) -> None:
    disk = node.folder / "its disk" / "job"
    disk.mkdir(parents=True)
    node.scratch = "${DISK}/job"
    node.add_try(GOOD, hangs())
    process, job = node.start(node.task(), DISK=str(disk.parent), SLURM_TMPDIR="/nowhere")
    wait_until((node.ran(job=job) / "1.started.json").exists, 60, "the second cell has started")
    assert [path.name.split(".")[1] for path in disk.iterdir()] == [job]
    process.terminate()
    process.wait(timeout=20)
    assert (list(disk.iterdir()), node.left()) == ([], [])


@pytest.mark.parametrize(
    ("where", "trouble", "told"),
    [
        ("", "setup", "scratch: ${DISK}/job: DISK is not set on node1"),
        ("/nowhere", "files", "no folder can be made in /nowhere/job on node1"),
        ("/a,b", "files", "is no folder that a container can be given"),
    ],
)
def test_a_scratch_folder_that_is_none_is_told(node: Node, where: str, trouble: str, told: str) -> None:
    node.scratch = "${DISK}/job"
    node.add_try(GOOD)
    node.run(node.task(), DISK=where)
    assert node.ended()["trouble"] == trouble
    assert told in node.ended()["detail"]
