"""Reads what ``squeue --json`` and ``sacct --json`` of any release say of jobs.

Each release has a shape of its own (fixtures: tests/unit/slurm_json). A state is a word or a list of words;
a number is plain, or ``{"set", "infinite", "number"}``. Fields that are not known are left alone; those that
are missing are told as not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.states import phase_of, state_of
from trtmatrix.core.slurm.tasks import Tasks, parse_tasks


class UnreadableError(ValueError):
    """What a command of Slurm's wrote is not what it is known to write."""


class TroubledError(UnreadableError):
    """A list of jobs tells of errors: it may be empty for that reason alone.

    squeue of 22.05 ends with exit code 0, no jobs and such an error where the controller does not answer.
    """


def parse_squeue(text: str, *, user: int | None = None) -> list[JobStatus]:
    """Return the jobs of ``squeue --json``, each task of an array by itself.

    ``user``: only jobs of that uid; some releases list everybody's whatever they are asked. A status of an
    array without a task stands for those tasks of it that are not listed (see :func:`find_task`).
    ``UnreadableError`` where it is no such list, ``TroubledError`` where errors stand in it.
    """
    return [
        status for job in _jobs(text)
        if user is None or _number(job.get("user_id")) in {user, None}
        for status in _queued(job)
    ]  # fmt: skip


def parse_sacct(text: str) -> list[JobStatus]:
    """Return the jobs of ``sacct --json``; their steps are left out. ``UnreadableError`` as above."""
    return [status for job in _jobs(text) for status in _accounted(job)]


def find_task(jobs: list[JobStatus], job: str, task: int | None) -> JobStatus | None:
    """Return what is said of a task; of several entries the one that is the least over.

    A federation, and a job that was put back into the queue, have more than one. An entry of the array
    without a task stands for the tasks that have none of their own.
    """
    own = [status for status in jobs if status.job == job and status.task == task]
    rest = [status for status in jobs if status.job == job and status.task is None]
    order = (Phase.RUNNING, Phase.WAITING, Phase.GONE)
    return min(own or rest, key=lambda status: order.index(status.phase), default=None)


def _jobs(text: str) -> list[Mapping[str, Any]]:
    """Return the objects under ``jobs``; what stands before the first brace (a warning) is skipped."""
    start = text.find("{")
    try:
        data, _ = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"no JSON: {error}") from error
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list):
        raise UnreadableError(f"no list of jobs, but {_errors(data) or text.strip()[:200]!r}")
    if errors := _errors(data):
        raise TroubledError(f"a list of jobs with errors: {errors}")
    return [job for job in jobs if isinstance(job, dict)]


def _errors(data: object) -> str:
    errors = data.get("errors") if isinstance(data, dict) else None
    return "; ".join(str(error)[:200] for error in errors[:3]) if isinstance(errors, list) else ""


def _queued(job: Mapping[str, Any]) -> Iterator[JobStatus]:
    """Yield the statuses of an entry of squeue: several where tasks that wait are told together."""
    array, alone = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    waiting = _text(job.get("array_task_string"))
    words = _words(job.get("job_state"))
    fields = {
        **_common(job, words), "node": _text(job.get("nodes")) or _text(job.get("batch_host")),
        # As squeue writes it in lines: what is known beyond the code, where there is something.
        "reason": _reason(job.get("state_description")) or _reason(job.get("state_reason")),
        "comment": _text(job.get("comment")),
    }  # fmt: skip
    yield from _each(array, _number(job.get("job_id")), alone, waiting, fields)


def _accounted(job: Mapping[str, Any]) -> Iterator[JobStatus]:
    """Yield the statuses of an entry of sacct."""
    array, state, comment = (_object(job.get(name)) for name in ("array", "state", "comment"))
    alone = _number(array.get("task_id"))
    waiting = _text(array.get("task"))
    if alone is None:  # releases before 23.02 have one field for both
        alone = _number(array.get("task"))
    fields = {
        **_common(job, _words(state.get("current"))), "node": _text(job.get("nodes")),
        "reason": _reason(state.get("reason")), "comment": _text(comment.get("job")),
        "by": _text(job.get("kill_request_user")),
    }  # fmt: skip
    yield from _each(_number(array.get("job_id")), _number(job.get("job_id")), alone, waiting, fields)


def _each(
    array: int | None, own: int | None, task: int | None, waiting: str, fields: dict[str, Any]
) -> Iterator[JobStatus]:
    """Yield one status a task; an entry without any id says nothing."""
    job = array or own
    if not job:
        return
    if not array:
        yield JobStatus(job=str(job), task=None, **fields)
        return
    tasks = Tasks(numbers=(task,)) if task is not None else parse_tasks(waiting)
    for number in tasks.numbers:
        yield JobStatus(job=str(job), task=number, **fields)
    if not tasks.whole:
        yield JobStatus(job=str(job), task=None, **fields)


def _common(job: Mapping[str, Any], words: tuple[str, ...]) -> dict[str, Any]:
    return {"phase": phase_of(words), "state": state_of(words), "name": _text(job.get("name"))}


def _number(value: object) -> int | None:
    """Return a number that is plain or wrapped; None for one that is not set, endless or no number."""
    if isinstance(value, dict):
        known = value.get("set", True) is True and value.get("infinite", False) is False
        value = value.get("number") if known else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _words(value: object) -> tuple[str, ...]:
    """Return a state's words without decoration: ``CANCELLED by 0``, ``CANCELLED+``."""
    items = value if isinstance(value, list) else [value]
    found = (item.split()[0].rstrip("+").upper() for item in items if isinstance(item, str) and item.split())
    return tuple(word for word in found if word)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _reason(value: object) -> str:
    """Return why a job waits or ended; Slurm writes ``None`` for nothing."""
    text = _text(value)
    return "" if text == "None" else text
