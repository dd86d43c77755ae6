"""The loop over Slurm: cells run on nodes, trouble is told or tried again, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from playing import RIGHT, WRONG
from slurmclient import CASES, Client, cases_of, make_slurm
from slurmdouble import BOARD, NODE, STUCK, FakeJob, nothing

from trtmatrix.core.slurm.boards import host_hash


def test_cells_run_on_a_node_and_their_records_say_which(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path)
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert cases_of(performed) == Counter(CASES)
    gpu, digests = performed.records[0].gpu, performed.records[0].digests
    assert (gpu["driver"], gpu["host"]) == ("580.159.04", host_hash(NODE))
    assert gpu["clocks"] == {"sm_mhz": 1980, "memory_mhz": 2619, "power_limit_w": 700.0}
    assert (digests["image"], digests["runtime"]) == ("sha256:0", "container")
    (node,) = client.remote.cluster.folder.boards()
    assert (node.name, node.gpus) == (NODE, (BOARD,))
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


def test_what_the_site_excludes_stays_so_where_a_node_is_avoided(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda job: "NODE_FAIL" if job.attempt == "1" else "")
    Client(tmp_path / "1", slurm, options=("--exclude=bad1",)).run()
    (words,) = [w for w in slurm.called if w[0] == "sbatch" and w[-1] == "2"]
    assert [word for word in words if word.startswith("--exclude")][-1] == f"--exclude=bad1,{NODE}"


def test_a_site_that_is_nothing_but_trouble_is_given_up(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda _: "NODE_FAIL", refuses="--exclude")
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)
    assert max(int(job.attempt) for job in slurm.jobs if job.task is not None) == 3
    assert client.open_arrays == []


def test_a_job_that_waits_for_ever_is_cancelled_and_tried_again(tmp_path: Path) -> None:
    def hold(job: FakeJob) -> str:
        job.reason = STUCK if job.attempt == "1" else job.reason
        return "PENDING" if job.attempt == "1" else ""

    slurm = make_slurm(tmp_path, breaks=hold)
    assert cases_of(Client(tmp_path / "1", slurm).run()) == Counter(CASES)
    assert slurm.living == []
