"""The loop over Slurm: nothing is run twice and nothing is lost, wherever a client dies."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_case, make_cell, make_repro
from playing import LIMIT, RIGHT, WRONG, Play, always, make_shop
from slurmdouble import BOARD, NODE, STUCK, FakeJob, FakeSlurm, Killed, nothing
from test_cases import loaded

from trtmatrix.cluster import Cluster
from trtmatrix.core.container import Limits
from trtmatrix.core.errors import HungUp, MachineryError
from trtmatrix.core.expand import Cell, Selection
from trtmatrix.core.plan import Engine, GpuAccess, Host, Pull, make_plan
from trtmatrix.core.slurm.boards import host_hash, site_gpus
from trtmatrix.core.slurm.layout import OVER
from trtmatrix.core.slurm.manifest import Try
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.effects.shared_clients import Client as SharedClient
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Slurm
from trtmatrix.performed import Performed
from trtmatrix.run import run_plan
from trtmatrix.slurm_pace import Pace
from trtmatrix.slurm_run import SlurmRun
from trtmatrix.workshop import Workshop

PACE = Pace(
    folder=0.002, squeue=0.002, most=0.004, settle=0.02, silent=0.5, lost=0.03, later=0.02, worth=20.0
)
RIGHTLY = always(RIGHT)
CASES = ("a", "b", "c")


class Client:
    """One client over a shared folder: a process of this program, as far as it concerns Slurm."""

    def __init__(self, folder: Path, slurm: FakeSlurm, *names: str, **more: Any) -> None:
        cases = [make_case(name, **LIMIT) for name in names or CASES]
        repro = make_repro(*cases)
        shared = SharedFolder(slurm.shared)
        site = Site(
            shared=str(slurm.shared), runtime=NodeRuntime.DOCKER,
            gpus=(SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"),),
        )  # fmt: skip
        (gpu,) = site_gpus(site, [])
        self.cells: list[Cell] = [make_cell(repro, case, gpu=gpu) for case in cases]
        engine = Engine(available=True, gpu_access=GpuAccess.TOOLKIT)
        host = Host(engine=engine, gpus=(gpu,))
        past = frozenset(path.parent.name for path in (slurm.shared / "arrays").glob(f"*/{OVER}"))
        repros = folder / "repros"
        repros.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(
            site=site, folder=shared, gpus=(gpu,), host=host, planned=host, repros=repros, past=past
        )
        self.shop: Workshop = make_shop(folder, None, [replace(loaded(), repro=repro)], **more)
        self.plan = make_plan(self.cells, host, Selection(), Pull.ALL)
        self.remote = SlurmRun(cluster, self.shop, Limits(), slurm=Slurm(run=slurm.run, user=0), pace=PACE)
        self.shared, self.local = slurm.shared, folder / "local"

    def run(self, run: str = "r0") -> Performed:
        return run_plan(self.plan, frozenset(), run, self.shop, self.remote)

    @property
    def told(self) -> str:
        return str(self.shop.progress.stream.getvalue())  # type: ignore[attr-defined] # it is a StringIO

    @property
    def open_arrays(self) -> list[str]:
        return [p.name for p in (self.shared / "arrays").glob("*") if not (p / OVER).exists()]


def make_slurm(folder: Path, play: Play = RIGHTLY, **more: Any) -> FakeSlurm:
    shared = folder / "shared"
    shared.mkdir()
    return FakeSlurm(shared=shared, play=play, **more)


def leave_after_submitting(slurm: FakeSlurm, client: Client) -> Callable[[Sequence[str]], None]:
    """What loses a client's connection once its array is submitted."""

    def leave(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            client.shop.leave.set()
            client.shop.stop.set()

    return leave


def cases_of(performed: Performed) -> Counter[str]:
    return Counter(record.cell.case for record in performed.records)


def test_cells_run_on_a_node_and_their_records_say_which(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert cases_of(performed) == Counter(CASES)
    gpu, digests = performed.records[0].gpu, performed.records[0].digests
    assert (gpu["driver"], gpu["host"]) == ("580.159.04", host_hash(NODE))
    assert gpu["clocks"] == {"sm_mhz": 1980, "memory_mhz": 2619, "power_limit_w": 700.0}
    assert (digests["image"], digests["runtime"]) == ("sha256:0", "container")
    assert client.remote.cluster.folder.nodes() == {NODE: (BOARD,)}
    assert client.open_arrays == []
    assert slurm.living == []


def test_an_image_is_had_once_and_the_array_waits_for_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    Client(tmp_path / "1", slurm).run()
    Client(tmp_path / "2", slurm).run("r1")
    names = [job.name for job in slurm.jobs if job.task is None]
    assert len(names) == 1
    assert slurm.jobs[1].after == slurm.jobs[0].id
    assert slurm.jobs[-1].after == ""


def test_a_failure_is_run_again_alone_in_a_further_array(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lambda case: WRONG if case == "b" else RIGHT)
    performed = Client(tmp_path / "1", slurm).run()
    assert cases_of(performed) == Counter({"a": 1, "b": 2, "c": 1})
    assert [record.confirms for record in performed.records if record.cell.case == "b"] == ["", "r0"]


class Once:
    """Kills the client once, at its n-th command."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __call__(self, words: Sequence[str]) -> None:
        del words
        self.count += 1
        if self.count == self.at:
            raise Killed


@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_client_that_dies_at_any_command_is_gone_on_from(side: str, at: int, tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    setattr(slurm, side, Once(at))
    first = Client(tmp_path / "1", slurm)
    with contextlib.suppress(Killed):
        first.run()
    setattr(slurm, side, nothing)
    assert first.open_arrays or not slurm.executed, "it came to its end: name fewer commands"
    second = Client(tmp_path / "2", slurm)
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert Counter(case for case, _ in slurm.executed.elements()) == Counter(CASES), second.told
    assert len({job.id for job in slurm.jobs if job.task is not None}) == 1, second.told
    assert second.open_arrays == []


STEPS = ("add_array", "add_try", "note_submission", "note_node", "close_array", "stage_case", "stage_suite")


@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_dies_at_any_write_is_gone_on_from(
    step: str, at: int, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_slurm(tmp_path)
    kill, real = Once(at), getattr(SharedFolder, step)

    def dying(self: SharedFolder, *args: Any, **kwargs: Any) -> Any:
        if side == "before":
            kill([])
        result = real(self, *args, **kwargs)
        if side == "behind":
            kill([])
        return result

    with monkeypatch.context() as patched:
        patched.setattr(SharedFolder, step, dying)
        with contextlib.suppress(Killed):
            Client(tmp_path / "1", slurm).run()
    performed = Client(tmp_path / "2", slurm).run("r1")
    assert cases_of(performed) == Counter(CASES)
    if step != "close_array":
        runs = {run for _, run in slurm.executed}
        assert max(slurm.executed.values()) == 1
        assert len(runs) == 1 or kill.count < at


def test_two_clients_share_what_runs(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lambda case: WRONG if case == "b" else RIGHT)
    clients = [Client(tmp_path / name, slurm) for name in ("1", "2")]
    came: dict[int, Performed] = {}

    def work(number: int) -> None:
        came[number] = clients[number].run(f"r{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    expected = Counter({"a": 1, "b": 2, "c": 1})
    assert [cases_of(came[number]) for number in range(2)] == [expected, expected]
    assert Counter(case for case, _ in slurm.executed.elements()) == expected
    assert clients[0].open_arrays == []


def test_an_interrupt_leaves_no_job(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)

    def stop(words: Sequence[str]) -> None:
        if any(job.state == "RUNNING" and job.task is not None for job in slurm.jobs):
            client.shop.stop.set()
        elif words[0] == "squeue":
            slurm.finish_import()

    slurm.behind = stop
    performed = client.run()
    assert performed.records == []
    assert slurm.living == []
    assert client.open_arrays == []
    assert "cancelling on Slurm" in client.told


def test_a_lost_connection_leaves_them_running_and_the_next_call_has_them(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)

    slurm.behind = leave_after_submitting(slurm, client)
    client.run()
    assert len(slurm.living) > 0
    assert "the same command goes on" in client.told
    slurm.behind = nothing
    performed = Client(tmp_path / "2", slurm).run("r1")
    assert {record.run for record in performed.records} == {"r0"}
    assert Counter(case for case, _ in slurm.executed.elements()) == Counter(CASES)


def test_a_controller_that_is_away_is_waited_for(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)

    def drop(_: Sequence[str]) -> None:
        if any(job.task is not None for job in slurm.jobs):
            slurm.away = 10
            slurm.before = nothing

    slurm.before = drop
    client = Client(tmp_path / "1", slurm)
    assert cases_of(client.run()) == Counter(CASES)
    assert client.told.count("does not answer") == 1
    assert set(slurm.executed.values()) == {1}


def test_sbatch_that_gets_no_answer_is_tried_again(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)

    def drop(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and any("--array" in word for word in words) and not slurm.executed:
            slurm.away = 1
            slurm.before = nothing

    slurm.before = drop
    client = Client(tmp_path / "1", slurm)
    assert cases_of(client.run()) == Counter(CASES)
    assert set(slurm.executed.values()) == {1}


def test_what_slurm_refuses_is_told_and_not_run(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, refuses="--gres")
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert performed.records == []
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)
    assert "Requested node configuration is not available" in performed.not_ready[0].detail
    assert client.open_arrays == []


def test_an_image_that_cannot_be_had_is_tried_thrice_and_told(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True)
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert performed.records == []
    assert "no such tag" in performed.not_ready[0].detail
    assert len([job for job in slurm.jobs if job.task is None]) == 3
    assert slurm.living == []


def test_a_lost_node_costs_an_attempt_and_is_avoided(tmp_path: Path) -> None:
    def lose(job: FakeJob) -> str:
        return "NODE_FAIL" if job.attempt == "1" else ""

    slurm = make_slurm(tmp_path, breaks=lose)
    client = Client(tmp_path / "1", slurm)
    assert cases_of(client.run()) == Counter(CASES)
    (words,) = [w for w in slurm.called if w[0] == "sbatch" and w[-1] == "2"]
    assert f"--exclude={NODE}" in words
    assert "NODE_FAIL" in client.told


def test_a_site_that_is_nothing_but_trouble_is_given_up(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda _: "NODE_FAIL", refuses="--exclude")
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)
    assert max(int(job.attempt) for job in slurm.jobs if job.task is not None) == 3
    assert client.open_arrays == []


def test_what_another_client_ended_since_this_one_began_is_not_run_again(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    late = Client(tmp_path / "2", slurm)  # it has read its store by now
    early = Client(tmp_path / "1", slurm)
    early.run()
    assert early.open_arrays == []
    assert {record.run for record in late.run("r1").records} == {"r0"}
    assert Counter(case for case, _ in slurm.executed.elements()) == Counter(CASES)


def test_a_later_client_that_asks_anew_gets_anew(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    Client(tmp_path / "1", slurm).run()
    assert {record.run for record in Client(tmp_path / "2", slurm).run("r1").records} == {"r1"}


def test_only_the_cells_that_nobody_runs_are_submitted(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    first = Client(tmp_path / "1", slurm, "a", "b")

    slurm.behind = leave_after_submitting(slurm, first)
    first.run()
    slurm.behind = nothing
    performed = Client(tmp_path / "2", slurm, "b", "c").run("r1")
    assert {(record.cell.case, record.run) for record in performed.records} == {("b", "r0"), ("c", "r1")}


def test_an_interrupt_leaves_alone_what_another_client_follows(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    clients = [Client(tmp_path / name, slurm) for name in ("1", "2")]
    came: dict[int, Performed] = {}

    def work(number: int) -> None:
        came[number] = clients[number].run(f"r{number}")

    def go(words: Sequence[str]) -> None:
        if words[0] == "squeue":
            slurm.finish_import()

    slurm.behind = go
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: "under way already" in clients[0].told + clients[1].told)
    clients[0].shop.stop.set()
    threads[0].join(20)
    assert "another client follows" in clients[0].told
    slurm.lasts = 1
    threads[1].join(20)
    assert cases_of(came[1]) == Counter(CASES)
    assert slurm.living == []


def nothing_of(*given: object) -> None:
    del given


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.parametrize("how", [KeyboardInterrupt, HungUp, OSError])
def test_only_an_interrupt_ends_what_runs_elsewhere(
    how: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtmatrix.run.signal.signal", nothing_of)
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)

    class Failing:
        def run(self, *_: object) -> None:
            raise how

    with pytest.raises((how, MachineryError)):
        run_plan(client.plan, frozenset(), "r0", client.shop, Failing())
    assert client.shop.stop.is_set()
    assert client.shop.leave.is_set() is (how is not KeyboardInterrupt)


def test_an_array_that_another_client_follows_stays_open(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    first = Client(tmp_path / "1", slurm)
    with SharedClient(SharedFolder(slurm.shared)) as other:
        slurm.behind = lambda _: other.follow(first.open_arrays)
        first.run()
        (key,) = first.open_arrays
    slurm.behind = nothing
    assert {record.run for record in Client(tmp_path / "2", slurm).run("r1").records} == {"r0"}
    assert not (slurm.shared / "clients" / other.id).exists()
    assert (slurm.shared / "arrays" / key / OVER).exists()


def test_an_array_with_cells_that_are_nobodys_here_stays_open(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda job: "RUNNING" if job.task == 0 else "")
    first = Client(tmp_path / "1", slurm, "a", "b")
    slurm.behind = leave_after_submitting(slurm, first)
    first.remote.pace = replace(PACE, worth=5.0)
    first.run()
    slurm.behind = nothing
    tried = sorted(path.name for path in slurm.shared.glob("arrays/*/tries/*"))
    assert tried == ["0.1", "1.1"]
    assert cases_of(Client(tmp_path / "2", slurm, "b").run("r1")) == Counter("b")
    assert len(first.open_arrays) == 1


def test_a_record_that_is_seen_before_it_can_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, late = SharedFolder.read_record, Counter[int]()

    def reading(self: SharedFolder, key: str, left: Try, number: int) -> dict[str, Any] | None:
        late[number] += 1
        return None if late[number] < 4 else real(self, key, left, number)

    monkeypatch.setattr(SharedFolder, "read_record", reading)
    assert cases_of(Client(tmp_path / "1", make_slurm(tmp_path)).run()) == Counter(CASES)


def test_what_another_clients_interrupt_left_out_is_run(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    late, early = Client(tmp_path / "2", slurm), Client(tmp_path / "1", slurm)

    def stop(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            early.shop.stop.set()

    slurm.behind = stop
    early.run()
    slurm.behind = nothing
    performed = late.run("r1")
    assert cases_of(performed) == Counter(CASES), late.told
    assert performed.not_ready == []


def test_a_job_that_waits_for_ever_is_cancelled_and_tried_again(tmp_path: Path) -> None:
    def hold(job: FakeJob) -> str:
        job.reason = STUCK if job.attempt == "1" else job.reason
        return "PENDING" if job.attempt == "1" else ""

    slurm = make_slurm(tmp_path, breaks=hold)
    assert cases_of(Client(tmp_path / "1", slurm).run()) == Counter(CASES)
    assert slurm.living == []
