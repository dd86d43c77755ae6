"""What becomes of a task, by what its attempts left and what Slurm says of their jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from slurmtries import make_job, make_sent, make_task, make_try, sent_attempt

from trtmatrix.core.model import Cause
from trtmatrix.core.slurm.fate import (
    RETRIES,
    UNLISTED,
    Attempt,
    Bury,
    Fate,
    Over,
    Step,
    Submit,
    Wait,
    decide,
)
from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.core.slurm.words import Trouble

TASK = make_task(3)
HAD_ONE: dict[str, Any] = {"records": {0}, "started": {0, 1}, "job": "7", "node": "n1"}
"""The first cell is done, the second was running."""
DIED: dict[str, Any] = {"published": True, "code": 1}


def of(*lefts: Any, **more: Any) -> Fate:
    return decide(TASK, [sent_attempt(left) for left in lefts], **more)


def test_a_new_task_is_submitted_whole() -> None:
    assert decide(TASK, []) == Fate(step=Submit(attempt=1, indices=(0, 1, 2)))


def test_a_task_is_over_once_every_cell_has_a_record() -> None:
    assert of(make_try(records={0, 1, 2}, started={0, 1, 2}, published=True, code=0)).step == Over()


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("left", [{}, HAD_ONE, {"records": {0, 1, 2}, "job": "7"}])
@pytest.mark.parametrize("missing", [-1.0, 29.0, 30.0])
def test_while_slurm_has_a_job_it_is_waited_for(phase: Phase, left: Any, missing: float) -> None:
    attempt = sent_attempt(make_try(**left), make_job(phase, reason="why", node="n1"), missing)
    step = decide(TASK, [attempt]).step
    if phase is not Phase.GONE:
        assert step == Wait(why="why")
    elif len(left.get("records", ())) == 3:
        assert step == Over()
    elif missing < 30.0:
        assert step == Wait(why="the job has ended")
    else:
        assert step == Bury(attempt=1, state="COMPLETED", reason="why", node="n1")


def test_what_was_published_is_believed_whatever_slurm_says_of_the_job() -> None:
    left = make_try(**HAD_ONE, **DIED)
    for phase in Phase:
        fate = decide(TASK, [sent_attempt(left, make_job(phase), 0.0)])
        assert isinstance(fate.step, Submit)
        assert [fault.index for fault in fate.faults] == [1]


def test_a_job_that_slurm_does_not_list_is_waited_for_before_it_is_buried() -> None:
    left = make_try(**HAD_ONE, seconds=60.0)
    assert decide(TASK, [sent_attempt(left, None, 29.0)]).step == Wait(why="the job has ended")
    buried = decide(TASK, [sent_attempt(left, None, 30.0)]).step
    assert buried == Bury(attempt=1, state=UNLISTED, node="n1")


@pytest.mark.parametrize("job", [None, make_job(Phase.GONE, UNLISTED)])
@pytest.mark.parametrize("stopping", [False, True])
def test_a_job_that_slurm_does_not_list_is_not_buried_while_its_script_lives(
    job: Any, stopping: bool
) -> None:
    for seconds, step in ((59.0, Wait), (60.0, Bury)):
        left = make_try(**HAD_ONE, seconds=seconds)
        assert isinstance(decide(TASK, [sent_attempt(left, job, 999.0)], stopping=stopping).step, step)


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "COMPLETED"])
def test_a_job_that_slurm_says_has_ended_is_buried_whatever_was_heard_of_it_last(state: str) -> None:
    attempt = sent_attempt(make_try(**HAD_ONE, seconds=1.0), make_job(Phase.GONE, state), 30.0)
    assert decide(TASK, [attempt]).step == Bury(attempt=1, state=state)


def test_a_job_that_slurm_does_not_list_and_that_never_began_is_buried() -> None:
    assert isinstance(decide(TASK, [sent_attempt(make_try(), None, 30.0)]).step, Bury)


def test_a_job_that_was_never_asked_for_is_not_gone() -> None:
    attempt = sent_attempt(make_try(), None, -1.0)
    for stopping in (False, True):
        assert isinstance(decide(TASK, [attempt], settle=0.0, stopping=stopping).step, Wait)


@pytest.mark.parametrize(
    ("job", "step"),
    [
        (
            {"reason": "DependencyNeverSatisfied"},
            Bury(attempt=1, state="CANCELLED", reason="DependencyNeverSatisfied", cancel=True),
        ),
        (
            {"reason": "(user env retrieval failed requeued held)"},
            Bury(
                attempt=1,
                state="LAUNCH_FAILED",
                reason="(user env retrieval failed requeued held)",
                cancel=True,
            ),
        ),
        (
            {"reason": "JobHoldMaxRequeue"},
            Bury(attempt=1, state="LAUNCH_FAILED", reason="JobHoldMaxRequeue", cancel=True),
        ),
        ({"reason": "JobHeldAdmin"}, Wait(why="JobHeldAdmin")),
        (
            {"reason": "launch failed requeued held"},
            Bury(attempt=1, state="LAUNCH_FAILED", reason="launch failed requeued held", cancel=True),
        ),
        ({"state": "SPECIAL_EXIT"}, Bury(attempt=1, state="LAUNCH_FAILED", cancel=True)),
        ({"reason": "JobHeldUser"}, Wait(why="JobHeldUser")),
    ],
)
def test_a_job_that_will_never_run_is_cancelled_and_buried(job: Any, step: Step) -> None:
    assert decide(TASK, [sent_attempt(make_try(), make_job(Phase.WAITING, **job))]).step == step


# Submissions.


def test_an_attempt_that_no_sbatch_had_is_submitted_as_it_stands() -> None:
    left = make_try(2, (2, 0), retry=True, why="NODE_FAIL")
    first = make_try(**HAD_ONE, gone="NODE_FAIL")
    step = decide(TASK, [sent_attempt(first), Attempt(left=left)]).step
    assert step == Submit(attempt=2, indices=(2, 0), again=True, retry=True, why="NODE_FAIL", avoid=("n1",))


def test_sbatch_that_has_not_answered_is_waited_for() -> None:
    attempt = Attempt(left=make_try(), sent=make_sent(job=""), missing=99.0)
    assert decide(TASK, [attempt]).step == Wait(why="sbatch has not answered")


def test_what_ran_was_submitted_whatever_is_noted() -> None:
    for sent in (None, make_sent(job="")):
        attempt = Attempt(left=make_try(**HAD_ONE), sent=sent, job=make_job(reason="r"))
        assert decide(TASK, [attempt]).step == Wait(why="r")


def test_what_sbatch_refuses_is_not_run_and_not_recorded() -> None:
    attempt = Attempt(left=make_try(), sent=make_sent(job="", refused="Invalid gres"))
    assert decide(TASK, [attempt]) == Fate(step=Over(left=(0, 1, 2), why="Invalid gres"))


def test_submissions_that_get_lost_are_not_repeated_for_ever() -> None:
    assert isinstance(decide(TASK, [Attempt(left=make_try(), lost=RETRIES)]).step, Submit)
    step = decide(TASK, [Attempt(left=make_try(), lost=RETRIES + 1)]).step
    assert isinstance(step, Over)
    assert step.left == (0, 1, 2)


# How attempts end.


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"code": 139}, Cause.PROBE_FAILED),
        ({"code": 0}, Cause.PROBE_FAILED),
        ({"code": None}, Cause.PROBE_FAILED),
        ({"code": 137}, Cause.INTERRUPTED),
        ({"code": 137, "oom": True}, Cause.OUT_OF_HOST_MEMORY),
    ],
)
def test_the_cell_that_took_the_container_down_is_data_and_the_rest_goes_on(end: Any, cause: Cause) -> None:
    fate = of(make_try(**HAD_ONE, published=True, log="the log", **end))
    (fault,) = fate.faults
    assert (fault.index, fault.cause, fault.attempt) == (1, cause, 1)
    assert "the log" in fault.detail
    assert fate.step == Submit(attempt=2, indices=(2,))


def test_a_container_that_ended_between_two_cells_goes_on_and_that_is_no_retry() -> None:
    fate = of(make_try(**DIED, records={0}, started={0}))
    assert fate == Fate(step=Submit(attempt=2, indices=(1, 2), why="the probe ended with code 1"))


def test_a_probe_that_does_not_start_is_trouble() -> None:
    fate = of(make_try(**DIED, log="no python3", node="n1"))
    assert isinstance(fate.step, Submit)
    assert fate.step.retry
    assert fate.step.avoid == ("n1",)
    assert "no python3" in fate.step.why


def test_a_probe_that_had_no_sign_of_life_is_nobodys_fault() -> None:
    left = make_try(records={0}, started={0, 1}, interrupted={1}, **DIED)
    fate = of(left)
    assert fate.faults == ()
    assert isinstance(fate.step, Submit)
    assert fate.step.indices == (2, 1)


def retried(trouble: Trouble) -> bool:
    match trouble:
        case Trouble.CANCELLED:
            return False
        case Trouble.IMAGE | Trouble.GPU | Trouble.RUNTIME | Trouble.FILES | Trouble.TIME | Trouble.SETUP:
            return True


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("some", [False, True])
def test_trouble_is_retried_and_given_up_after_two_retries(trouble: Trouble, some: bool) -> None:
    ended: dict[str, Any] = {"published": True, "trouble": trouble.value, "detail": "what", "node": "n1"}
    if trouble is Trouble.CANCELLED:
        ended["gone"] = "CANCELLED"
    had: dict[str, Any] = {"records": {0}, "started": {0, 1}} if some else {}
    fate = of(make_try(**ended, **had))
    assert isinstance(fate.step, Submit) == retried(trouble)
    if isinstance(fate.step, Submit):
        assert fate.faults == ()
        assert fate.step.indices == ((2, 1) if some else (0, 1, 2))
        assert fate.step.retry == (not (trouble is Trouble.TIME and some))
        assert fate.step.avoid == (() if trouble is Trouble.TIME else ("n1",))
    rest = tuple(range(len(had.get("records", ())), 3))
    tries = [make_try(**ended, **had)]
    tries += [make_try(n, rest, retry=True, **ended) for n in (2, 3)]
    fate = of(*tries)
    assert fate.step == Over()
    assert {fault.index for fault in fate.faults} == set(rest)
    causes = {Trouble.IMAGE: Cause.IMAGE_MISSING, Trouble.CANCELLED: Cause.INTERRUPTED}
    assert {fault.cause for fault in fate.faults} == {causes.get(trouble, Cause.LAUNCHER_FAILED)}


@pytest.mark.parametrize(
    "state",
    ["NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "FAILED", "COMPLETED", "PREEMPTED", "TIMEOUT", "DEADLINE",
     "OUT_OF_MEMORY", "REVOKED", UNLISTED, "A_NEW_ONE"],
)  # fmt: skip
def test_a_job_that_is_gone_without_a_word_is_retried(state: str) -> None:
    fate = of(make_try(job="7", node="n1", gone=state))
    assert fate.faults == ()
    assert isinstance(fate.step, Submit)
    assert (fate.step.attempt, fate.step.indices, fate.step.retry) == (2, (0, 1, 2), True)
    assert fate.step.avoid == (() if state in {"PREEMPTED", "TIMEOUT", "DEADLINE"} else ("n1",))


def test_what_somebody_cancels_is_not_retried() -> None:
    for left in (make_try(gone="CANCELLED"), make_try(gone="CANCELLED", **HAD_ONE)):
        fate = of(left)
        assert fate.step == Over()
        assert {fault.cause for fault in fate.faults} == {Cause.INTERRUPTED}
        assert len(fate.faults) == 3 - len(left.records)


def test_a_job_that_is_cancelled_on_its_node_before_it_starts_is_tried_elsewhere() -> None:
    step = of(make_try(gone="CANCELLED", gone_why="Prolog error", node="n1")).step
    why = "the launch failed on n1; Slurm: Prolog error"
    assert step == Submit(attempt=2, indices=(0, 1, 2), retry=True, why=why, avoid=("n1",))
    published = of(make_try(gone="CANCELLED", node="n1", published=True, trouble="cancelled"))
    assert published.step == Over()


def test_a_node_whose_gpu_is_another_model_is_of_no_use_at_all() -> None:
    ended: dict[str, Any] = {"published": True, "trouble": "gpu", "job": "7"}
    task = [replace(asked, cell=replace(asked.cell, gpu="nvidia-l4")) for asked in TASK]
    other = make_try(node="n1", gpu="NVIDIA H200, GPU-1", **ended)
    broken = make_try(2, retry=True, node="n2", **ended)
    right = make_try(2, retry=True, node="n2", gpu="NVIDIA L4, GPU-1", **ended)
    for second in (broken, right):
        step = decide(task, [sent_attempt(other), sent_attempt(second)]).step
        assert isinstance(step, Submit)
        assert (step.avoid, step.unfit) == (("n1", "n2"), ("n1",))
    unsent = decide(task, [sent_attempt(other), Attempt(left=make_try(2, retry=True))]).step
    assert isinstance(unsent, Submit)
    assert (unsent.again, unsent.unfit) == (True, ("n1",))


def test_who_ended_a_job_is_asked_of_slurm() -> None:
    left = make_try(**HAD_ONE, published=True, trouble="cancelled")
    asked = decide(TASK, [sent_attempt(left, make_job(Phase.GONE, "PREEMPTED"), 30.0)]).step
    assert asked == Bury(attempt=1, state="PREEMPTED")
    preempted = of(make_try(**HAD_ONE, published=True, trouble="cancelled", gone="PREEMPTED"))
    assert isinstance(preempted.step, Submit)
    assert not preempted.step.retry  # it came further
    unknown = of(make_try(**HAD_ONE, published=True, trouble="cancelled", gone=UNLISTED))
    assert [fault.cause for fault in unknown.faults] == [Cause.INTERRUPTED] * 2


def test_an_image_that_was_not_had_is_retried_and_then_missing() -> None:
    never: dict[str, Any] = {"gone": "CANCELLED", "gone_why": "(DependencyNeverSatisfied)"}
    assert isinstance(of(make_try(**never)).step, Submit)
    fate = of(make_try(**never), *(make_try(n, retry=True, **never) for n in (2, 3)))
    assert {fault.cause for fault in fate.faults} == {Cause.IMAGE_MISSING}


def test_a_cell_that_was_long_over_its_own_limit_is_data_at_slurms_limit() -> None:
    late = {**HAD_ONE, "published": True, "trouble": "time"}
    (fault,) = of(make_try(**late, running=331.0)).faults
    assert (fault.index, fault.cause) == (1, Cause.PROBE_FAILED)
    assert of(make_try(**late, running=330.0)).faults == ()


def test_a_cell_that_ran_when_the_job_ran_out_of_memory_is_data() -> None:
    (fault,) = of(make_try(**HAD_ONE, gone="OUT_OF_MEMORY")).faults
    assert (fault.index, fault.cause) == (1, Cause.OUT_OF_HOST_MEMORY)


def test_cells_that_were_cut_short_come_last_ever_after() -> None:
    task = make_task(4)
    first = make_try(1, (0, 1, 2, 3), started={0}, gone="NODE_FAIL")
    second = make_try(2, (1, 2, 3, 0), records={0}, started={0, 1}, gone="NODE_FAIL", retry=True)
    step = decide(task, [sent_attempt(first), sent_attempt(second)]).step
    assert isinstance(step, Submit)
    assert step.indices == (3, 0, 2)


def test_a_record_that_arrives_after_all_takes_the_fault_away() -> None:
    died = make_try(**HAD_ONE, **DIED)
    second = make_try(2, (2, 1), records={1}, started={1})
    assert of(died, second).faults == ()


# Stopping.


def test_nothing_is_submitted_where_a_client_stops_the_array() -> None:
    assert decide(TASK, [], stopping=True).step == Over(left=(0, 1, 2))
    assert decide(TASK, [Attempt(left=make_try())], stopping=True).step == Over(left=(0, 1, 2))
    died = of(make_try(**HAD_ONE, **DIED), stopping=True)
    assert died.step == Over(left=(2,))
    assert [fault.index for fault in died.faults] == [1]
    ended = of(make_try(**HAD_ONE, gone="CANCELLED"), stopping=True)
    assert ended == Fate(step=Over(left=(1, 2)))


def test_a_job_that_is_being_cancelled_is_waited_for_until_slurm_has_it_no_more() -> None:
    left = make_try(**HAD_ONE)
    assert isinstance(decide(TASK, [sent_attempt(left, make_job())], stopping=True).step, Wait)
    gone = sent_attempt(left, make_job(Phase.GONE, "CANCELLED"), 0.0)
    assert decide(TASK, [gone], stopping=True).step == Bury(attempt=1, state="CANCELLED")
