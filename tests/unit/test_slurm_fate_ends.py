"""Whatever a site does: no cell runs twice at once, none is lost, and there is an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slurmtries import make_job, make_sent, make_task, make_try

from trtmatrix.core.slurm.fate import (
    RETRIES,
    SILENT_SECONDS,
    UNLISTED,
    Attempt,
    Bury,
    Fate,
    Over,
    Submit,
    Wait,
    decide,
)
from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.core.slurm.words import Trouble

STATES = ["NODE_FAIL", "CANCELLED", "PREEMPTED", "TIMEOUT", "COMPLETED", "FAILED", "OUT_OF_MEMORY", ""]


class World:
    """A site that does to each attempt what is drawn, and a client that does what is decided."""

    def __init__(self, cells: int, draw: Any) -> None:
        self.task, self._draw = make_task(cells), draw
        self.stubborn = draw(st.booleans())
        self._same: dict[str, Any] = {}
        self.attempts: list[Attempt] = []
        self.executed: dict[int, int] = dict.fromkeys(range(cells), 0)
        self.faulted: set[int] = set()

    def draw(self, strategy: Any) -> Any:
        """Draw what happens; a stubborn world does the same each time."""
        name = repr(strategy)
        if not self.stubborn:
            return self._draw(strategy)
        if name not in self._same:
            self._same[name] = self._draw(strategy)
        return self._same[name]

    def step(self) -> Fate:
        """Decide as one client, and again as another one that knows no more: the same."""
        fate = decide(self.task, self.attempts)
        assert fate == decide(self.task, list(self.attempts))
        faults = [fault.index for fault in fate.faults]
        assert len(faults) == len(set(faults))
        assert self.faulted <= set(faults)
        self.faulted = set(faults)
        match fate.step:
            case Submit() as submit:
                self.submit(submit)
            case Bury(attempt=number, state=state, reason=reason, node=node):
                assert number == self.attempts[-1].left.attempt
                self.change(gone=state, gone_why=reason, node=node)
            case Wait():
                self.happen()
            case Over():
                pass
        return fate

    def submit(self, submit: Submit) -> None:
        assert not self.faulted & set(submit.indices)
        recorded = {a.left.indices[n] for a in self.attempts for n in a.left.records}
        assert not recorded & set(submit.indices)
        lost = 0
        if submit.again:
            last = self.attempts.pop()
            left, lost = last.left, last.lost
            assert (left.attempt, left.indices, left.retry) == (submit.attempt, submit.indices, submit.retry)
        else:
            for earlier in self.attempts:  # nothing else may be running them
                assert earlier.left.published or earlier.left.gone
            assert submit.attempt == len(self.attempts) + 1
            assert set(submit.indices) == set(range(len(self.task))) - recorded - self.faulted
            left = make_try(submit.attempt, submit.indices, retry=submit.retry, why=submit.why)
        what = self.draw(st.sampled_from(["sent", "sent", "sent", "not answered"]))
        if self._draw(st.sampled_from([False, False, True])):  # a client that dies each time ends nothing
            what = "crash"
        sent = (
            None if what == "crash" else make_sent(attempt=submit.attempt, job="7" if what == "sent" else "")
        )
        self.attempts.append(Attempt(left=left, sent=sent, lost=lost))

    def happen(self) -> None:
        """Let something happen to the last attempt."""
        last = self.attempts[-1]
        if last.sent is not None and last.sent.is_open and not last.left.job:
            fate = self.draw(st.sampled_from(["found", "lost", "refused"]))
            if fate == "lost":
                self.attempts[-1] = replace(last, sent=None, lost=last.lost + 1)
            else:
                refused = {"job": "", "refused": "Invalid gres"}
                found: dict[str, Any] = {"job": "7"} if fate == "found" else refused
                self.attempts[-1] = replace(last, sent=replace(last.sent, **found))
            return
        if last.missing > 0 and last.left.seconds < SILENT_SECONDS:  # it ran, and was not listed
            self.change(seconds=99.0)
            return
        if last.left.published:  # it waits for Slurm to say who ended the job
            self.gone(self.draw(st.sampled_from(STATES)))
            return
        self.run(last)

    def run(self, last: Attempt) -> None:
        """Let the job run some cells, and end it in some way."""
        count = min(self.draw(st.integers(0, 6)), len(last.left.indices))
        cut = count < len(last.left.indices) and self.draw(st.booleans())
        done = frozenset(range(count))
        for n in done:
            self.executed[last.left.indices[n]] += 1
        ran = bool(done or cut)
        facts: dict[str, Any] = {"records": done, "started": done | ({count} if cut else set())}
        facts["job"] = "7" if ran else self.draw(st.sampled_from(["7", ""]))
        if facts["job"] and self.draw(st.sampled_from([True, False])):
            trouble = self.draw(st.sampled_from(["", *(word.value for word in Trouble)]))
            code = self.draw(st.sampled_from([0, 1, 137, None]))
            running = self.draw(st.sampled_from([0.0, 999.0]))
            facts.update(published=True, trouble=trouble, code=code, running=running)
        self.change(**facts)
        self.gone(self.draw(st.sampled_from(STATES)))

    def gone(self, state: str) -> None:
        node = self.draw(st.sampled_from(["n1", "n2", "n3"])) if self.attempts[-1].left.job else ""
        node = node or self.draw(st.sampled_from(["", "n1"]))
        job = make_job(Phase.GONE, state, node=node) if state else None
        seconds = self._draw(st.sampled_from([0.0, 99.0]))
        self.attempts[-1] = replace(self.attempts[-1], job=job, missing=99.0)
        self.change(seconds=seconds)

    def change(self, **facts: Any) -> None:
        last = self.attempts[-1]
        self.attempts[-1] = replace(last, left=replace(last.left, **facts))


@given(cells=st.integers(1, 6), data=st.data())
@settings(max_examples=400, deadline=None)
def test_no_cell_runs_twice_none_is_lost_and_there_is_an_end(cells: int, data: Any) -> None:
    world = World(cells, data.draw)
    for _ in range(100):
        fate = world.step()
        if isinstance(fate.step, Over):
            break
    else:
        raise AssertionError("there is no end")
    recorded = {a.left.indices[n] for a in world.attempts for n in a.left.records}
    faulted = {fault.index for fault in fate.faults}
    left = set(fate.step.left)
    assert recorded | faulted | left == set(range(cells))
    assert len(recorded) + len(faulted) + len(left) == cells
    assert all(count <= 1 for count in world.executed.values())
    assert sum(attempt.left.retry for attempt in world.attempts) <= RETRIES
    assert not left or fate.step.why
    assert len(world.attempts) <= cells + RETRIES + 1
    assert all(attempt.lost <= RETRIES + 1 for attempt in world.attempts)


def test_unlisted_is_no_state_of_slurms() -> None:
    assert UNLISTED not in STATES
