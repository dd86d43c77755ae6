"""Reads jobs as lines of squeue and sacct, where these have no JSON (before 21.08, or built without it)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.parse import UnreadableError
from trtmatrix.core.slurm.states import phase_of
from trtmatrix.core.slurm.tasks import Tasks, parse_tasks

SQUEUE_FORMAT = "%F|%K|%T|%U|%r|%N|%j|%k"
"""Job of the array, tasks, state, uid, reason, nodes, name, comment. Source: man squeue."""
SACCT_FORMAT = "JobID,State,ExitCode,NodeList,JobName,Comment"
"""With ``--parsable2 --noheader --allocations``; the code is passed over. Source: man sacct."""

_QUEUED = re.compile(r"(\d+)\|([^|]*)\|([^|]+)\|(\d*)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)")
_ACCOUNTED = re.compile(r"(\d+)(?:_([^|]+))?\|([^|]+)\|\d*:?\d*\|([^|]*)\|([^|]*)\|?(.*)")
_ABSENT = frozenset({"", "N/A", "(null)", "None", "None assigned"})


def parse_squeue_lines(text: str, *, user: int | None = None) -> list[JobStatus]:
    """Return the jobs of ``squeue --noheader --format=SQUEUE_FORMAT``, each task of an array by itself.

    ``user``: only jobs of that uid. ``UnreadableError`` where no line is one.
    """
    found = list[JobStatus]()
    for line in _matching(_QUEUED, text):
        job, tasks, state, uid, reason, node, name, comment = line.groups()
        if user is not None and uid and int(uid) != user:
            continue
        phase, word = _phase(state)
        found += [
            JobStatus(
                job=job, task=task, phase=phase, state=word, reason=_plain(reason), node=_plain(node),
                name=name, comment=_plain(comment),
            )
            for task in _tasks(_plain(tasks))
        ]  # fmt: skip
    return found


def parse_sacct_lines(text: str) -> list[JobStatus]:
    """Return the jobs of ``sacct --format=SACCT_FORMAT`` as lines; ``UnreadableError`` as above."""
    found = list[JobStatus]()
    for line in _matching(_ACCOUNTED, text):
        job, tasks, state, node, name, comment = line.groups()
        phase, word = _phase(state)
        found += [
            JobStatus(
                job=job, task=task, phase=phase, state=word, node=_plain(node), name=name,
                comment=_plain(comment), by=state.partition(" by ")[2].strip(),
            )
            for task in _tasks(_plain(tasks or ""))
        ]  # fmt: skip
    return found


def _matching(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the lines of a pattern; others (a warning) are left out, unless all are."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = [match for line in lines if (match := pattern.fullmatch(line.strip()))]
    if lines and not found:
        raise UnreadableError(f"no line of jobs, but {lines[0][:200]!r}")
    yield from found


def _phase(state: str) -> tuple[Phase, str]:
    word = (state.split() or [""])[0].rstrip("+").upper()
    return phase_of((word,) if word else ()), word


def _tasks(text: str) -> list[int | None]:
    """Return the tasks of an entry; None for a job that is no array's, and for tasks that cannot be told."""
    if not text:
        return [None]
    tasks: Tasks = parse_tasks(text)
    return [*tasks.numbers, *([] if tasks.whole else [None])]


def _plain(text: str) -> str:
    return "" if text.strip() in _ABSENT else text.strip()
