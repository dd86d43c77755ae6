"""What a run ends on Slurm: all that it may have there, however slow Slurm is, whenever a client dies."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from slurmclient import CASES, PACE, Client, cases_of, make_slurm, stop_as_it_runs
from slurmdouble import FakeSlurm, Killed, nothing

from trtmatrix import slurm_cancelling
from trtmatrix.core.errors import HungUp
from trtmatrix.core.slurm.layout import STOPPING
from trtmatrix.effects.slurm import SlurmAway
from trtmatrix.effects.slurm_commands import Answer
from trtmatrix.interrupts import interruptible
from trtmatrix.run import run_plan

LATE = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


def is_array(words: Sequence[str]) -> bool:
    return words[0] == "sbatch" and any("--array" in word for word in words)


def silence(client: Client, slurm: FakeSlurm, *commands: str) -> None:
    """Interrupt a client as its array is submitted, and have these commands not answer from then on."""
    real = slurm.run

    def run(words: Sequence[str], seconds: float) -> Answer:
        if client.shop.stop.is_set() and words[0] in commands:
            raise SlurmAway(f"{words[0]} did not answer within 60 s")
        answer = real(words, seconds)
        if is_array(words):
            client.shop.stop.set()
        return answer

    client.remote.slurm._run = run


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_cancelling, "PATIENCE_SECONDS", 0.1)


def marks(client: Client) -> list[str]:
    return [path.parent.name for path in client.shared.glob(f"arrays/*/{STOPPING}")]


@pytest.mark.usefixtures("impatient")
def test_jobs_are_cancelled_though_squeue_does_not_answer(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    silence(client, slurm, "squeue")
    client.run()
    assert slurm.living == []
    assert client.open_arrays == marks(client)  # it is not known that they are gone: the next run looks


@pytest.mark.usefixtures("impatient")
def test_what_could_not_be_cancelled_is_ended_by_the_next_run(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    first = Client(tmp_path / "1", slurm)
    silence(first, slurm, "squeue", "scancel")
    first.run()
    jobs = sorted({job.id for job in slurm.living})
    assert f"by hand: scancel {' '.join(jobs)} (else" in first.told
    (key,) = first.open_arrays
    slurm.finish_import()
    slurm.lasts = 1
    second = Client(tmp_path / "2", slurm)
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert set(slurm.executed.values()) == {1}
    assert f"ending what an interrupted run left on Slurm: {key}" in second.told
    assert second.open_arrays == []


def test_a_client_that_dies_before_it_cancels_leaves_nothing_to_run_twice(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    first = Client(tmp_path / "1", slurm)

    def die(words: Sequence[str]) -> None:
        if words[0] == "scancel":
            raise Killed

    slurm.behind, slurm.before = stop_as_it_runs(slurm, first), die
    with contextlib.suppress(Killed):
        first.run()
    slurm.behind = slurm.before = nothing
    assert len(slurm.living) > 0
    slurm.lasts = 2
    second = Client(tmp_path / "2", slurm)
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert {run for _, run in slurm.executed} == {"r1"}
    assert second.open_arrays == []


def test_a_living_clients_cancelling_is_left_to_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    clients = [Client(tmp_path / name, slurm) for name in ("1", "2")]

    def begin_another(words: Sequence[str]) -> None:
        if words[0] == "scancel":
            slurm.before = nothing
            slurm.behind = nothing
            clients[1].shop.stop.set()  # it looks round, and begins nothing
            clients[1].run("r1")

    slurm.behind, slurm.before = stop_as_it_runs(slurm, clients[0]), begin_another
    clients[0].run()
    assert "an interrupted run" not in clients[1].told
    assert clients[0].open_arrays == []


def test_an_sbatch_that_comes_late_is_waited_for_and_cancelled(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    client.remote.cancelling.pace = replace(PACE, lost=0.5)
    late, real, listed = list[list[str]](), slurm.sbatch, slurm.squeue

    def sbatch(words: list[str]) -> tuple[int, str, str]:
        if is_array(["sbatch", *words]):
            late.append(words)
            client.shop.stop.set()
            return 1, "", LATE
        return real(words)

    def squeue(words: list[str]) -> tuple[int, str, str]:
        answer = listed(words)
        if any(words[0] == "scancel" for words in slurm.called) and late:
            real(late.pop())  # only now the controller comes to it
        return answer

    slurm.sbatch, slurm.squeue = sbatch, squeue  # type: ignore[method-assign] # as a slow controller
    client.run()
    assert not late
    assert slurm.living == []
    assert slurm.executed == Counter()
    (key,) = {job.name for job in slurm.jobs if job.task is not None}
    assert ["scancel", f"--name={key}", "--user=0"] in slurm.called


@pytest.mark.usefixtures("impatient")
def test_the_next_run_waits_once_for_what_may_come_of_a_submission_without_an_answer(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    first = Client(tmp_path / "1", slurm)

    def cut_off(words: Sequence[str]) -> None:
        if is_array(words):
            slurm.away = 10**6
            first.shop.stop.set()

    slurm.before = cut_off
    first.run()
    (key,) = first.open_arrays
    slurm.before, slurm.away = nothing, 0
    second = Client(tmp_path / "2", slurm)
    second.remote.cancelling.pace = replace(PACE, lost=0.3)  # as Pace() has it: more than the patience
    assert cases_of(second.run("r1")) == Counter(CASES)
    assert f"ending what an interrupted run left on Slurm: {key}" in second.told
    assert second.open_arrays == []


def test_no_last_word_is_waited_for_of_an_attempt_that_is_known_to_be_gone(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    folder = client.remote.cluster.folder
    slurm.behind = stop_as_it_runs(slurm, client)
    asked = list[float]()

    def die(words: Sequence[str]) -> None:
        if words[0] != "scancel":
            return
        for key in client.open_arrays:  # its script was killed before, and another attempt was made
            ran = client.shared / "arrays" / key / "ran" / "0.1.101"
            ran.mkdir(parents=True)
            (ran / "started").write_text("job=101\ntask=0\nattempt=1\nid=101\nnode=node-a\n")
            folder.note_gone(key, 0, 1, "NODE_FAIL")
        asked.append(time.monotonic())

    slurm.before = die
    client.run()
    assert time.monotonic() - asked[0] < slurm_cancelling.LAST_SECONDS / 2
    assert client.open_arrays == []


@pytest.mark.usefixtures("impatient")
def test_a_submission_without_an_answer_is_named_to_who_has_to_cancel_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)

    def away(words: Sequence[str]) -> None:
        if is_array(words):
            client.shop.stop.set()
        if client.shop.stop.is_set():
            slurm.away = 1

    slurm.before = away
    client.run()
    (key,) = client.open_arrays
    assert f"scancel --name=trtmatrix-{key}" in client.told


def test_who_hurries_does_not_wait_for_jobs_to_go(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    silence(client, slurm, "squeue", "scancel")
    client.shop.hurry.set()
    began = time.monotonic()
    client.run()
    assert time.monotonic() - began < 20
    assert "by hand: scancel 1" in client.told


def test_jobs_are_cancelled_though_nobody_hears_of_it_any_more(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    slurm.behind = stop_as_it_runs(slurm, client)
    stream = client.shop.progress.stream  # type: ignore[attr-defined] # it is a StringIO
    real = stream.write

    def write(text: str) -> int:
        if client.shop.stop.is_set():
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return int(real(text))

    stream.write = write
    client.run()
    assert slurm.living == []
    assert client.open_arrays == []


def test_a_reader_who_dies_of_the_same_signal_a_moment_before_keeps_no_job_alive(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)

    def finish(words: Sequence[str]) -> None:
        if words[0] == "squeue":
            slurm.finish_import()

    slurm.behind = finish
    stream, real = client.shop.progress.stream, client.shop.progress.stream.write  # type: ignore[attr-defined] # it is a StringIO

    def write(text: str) -> int:
        if "1 running" in text:
            threading.Timer(0.05, client.shop.stop.set).start()
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return int(real(text))

    stream.write = write
    client.run()
    assert slurm.living == []
    assert client.open_arrays == []


class Interrupted:
    """What runs elsewhere, told to stop by these signals, each a moment after the other was heard."""

    def __init__(self, stop: threading.Event, *numbers: int) -> None:
        self.stop, self.numbers, self.heard = stop, numbers, False

    def run(self, *_: object) -> None:
        for number in self.numbers:
            time.sleep(0.2)  # before the first one too: this very thread is to be one that the run waits for
            os.kill(os.getpid(), number)
        self.heard = self.stop.wait(10)


@pytest.mark.parametrize(
    ("numbers", "raised"),
    [
        ((signal.SIGHUP, signal.SIGHUP), HungUp),
        ((signal.SIGINT, signal.SIGHUP), KeyboardInterrupt),
        ((signal.SIGINT, signal.SIGINT), KeyboardInterrupt),
    ],
)
def test_what_runs_elsewhere_is_told_to_stop_though_nobody_listens_and_signals_come_again(
    numbers: tuple[int, ...], raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path / "1", make_slurm(tmp_path))

    def note(text: str) -> None:
        time.sleep(0.5)  # the second signal comes meanwhile
        raise OSError(errno.EIO, "Input/output error", text)

    monkeypatch.setattr(client.shop.progress, "note", note)
    for told in ("begin", "step"):  # preparing tells too, and is not meant
        monkeypatch.setattr(client.shop.progress, told, lambda *_: None)
    remote = Interrupted(client.shop.stop, *numbers)
    with interruptible(), pytest.raises(KeyboardInterrupt) as caught:
        run_plan(client.plan, frozenset(), "r0", client.shop, remote)
    assert caught.type is raised
    assert remote.heard
