"""Whatever stops a run: no container stays, every record is whole, and the next run goes on."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from tests.containers.conftest import GOOD, IMAGE, Project, containers_of, end, identity
from tests.containers.engines import REMOVED_BY_HAND, client
from tests.waiting import wait_until
from trtmatrix.common.paths import own_identity
from trtmatrix.launchers.container import OWNER_LABEL, PROJECT_LABEL
from trtprobe.job import HEARTBEAT_SECONDS

Start = Callable[..., "subprocess.Popen[str]"]
SLEEPS = ("--trt", GOOD, "--repro", "slow", "--case", "sleep-*")


@pytest.fixture(scope="module", autouse=True)
def halted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, subprocess.Popen[str]]]:
    """Start, beside all other tests, a run in which a cell halts its supervisor: it takes a while."""
    project = Project(tmp_path_factory.mktemp("halted"))
    process = project.start("--trt", GOOD, "--case", "slow/halt-the-supervisor,endings/passes,inside/view")
    yield project, process
    end(process)


@pytest.fixture(scope="module", autouse=True)
def suspended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[tuple[Project, int]]]:
    """Run, beside all other tests, with the host's process suspended for longer than a heartbeat."""
    project = Project(tmp_path_factory.mktemp("suspended"))
    process = project.start("--trt", GOOD, "--repro", "slow", "--case", "long-sleep,sleep-1")

    def suspend() -> tuple[Project, int]:
        wait_for_cell(project, process, 0)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(HEARTBEAT_SECONDS + 5)
        os.kill(process.pid, signal.SIGCONT)
        return project, process.wait(timeout=90)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(suspend)
        end(process)


def wait_for_cell(project: Project, process: subprocess.Popen[str], number: int) -> None:
    """Wait until the cells before this one (from 0) have a record and it is running itself."""

    def running() -> bool:
        assert process.poll() is None, project.done(1).told
        there = [job / "out" / f"{number}.started.json" for job in project.jobs()]
        return len(list(project.results.rglob("*.json"))) >= number and any(map(Path.exists, there))

    wait_until(running, 90, f"the start of cell {number}")
    time.sleep(0.3)


def cases_run(data: dict[str, Any]) -> list[str]:
    return [cell["case"] for cell in data["cells"] if cell["executed"]]


@pytest.mark.engines
def test_a_killed_host_leaves_a_container_that_ends_by_itself(project: Project) -> None:
    # In processes that other runs cannot see, these beside it say: they would remove what it leaves.
    unseen = ("unshare", "--pid", "--fork") if os.getuid() == 0 else ()
    process = project.start("--trt", GOOD, "--repro", "slow", "--case", "long-sleep", prefix=unseen)
    container: Any = None
    try:
        wait_for_cell(project, process, 0)
        (job,) = project.jobs()
        container = client().containers.get(f"trtmatrix-{job.name}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        killed = time.monotonic()
        assert container.wait(timeout=HEARTBEAT_SECONDS + 60)["StatusCode"] != 137
        assert time.monotonic() - killed > 5  # it was not killed together with the host
        assert project.jobs() == [job]
    finally:
        end(process)
        if container is not None:
            container.remove(force=True)


def test_after_a_killed_host_the_next_run_cleans_up_and_goes_on(project: Project, started: Start) -> None:
    assert project.run("--trt", GOOD, "--case", "endings/passes").code == 0  # what is prepared runs first
    process = started("--trt", GOOD, "--case", "endings/passes,slow/long-sleep", "--rerun")
    wait_for_cell(project, process, 1)
    assert len(running(process.pid)) == 1
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(project.jobs()) == 1
    done = project.run("--trt", GOOD, "--case", "endings/passes,slow/sleep-1")
    ends = {cell["case"]: (cell["verdict"], cell["cause"], cell["reason"]) for cell in done.data["cells"]}
    assert ends == dict.fromkeys(("passes", "sleep-1"), ("PASS", None, "")), done.told
    assert done.code == 0, done.told
    assert cases_run(done.data) == ["sleep-1"]
    assert containers_of(process.pid) == []
    assert project.jobs() == []
    assert len(project.records()) == 3


def running(pid: int) -> list[Any]:
    return [container for container in containers_of(pid) if container.status == "running"]


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGINT)], ids=len)
def test_an_interrupted_run_cleans_up_and_goes_on(
    project: Project, started: Start, signals: tuple[signal.Signals, ...]
) -> None:
    process = started("--trt", GOOD, "--repro", "slow", "--case", "sleep-0,long-sleep")
    wait_for_cell(project, process, 1)
    for number in signals:
        os.kill(process.pid, number)
        time.sleep(0.1)
    code = process.wait(timeout=90)
    told = project.done(code).told
    assert code == 130, told
    assert "Traceback" not in told
    assert containers_of(process.pid) == []
    assert project.jobs() == []
    assert [identity(record) for record in project.records()] == [f"slow/sleep-0@{GOOD}#cpu"]
    done = project.run("--trt", GOOD, "--repro", "slow", "--case", "sleep-0,sleep-1")
    assert done.code == 0, done.told
    assert cases_run(done.data) == ["sleep-1"]


def test_a_pull_that_hangs_can_be_interrupted(project: Project, started: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        matrix = project.folder / "matrix.yaml"
        matrix.write_text(matrix.read_text().replace("127.0.0.1:1/", f"127.0.0.1:{silent.getsockname()[1]}/"))
        process = started("--trt", "onnxruntime-1.29.0", "--repro", "slow", "--case", "sleep-0")
        silent.settimeout(90)
        connection, _ = silent.accept()
        with connection:
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(timeout=90) == 130


def test_two_runs_at_once_do_not_disturb_each_other(project: Project, started: Start) -> None:
    first = started(*SLEEPS)
    wait_for_cell(project, first, 0)
    mine = running(first.pid)
    assert len(mine) == 1
    other = Project(project.folder / "other")
    other.results, other.cache = project.results, project.cache
    second = other.run("--trt", GOOD, "--case", "slow/sleep-*,endings/passes", "--rerun")
    assert [container.id for container in running(first.pid)] in ([mine[0].id], [])
    assert first.wait(timeout=90) == 0, project.done(0).told
    assert second.code == 0, second.told
    assert len(cases_run(second.data)) == 4
    twice = [f"slow/sleep-{number}@{GOOD}#cpu" for number in range(3)] * 2
    assert sorted(map(identity, project.records())) == [f"endings/passes@{GOOD}#cpu", *sorted(twice)]
    assert project.jobs() == []


@pytest.mark.engines
def test_only_containers_of_dead_owners_are_removed(project: Project) -> None:
    engine = client()
    boot, namespace, pid, start = own_identity().split(":")
    owners = {
        "living": f"{boot}:{namespace}:{pid}:{start}",
        "dead": f"{boot}:{namespace}:{pid}:{int(start) - 1}",
        "of another boot": f"{boot[::-1]}:{namespace}:{pid}:{start}",
        "not to be seen from here": f"{boot}:{int(namespace) + 1}:{pid}:1",
        "illegible": "somebody",
    }
    labels = {name: {PROJECT_LABEL: "1", OWNER_LABEL: owner} for name, owner in owners.items()}
    labels["not ours"] = {OWNER_LABEL: owners["dead"]}
    made = {
        name: engine.containers.create(IMAGE, ["sleep", "60"], labels=label, network_mode="none")
        for name, label in labels.items()
    }
    made["living"].start()
    try:
        project.run("--trt", GOOD, "--repro", "endings", "--case", "passes")
        there = {container.id for container in engine.containers.list(all=True, sparse=True)}
        gone = {name for name, container in made.items() if container.id not in there}
        assert gone == {"dead", "of another boot"}
    finally:
        for container in made.values():
            with contextlib.suppress(docker.errors.NotFound):
                container.remove(force=True)


@pytest.mark.engines
@pytest.mark.parametrize("how", ["remove", "kill"])
def test_a_container_somebody_ends_is_no_cell_s_fault(how: str, project: Project, started: Start) -> None:
    process = started(*SLEEPS)
    wait_for_cell(project, process, 1)
    for container in containers_of(process.pid):
        container.kill() if how == "kill" else container.remove(force=True)
    done = project.done(process.wait(timeout=90))
    assert done.code == 3, done.told
    assert "Traceback" not in done.told
    assert done.cell("sleep-0")["verdict"] == "PASS"
    causes = [done.cell(f"sleep-{n}")["cause"] for n in (1, 2)]
    assert causes == ["interrupted", None] if how == "kill" else set(causes) in REMOVED_BY_HAND
    assert project.jobs() == []


def test_a_suspended_host_loses_one_cell(suspended: Future[tuple[Project, int]]) -> None:
    project, code = suspended.result(timeout=200)
    done = project.done(code)
    assert code == 3, done.told
    cell = done.cell("long-sleep")
    assert (cell["cause"], cell["reason"]) == ("interrupted", "the host gave no sign of life")
    assert done.cell("sleep-1")["verdict"] == "PASS"


def test_a_halted_supervisor_is_ended_from_outside(halted: tuple[Project, subprocess.Popen[str]]) -> None:
    project, process = halted
    done = project.done(process.wait(timeout=90))
    assert done.code == 3, done.told
    cell = done.cell("halt-the-supervisor")
    assert (cell["verdict"], cell["cause"]) == ("NO VERDICT", "probe failed")
    assert "long over its time limit" in cell["reason"]
    assert [done.cell(case)["verdict"] for case in ("passes", "view")] == ["PASS", "PASS"]
    assert containers_of(process.pid) == []
