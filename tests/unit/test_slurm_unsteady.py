"""A Slurm that is full, forgets jobs, or has images made anew: it is waited for; nothing runs twice."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from slurmclient import CASES, Client, cases_of, make_slurm
from slurmdouble import NODE, STUCK, FakeJob

from trtmatrix import cluster as cluster_module

POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
LIMIT_MET = f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: {POLICY}"
QUEUE_FULL = "sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job"


@pytest.mark.parametrize(
    ("words", "what"),
    [(LIMIT_MET, "--array"), (QUEUE_FULL, "--array"), (POLICY, "--array"), (LIMIT_MET, "import")],
)
def test_what_slurm_has_no_room_for_now_is_submitted_later(words: str, what: str, tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    other = FakeJob(
        id="7", task=None, name="training", comment="", script=Path(), attempt="", after="", reason=STUCK
    )
    slurm.jobs.append(other)  # of the same user's: it has the room
    takes, left = slurm.sbatch, [8]

    def sbatch(given: list[str]) -> tuple[int, str, str]:
        if left[0] and any(what in word for word in given):
            left[0] -= 1
            return 1, "", words
        return takes(given)

    slurm.sbatch = sbatch  # type: ignore[method-assign, assignment] # a fake's
    client = Client(tmp_path / "1", slurm)
    assert cases_of(client.run()) == Counter(CASES)
    assert left == [0]
    assert client.told.count("Slurm takes no more jobs now") == 1
    assert "limits.tasks" in client.told
    assert len(list(slurm.shared.glob("arrays/*/submitted/*.json"))) == 1
    assert len(list(slurm.shared.glob("images/*.sh"))) == 1


@pytest.mark.parametrize(
    ("words", "tries"), [(POLICY, 3), (LIMIT_MET.replace("SubmitJob", "WallDuration"), 1)]
)
def test_a_limit_that_no_waiting_helps_against_is_a_refusal(words: str, tries: int, tmp_path: Path) -> None:
    slurm, asked = make_slurm(tmp_path), list[str]()
    takes = slurm.sbatch

    def sbatch(given: list[str]) -> tuple[int, str, str]:
        if any("--array" in word for word in given):
            asked.append("array")
            slurm.finish_import()
            return 1, "", words
        return takes(given)

    slurm.sbatch = sbatch  # type: ignore[method-assign, assignment] # a fake's
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)
    assert "accounting/QOS policy" in performed.not_ready[0].detail
    assert tries <= len(asked) <= 2 * tries + 10
    assert "sacctmgr show qos" in client.told
    assert client.open_arrays == []


def test_a_running_job_that_slurm_leaves_out_is_not_attempted_anew(tmp_path: Path) -> None:
    """As a controller does that came up from an old state, or another cluster's."""
    slurm = make_slurm(tmp_path, lasts=0)
    client, listed, lists = Client(tmp_path / "1", slurm), slurm.squeue, Counter[str]()

    def squeue(words: list[str]) -> tuple[int, str, str]:
        code, out, err = listed(words)
        slurm.finish_import()
        for job in slurm.living:
            if job.task is not None and job.state == "RUNNING":
                ran = job.script.parent / "ran" / f"{job.task}.{job.attempt}.{job.id}"
                ran.mkdir(parents=True, exist_ok=True)
                (ran / "started").write_text(f"job={job.id}\nnode={NODE}\n")
                (ran / "alive").touch()
                lists["without"] += 1
        if lists["without"] > 20:  # as many as make any other job gone
            slurm.lasts = 1
        return code, "".join(line for line in out.splitlines(True) if "import" in line), err

    slurm.squeue = squeue  # type: ignore[method-assign] # a fake's
    assert cases_of(client.run()) == Counter(CASES)
    assert {w[-1] for w in slurm.called if w[0] == "sbatch" and any("--array" in x for x in w)} == {"1"}
    assert set(slurm.executed.values()) == {1}


def test_an_image_that_is_made_anew_meanwhile_is_the_run_s_no_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is another one at each look; what runs has the one that it was submitted with."""
    looks = itertools.count()
    monkeypatch.setattr(cluster_module, "key_of", lambda *_: f"key{next(looks)}")
    slurm = make_slurm(tmp_path, breaks=lambda job: "NODE_FAIL" if job.attempt == "1" else "")
    performed = Client(tmp_path / "1", slurm).run()
    assert cases_of(performed) == Counter(CASES)
    assert {record.digests["image"] for record in performed.records} == {"sha256:0"}
    assert [job.name for job in slurm.jobs if job.task is None] == ["trtmatrix-import-key0"]
