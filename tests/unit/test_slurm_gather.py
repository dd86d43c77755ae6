"""What is known of attempts: the folder, the submissions, and Slurm's lists one after another."""

from __future__ import annotations

from slurmtries import make_job, make_sent, make_try

from trtmatrix.core.slurm.gather import Sightings, attempts_of, find_job
from trtmatrix.core.slurm.jobs import JobStatus, Phase


def named(job: str, comment: str = "") -> JobStatus:
    return JobStatus(job=job, task=0, phase=Phase.WAITING, name="trtmatrix-k1", comment=comment)


def test_a_list_from_before_a_job_was_submitted_says_nothing_of_it() -> None:
    seen = Sightings()
    seen.look([], 1.0)
    assert seen.of("7", 0, now=2.0) == (None, -1.0)
    seen.look([], 1.5)
    assert seen.of("7", 0, now=3.0) == (None, -1.0)
    seen.look([], 4.0)
    assert seen.of("7", 0, now=5.0) == (None, 0.0)
    seen.look([], 34.0)
    assert seen.of("7", 0, now=35.0) == (None, 30.0)


def test_a_job_that_is_listed_again_was_never_gone() -> None:
    seen = Sightings()
    seen.of("7", 0, now=0.0)
    seen.look([], 1.0)
    seen.look([make_job()], 9.0)
    assert seen.of("7", 0, now=10.0) == (make_job(), -1.0)
    seen.look([], 20.0)
    assert seen.of("7", 0, now=20.0) == (None, 0.0)


def test_how_a_job_ended_is_kept_when_slurm_forgets_it() -> None:
    seen = Sightings()
    ended = make_job(Phase.GONE, "NODE_FAIL")
    seen.of("7", 0, now=0.0)
    seen.look([ended], 1.0)
    seen.look([], 31.0)
    assert seen.of("7", 0, now=32.0) == (ended, 30.0)


def test_an_array_that_waits_speaks_for_its_tasks() -> None:
    seen = Sightings()
    array = JobStatus(job="7", task=None, phase=Phase.WAITING, reason="Priority")
    assert seen.of("7", 3, now=0.0)[0] is None
    seen.look([array, make_job()], 1.0)
    assert seen.of("7", 3, now=1.0) == (array, -1.0)


def test_an_attempt_has_the_last_submission_that_was_not_lost() -> None:
    lost = make_sent(1, job="", lost=True)
    kept = make_sent(2, job="8")
    other = make_sent(3, attempt=2, job="9")
    seen = Sightings()
    first, second, third = attempts_of(
        0, [make_try(3), make_try(2, retry=True), make_try(1)], [lost, kept, other], seen, 0.0
    )
    assert (first.sent, first.lost) == (kept, 1)
    assert (second.sent, second.lost) == (other, 0)
    assert (third.sent, third.lost) == (None, 0)


def test_the_job_that_ran_is_looked_for_whatever_was_noted() -> None:
    seen = Sightings()
    left = make_try(job="7")
    attempts_of(0, [left], [make_sent(job="8")], seen, 0.0)
    seen.look([make_job()], 1.0)
    (attempt,) = attempts_of(0, [left], [make_sent(job="8")], seen, 1.0)
    assert attempt.job == make_job()


def test_a_submission_that_was_not_noted_is_found_by_its_comment() -> None:
    jobs = [
        named("7", "trtmatrix=k1 sent=1"),
        named("8", "trtmatrix=k1 sent=12"),
        named("9", "trtmatrix=k1 sent=2 x=y"),
    ]
    assert find_job("k1", make_sent(2, job=""), jobs) == "9"
    assert find_job("k1", make_sent(3, job=""), jobs) == ""
    assert find_job("k2", make_sent(2, job=""), jobs) == ""
    assert find_job("k1", make_sent(2, job=""), jobs, claimed={"9"}) == ""


def test_where_comments_are_not_shown_the_only_job_that_nobody_claims_is_it() -> None:
    assert find_job("k1", make_sent(2, job=""), [named("7"), named("8")], claimed={"7"}) == "8"
    assert find_job("k1", make_sent(2, job=""), [named("7"), named("8")]) == ""
