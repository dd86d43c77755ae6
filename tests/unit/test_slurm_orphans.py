"""What dead clients left open: told of, closed if nothing comes of it, tried anew where it was refused."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from slurmclient import CASES, PACE, Client, cases_of, leave_after_submitting, make_slurm
from slurmdouble import FakeSlurm, Killed, nothing

from trtmatrix.core.slurm.facts import LeftArray
from trtmatrix.core.slurm.layout import OVER
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.slurm_doctor import left_arrays
from trtmatrix.slurm_orphans import Orphan, orphans

AGES = timedelta(days=40)


def change(client: Client, **what: object) -> Client:
    """Change what a client works with, such as its probe or its clock."""
    client.shop = client.remote.shop = replace(client.shop, **what)  # type: ignore[arg-type] # any of them
    return client


def die_before_closing(client: Client) -> None:
    """Run a client that is killed as soon as it would close its array."""

    def die(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SharedFolder, "close_array", die)
        with contextlib.suppress(Killed):
            client.run()


def leave(slurm: FakeSlurm, client: Client) -> str:
    """Run a client until its array is submitted; returns the array's key."""
    slurm.behind = leave_after_submitting(slurm, client)
    client.run()
    slurm.behind = nothing
    (key,) = client.open_arrays
    return key


@pytest.mark.parametrize("trouble", ["refused", "lost"])
def test_what_was_refused_or_given_up_is_tried_when_it_is_asked_for_again(
    trouble: str, tmp_path: Path
) -> None:
    slurm = make_slurm(tmp_path)
    if trouble == "refused":
        slurm.refuses = "--gres"
    else:
        slurm.breaks = lambda _: "NODE_FAIL"
    first = Client(tmp_path / "1", slurm)
    die_before_closing(first)
    (old,) = first.open_arrays
    slurm.refuses, slurm.breaks = "", nothing
    second = Client(tmp_path / "2", slurm)
    performed = second.run("r1")
    assert cases_of(performed) == Counter(CASES)
    assert performed.not_ready == []
    assert (slurm.shared / "arrays" / old / OVER).exists()
    assert second.open_arrays == []


def test_records_of_an_array_are_taken_though_the_rest_of_it_was_given_up(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda job: "NODE_FAIL" if job.task else "")
    first = Client(tmp_path / "1", slurm, "a", "b")
    first.remote.pace = replace(PACE, worth=5.0)
    die_before_closing(first)
    slurm.breaks = nothing
    performed = Client(tmp_path / "2", slurm, "a", "b").run("r1")
    assert {(record.cell.case, record.run) for record in performed.records} == {("a", "r0"), ("b", "r1")}
    assert performed.not_ready == []


def test_an_array_of_what_has_changed_since_is_told_of_while_it_runs(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=4)
    key = leave(slurm, Client(tmp_path / "1", slurm))
    jobs = sorted({job.id for job in slurm.living if job.task is not None})
    second = change(Client(tmp_path / "2", slurm), probe_digest="changed")
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert f"no client follows the array {key}: 3 cells of 10.7.0" in second.told
    assert f"has changed since); the command that began it goes on with it; to end it: scancel {jobs[0]}" in (
        second.told
    )
    assert second.open_arrays == [key]  # its records may be asked for yet
    assert not any(words[0] == "scancel" for words in slurm.called)


def test_doctor_sees_arrays_that_nobody_follows(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=4)
    first = Client(tmp_path / "1", slurm)
    key = leave(slurm, first)
    (job,) = {job.id for job in slurm.living if job.task is not None}
    (array,) = left_arrays(SharedFolder(slurm.shared), first.remote.slurm)
    assert array == LeftArray(
        key=key, cells=3, version="10.7.0", gpu="nvidia-h200", jobs=(job,), end=f"scancel {job}"
    )
    for _ in range(9):
        slurm.squeue([])
    assert slurm.living == []
    (array,) = left_arrays(SharedFolder(slurm.shared), first.remote.slurm)
    assert (array.jobs, array.end) == ((), "")
    Client(tmp_path / "2", slurm).run("r1")
    assert left_arrays(SharedFolder(slurm.shared), first.remote.slurm) == ()


def test_doctor_leaves_alone_what_a_client_follows(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    seen: list[list[Orphan]] = []

    def look(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            slurm.behind = nothing
            jobs = client.remote.slurm.jobs()
            seen.append(orphans(client.remote.cluster.folder, jobs))

    slurm.behind = look
    client.run()
    assert seen == [[]]


def test_an_array_that_is_gone_on_with_is_not_told_of(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=4)
    leave(slurm, Client(tmp_path / "1", slurm))
    second = Client(tmp_path / "2", slurm)
    second.run("r1")
    assert "no client follows" not in second.told


@pytest.mark.parametrize("late", [False, True])
def test_what_nobody_comes_back_for_is_closed_after_a_month(late: bool, tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    first = Client(tmp_path / "1", slurm, "a")
    key = leave(slurm, first)
    for _ in range(6):
        slurm.squeue([])
    assert slurm.living == []
    second = Client(tmp_path / "2", slurm, "b")
    clock = first.shop.clock
    if late:
        change(second, clock=lambda: clock() + AGES)
    second.run("r1")
    assert second.open_arrays == ([] if late else [key])


def test_an_array_that_never_came_to_slurm_is_closed_where_nobody_wants_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)

    def die(*_: object, **__: object) -> None:
        raise Killed

    first = Client(tmp_path / "1", slurm, "a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SharedFolder, "add_try", die)
        with contextlib.suppress(Killed):
            first.run()
    assert len(first.open_arrays) == 1
    second = Client(tmp_path / "2", slurm, "b")
    second.run("r1")
    assert second.open_arrays == []
