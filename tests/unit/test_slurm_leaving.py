"""A run that stops early: nothing is submitted any more, and what goes on without it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from slurmclient import CASES, Client, cases_of, leave_after_submitting, make_slurm

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.slurm.manifest import Manifest
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import SlurmAway
from trtmatrix.effects.slurm_commands import Answer, run_command


def test_nothing_is_submitted_once_the_connection_is_lost_while_cases_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    real = SharedFolder.stage_case

    def stage(self: SharedFolder, folder: Path) -> Path:
        client.shop.leave.set()
        client.shop.stop.set()
        return real(self, folder)

    monkeypatch.setattr(SharedFolder, "stage_case", stage)
    client.run()
    assert [job for job in slurm.jobs if job.task is not None] == []
    assert client.open_arrays == []


def test_a_run_that_is_to_stop_begins_no_import(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    client.shop.leave.set()
    client.shop.stop.set()
    client.run()
    assert slurm.called == []


def test_what_is_left_to_run_is_told_with_what_ends_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    slurm.behind = leave_after_submitting(slurm, client)
    client.run()
    job = slurm.jobs[-1].id
    assert f"goes on with it: {client.open_arrays[0]}; to end it: scancel {job}\n" in client.told


def test_an_error_ends_no_job_and_tells_of_those_that_go_on(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    real = slurm.run

    def run(words: Sequence[str], seconds: float) -> Answer:
        if words[0] == "squeue" and any(job.task is not None for job in slurm.jobs):
            raise ValueError("something that nobody thought of")
        return real(words, seconds)

    client.remote.slurm._run = run
    with pytest.raises(ValueError, match="nobody thought of"):
        client.run()
    assert len(slurm.living) > 0
    assert f"to end it: scancel {slurm.jobs[-1].id}\n" in client.told


def three_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each cell be an array of its own."""
    monkeypatch.setattr(
        "trtmatrix.slurm_submitting.cut_arrays",
        lambda tasks, _limits: [((asked,),) for task in tasks for asked in task],
    )


def test_an_error_between_two_arrays_tells_of_those_that_were_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client, real = Client(tmp_path / "1", slurm), SharedFolder.add_array
    three_arrays(monkeypatch)

    def add(self: SharedFolder, manifest: Manifest, script: str) -> None:
        if len(client.open_arrays) == 2:
            raise MachineryError("no space left on device")
        real(self, manifest, script)

    monkeypatch.setattr(SharedFolder, "add_array", add)
    with pytest.raises(MachineryError, match="no space left"):
        client.run()
    jobs = sorted({job.id for job in slurm.living if job.task is not None})
    assert len(jobs) == 2
    assert f"goes on with it: {', '.join(sorted(client.open_arrays))}; to end it: scancel" in client.told
    assert f"scancel {' '.join(jobs)}\n" in client.told


def test_no_further_array_is_submitted_once_the_run_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    three_arrays(monkeypatch)

    def stop(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            client.shop.stop.set()

    slurm.behind = stop
    client.run()
    assert len([job for job in slurm.jobs if job.task is not None]) == 1
    assert slurm.living == []
    assert client.open_arrays == []


def test_a_submission_without_an_answer_is_told_with_what_would_end_it(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)

    def away(words: Sequence[str]) -> None:
        if any("--array" in word for word in words):
            slurm.away = 1
            client.shop.leave.set()
            client.shop.stop.set()

    slurm.before = away
    client.run()
    assert f"to end it: scancel --name=trtmatrix-{client.open_arrays[0]}\n" in client.told


def test_a_command_that_cannot_be_started_just_now_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("trtmatrix.effects.slurm_commands.subprocess.Popen", fork)
    with pytest.raises(SlurmAway, match="Resource temporarily unavailable") as raised:
        run_command(["squeue"], 5.0)
    slurm = make_slurm(tmp_path)
    client, failed, real = Client(tmp_path / "1", slurm), list[str](), slurm.run

    def run(words: Sequence[str], seconds: float) -> Answer:
        if words[0] == "squeue" and slurm.executed and not failed:
            failed.append(words[0])
            raise raised.value
        return real(words, seconds)

    client.remote.slurm._run = run
    assert cases_of(client.run()) == Counter(CASES)


def test_a_command_that_is_not_there_is_told_with_what_to_install() -> None:
    with pytest.raises(UsageError, match="slurm-client"):
        run_command(["/nowhere/squeue"], 5.0)
