"""A lock that another client holds for long, stopped or waiting for Slurm, keeps nobody from ending."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from slurmclient import CASES, Client, cases_of, make_slurm, stop_as_it_runs
from slurmdouble import FakeSlurm
from test_slurm_shared_lock import other_client

from trtmatrix import run, slurm_collecting, slurm_ending
from trtmatrix.core.slurm.layout import STOPPING
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.shared_lock import LockBusy, within

LONG = 30.0


def test_the_lock_is_waited_for_only_so_long(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path)
    with other_client(tmp_path, LONG) as (process, _):
        with pytest.raises(LockBusy, match=f"process {process.pid}"), folder.lock(within(0.2)):
            pass
        folder.give_up = lambda: True
        with pytest.raises(LockBusy), folder.lock():
            pass


def test_a_thread_waits_for_another_one_only_so_long(tmp_path: Path) -> None:
    folder, came = SharedFolder(tmp_path), list[str]()

    def work() -> None:
        try:
            with folder.lock(within(0.2)):
                pass
        except LockBusy as error:
            came.append(str(error))

    with folder.lock():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
        assert "another thread" in came[0]
    with folder.lock():  # and it is free again
        pass


def run_beside(client: Client, slurm: FakeSlurm) -> float:
    """Run a client whose lock is taken away by another process once a task runs; returns the seconds."""
    taken, stop = list[object](), stop_as_it_runs(slurm, client)
    holder = other_client(slurm.shared, LONG)

    def take(words: Sequence[str]) -> None:
        stop(words)
        if client.shop.stop.is_set() and not taken:
            taken.append(holder.__enter__())

    slurm.behind = take
    began = time.monotonic()
    try:
        client.run()
        return time.monotonic() - began
    finally:
        holder.__exit__(None, None, None)


def test_an_interrupted_run_cancels_without_a_lock_that_it_does_not_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_ending, "LOCK_SECONDS", 0.2)
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    assert run_beside(client, slurm) < LONG / 2
    assert slurm.living == []
    assert "jobs are cancelled without it" in client.told
    assert [path.parent.name for path in client.shared.glob(f"arrays/*/{STOPPING}")] == client.open_arrays
    second = Client(tmp_path / "2", slurm)
    slurm.behind, slurm.lasts = lambda _: None, 1
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert second.open_arrays == []


def test_who_waits_for_the_lock_at_the_start_can_be_interrupted(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    with other_client(slurm.shared, LONG):
        threading.Timer(0.5, client.shop.stop.set).start()
        began = time.monotonic()
        client.run()
    assert time.monotonic() - began < LONG / 2
    assert slurm.jobs == []


def test_records_are_taken_though_a_node_cannot_be_noted_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_collecting, "NOTED_SECONDS", 0.0)
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    real, held = slurm_collecting.Collecting._note_nodes, list[float]()

    def note(self: slurm_collecting.Collecting, seconds: float) -> None:
        if seconds == slurm_collecting.NOTED_SECONDS:
            with other_client(slurm.shared, LONG):
                real(self, seconds)
            held.append(seconds)
        else:
            real(self, seconds)

    monkeypatch.setattr(slurm_collecting.Collecting, "_note_nodes", note)
    assert cases_of(client.run()) == Counter(CASES)
    assert held
    assert len(client.remote.cluster.folder.boards()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_waiting_and_nothing_else(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path / "1", make_slurm(tmp_path))
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        run._clean_up_undisturbed(client.shop)
        os.kill(os.getpid(), number)
        assert not client.shop.hurry.is_set()  # the same keystroke, passed on
        monkeypatch.setattr(run, "SAME_SECONDS", 0.0)
        os.kill(os.getpid(), number)
        assert client.shop.hurry.is_set()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
