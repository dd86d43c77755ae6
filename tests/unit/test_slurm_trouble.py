"""Trouble of the site's own: told with its cause where it happens, and tried again where that may help."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_version
from slurmclient import CASES, PACE, Client, cases_of, leave_after_submitting, make_slurm
from slurmdouble import NODE, FakeJob, FakeSlurm, nothing

from trtmatrix.core.entry import Entry
from trtmatrix.core.expand import Selection
from trtmatrix.core.model import Evidence
from trtmatrix.core.plan import Pull, make_plan
from trtmatrix.core.slurm.parse import parse_sacct
from trtmatrix.core.slurm.parse_lines import parse_sacct_lines
from trtmatrix.core.summary import count_products, headline
from trtmatrix.effects.slurm import Refused, Slurm, SlurmAway


def array_jobs(slurm: FakeSlurm) -> list[FakeJob]:
    return [job for job in slurm.jobs if job.task is not None]


def imports(slurm: FakeSlurm) -> list[FakeJob]:
    return [job for job in slurm.jobs if job.task is None]


def first_only(state: str) -> object:
    return lambda job: state if job.attempt == "1" else ""


def test_a_launch_that_fails_is_tried_elsewhere_and_told_in_slurms_words(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=first_only("CANCELLED"), drained="Prolog error")
    client = Client(tmp_path / "1", slurm)
    assert cases_of(client.run()) == Counter(CASES)
    assert f"task 0 again: the launch failed on {NODE}; Slurm: Prolog error" in client.told
    (words,) = [w for w in slurm.called if w[0] == "sbatch" and w[-1] == "2"]
    assert f"--exclude={NODE}" in words


def test_what_this_user_cancelled_while_it_was_launched_is_not_tried_again(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, breaks=lambda _: "CANCELLED", cancelled_by="1000")
    client = Client(tmp_path / "1", slurm)
    client.remote.slurm = client.remote.images.slurm = client.remote.queue.slurm = Slurm(
        run=slurm.run, user=1000
    )
    performed = client.run()
    assert performed.records == []
    assert {job.attempt for job in array_jobs(slurm)} == {"1"}
    assert "the job was cancelled" in performed.not_ready[0].detail


def test_a_model_that_no_other_node_has_is_not_asked_for_again(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, trouble="gpu", board="NVIDIA L4, GPU-1", refuses="--exclude")
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert {job.attempt for job in array_jobs(slurm)} == {"1"}
    assert "no other node has it" in performed.not_ready[0].detail
    assert client.open_arrays == []


def test_each_trouble_that_is_told_names_the_file_with_the_scripts_words(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, trouble="files", said="module: command not found")
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    (array,) = (slurm.shared / "arrays").iterdir()
    jobs = {job.attempt: job.id for job in array_jobs(slurm)}
    for attempt in ("1", "2", "3"):
        assert f"; see {array}/said.0.{attempt}.{jobs[attempt]}.txt" in client.told
    assert str(slurm.shared) not in performed.not_ready[0].detail  # what is kept has no paths of the site


def test_the_summary_says_what_a_job_came_to_and_sends_nobody_to_doctor(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, refuses="--gres")
    performed = Client(tmp_path / "1", slurm).run()
    entries = [Entry(cell=each.cell, excluded=each, evidence=Evidence.NONE) for each in performed.not_ready]
    line = headline(count_products(entries)[0])
    assert "could not be made ready (Batch job submission failed: Requested node configuration" in line
    assert "doctor" not in line


def test_an_image_that_cannot_be_had_is_told_at_once_and_tried_again_after_a_while(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True)
    client = Client(tmp_path / "1", slurm)
    client.run()
    assert client.told.index("no such tag; see") < client.told.index("attempt 2")
    assert f"it is fetched again in {PACE.again:g} s" in client.told
    assert len(imports(slurm)) == 3
    assert f"job {imports(slurm)[0].id} fetches its image" in client.told


def test_an_image_is_not_fetched_again_before_its_time(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True)
    client = Client(tmp_path / "1", slurm)
    images, version = client.remote.images, client.cells[0].version
    with client.remote.cluster.folder.lock():
        images.job_for(version)
        for _ in range(2):
            slurm.squeue([])
        slurm.finish_import()
    failed = images.failure(version)
    assert failed is not None
    assert not failed.lasting
    images.pace = type(PACE)(again=0.0)
    assert images.failure(version) is None


@pytest.mark.parametrize("adopted", [True, False])
def test_an_import_that_is_under_way_as_a_client_begins_is_the_first_of_three(
    adopted: bool, tmp_path: Path
) -> None:
    slurm = make_slurm(tmp_path, image_fails=True, lasts=3)
    first = Client(tmp_path / "1", slurm)
    if adopted:
        slurm.behind = leave_after_submitting(slurm, first)
        first.run()
        slurm.behind = nothing
    else:
        with first.remote.cluster.folder.lock():
            first.remote.images.job_for(first.cells[0].version)
    assert len(imports(slurm)) == 1
    performed = Client(tmp_path / "2", slurm).run("r1")
    assert len(imports(slurm)) == 3
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)


def test_imports_of_an_earlier_call_do_not_count(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True)
    Client(tmp_path / "1", slurm).run()
    slurm.image_fails = False
    performed = Client(tmp_path / "2", slurm).run("r1")
    assert cases_of(performed) == Counter(CASES)
    assert len(imports(slurm)) == 4


@pytest.mark.parametrize("says", ["manifest unknown", "no space left on device"])
def test_an_error_that_cannot_mend_itself_costs_one_import(says: str, tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True, image_says=says)
    client = Client(tmp_path / "1", slurm)
    performed = client.run()
    assert len(imports(slurm)) == 1
    assert says in performed.not_ready[0].detail
    assert {item.cell.case.id for item in performed.not_ready} == set(CASES)
    assert client.open_arrays == []
    assert len(client.told.split(says)) == 3  # as it fails, and with the cells
    Client(tmp_path / "2", slurm).run("r1")  # who asks again has mended something, perhaps
    assert len(imports(slurm)) == 2


def test_imports_that_slurm_did_not_answer_or_refused_are_no_tries_of_an_image(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, image_fails=True)
    client = Client(tmp_path / "1", slurm)
    images, version = client.remote.images, client.cells[0].version
    scripts = slurm.shared / "images"

    def have() -> None:
        with client.remote.cluster.folder.lock():
            images.job_for(version)

    for _ in range(3):
        slurm.before = lambda words: setattr(slurm, "away", int(words[0] == "sbatch"))
        with pytest.raises(SlurmAway):
            have()
    slurm.before = nothing
    assert len(list(scripts.glob("*.sh"))) == 3  # any of them may have come to a job
    slurm.refuses = "trtmatrix-import"
    with pytest.raises(Refused):
        have()
    slurm.refuses = ""
    assert len(list(scripts.glob("*.sh"))) == 3
    for lasting in (False, False, True):
        have()
        slurm.squeue([])
        slurm.squeue([])
        failed = images.failure(version)
        assert failed is not None
        assert failed.lasting is lasting
        images._failed = dict.fromkeys(images._failed, -images.pace.again)


def test_slurm_is_asked_once_for_the_imports_of_many_versions(tmp_path: Path) -> None:
    slurm = make_slurm(tmp_path, lasts=0)
    client = Client(tmp_path / "1", slurm)
    client.remote.images.pace = replace(PACE, settle=30.0)
    versions = [make_version(f"10.{number}.0") for number in range(8)]
    cells = [replace(client.cells[0], version=version) for version in versions]
    client.plan = make_plan(cells, client.remote.cluster.host, Selection(), Pull.ALL)
    client.remote._have_images(client.plan.launches * 2)  # as on two models of GPUs
    with client.remote.cluster.folder.lock():
        had = [client.remote.images.job_for(version) for version in versions]
    assert had == [job.id for job in imports(slurm)]
    called = [words[0] for words in slurm.called if "--json" not in words]
    assert called == ["squeue", *["sbatch"] * len(versions)]


def test_accounting_says_who_cancelled_a_job() -> None:
    text = (Path(__file__).parent / "slurm_json" / "22.05.8" / "sacct.json").read_text()
    by = {(job.state, job.by) for job in parse_sacct(text) if job.by}
    assert by == {("CANCELLED", "root")}
    (line,) = parse_sacct_lines("7_0|CANCELLED by 1000|0:0|n1|trtmatrix-k|\n")
    assert (line.state, line.by) == ("CANCELLED", "1000")
