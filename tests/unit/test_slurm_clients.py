"""Clients of one shared folder that die, go on, share and leave: nothing is run twice and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playing import RIGHT, WRONG, Playing
from slurmclient import CASES, PACE, Client, cases_of, leave_after_submitting, make_slurm, stop_as_it_runs
from slurmdouble import NODE, FakeJob, FakeSlurm, Killed, nothing

from trtmatrix.core.errors import HungUp, MachineryError
from trtmatrix.core.slurm.layout import OVER
from trtmatrix.core.slurm.manifest import Try
from trtmatrix.effects.shared_clients import Client as SharedClient
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.performed import Performed
from trtmatrix.run import run_plan


class KillFrom:
    """Kills the client at its n-th command, and whatever of it still runs at each later one."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __call__(self, words: Sequence[str]) -> None:
        del words
        self.count += 1
        if self.count >= self.at:
            raise Killed


@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize("at", range(1, 13))
def test_a_client_that_dies_at_any_command_is_gone_on_from(side: str, at: int, tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=8)
    setattr(slurm, side, KillFrom(at))
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
    slurm.behind = stop_as_it_runs(slurm, client)
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
    second = Client(tmp_path / "2", slurm, "b", "c")
    performed = second.run("r1")
    assert "1 cell is under way already" in second.told
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


def test_an_array_whose_job_runs_other_cells_of_a_task_is_gone_on_with(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    first = Client(tmp_path / "1", slurm)
    slurm.behind = leave_after_submitting(slurm, first)
    first.run()
    slurm.behind, slurm.lasts = nothing, 0
    case, *rest = begin_task(slurm, slurm.jobs[-1])
    second = Client(tmp_path / "2", slurm, case)
    assert cases_of(second.run("r1")) == Counter([case])
    (key,) = second.open_arrays
    assert f"no client follows the array {key}" in second.told
    assert f"to end it: scancel {slurm.jobs[-1].id}\n" in second.told
    slurm.lasts = 1
    third = Client(tmp_path / "3", slurm, *rest)  # the whole command: what the second took is stored by now
    performed = third.run("r2")
    assert {(record.cell.case, record.run) for record in performed.records} == {(name, "r0") for name in rest}
    assert set(slurm.executed.values()) == {1}
    assert third.open_arrays == []
    assert "no client follows" not in third.told


def begin_task(slurm: FakeSlurm, job: FakeJob) -> list[str]:
    """Have a task's script run its first cell alone; returns its cases, that one first."""
    job.state, job.reason, job.node = "RUNNING", "None", NODE
    wanted = job.script.parent / "tries" / f"{job.task}.{job.attempt}"
    cells = [json.loads(file.read_text()) for file in sorted((wanted / "job").glob("*.cell.json"))]
    ran = job.script.parent / "ran" / f"{wanted.name}.{job.id}"
    ran.mkdir()
    (ran / "started").write_text(f"job={job.id}\ntask={job.task}\nattempt={job.attempt}\nnode={NODE}\n")
    probe = Playing(slurm.play)
    probe.jobs.append([cells[0]])
    probe.cell(0, cells[0], ran)
    return [cell["cell"]["case"] for cell in cells]


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
    slurm = make_slurm(tmp_path, lasts=8)
    late, early = Client(tmp_path / "2", slurm), Client(tmp_path / "1", slurm)

    def stop(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            early.shop.stop.set()

    slurm.behind = stop
    early.run()
    assert slurm.executed == Counter()
    slurm.behind = nothing
    performed = late.run("r1")
    assert cases_of(performed) == Counter(CASES), late.told
    assert performed.not_ready == []


STEPS = {
    "stage_suite": 1, "stage_case": 3, "add_array": 1, "add_try": 3, "note_submission": 2, "note_node": 1,
    "close_array": 1,
}  # fmt: skip
"""What a client of three cells, each a task of its own, writes on the shared folder, and how often."""


@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize(
    ("step", "at"), [(step, n + 1) for step, often in STEPS.items() for n in range(often)]
)
def test_a_client_that_dies_at_any_write_is_gone_on_from(
    step: str, at: int, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_slurm(tmp_path)
    kill, real = KillFrom(at), getattr(SharedFolder, step)

    def dying(self: SharedFolder, *args: Any, **kwargs: Any) -> Any:
        if side == "before":
            kill([])
        result = real(self, *args, **kwargs)
        if side == "behind":
            kill([])
        return result

    with monkeypatch.context() as patched:
        patched.setattr(SharedFolder, step, dying)
        first = Client(tmp_path / "1", slurm)
        first.remote.pace = replace(PACE, worth=5.0)
        with pytest.raises(Killed):
            first.run()
    assert kill.count >= at
    second = Client(tmp_path / "2", slurm)
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert second.open_arrays == []
    if step != "close_array":
        runs = {run for _, run in slurm.executed}
        assert max(slurm.executed.values()) == 1
        assert len(runs) == 1


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
