"""What each of Slurm's words for a job's state means for whoever waits for the job."""

from __future__ import annotations

from collections.abc import Sequence

from trtmatrix.core.slurm.jobs import Phase

BASES = {
    "PENDING": Phase.WAITING, "RUNNING": Phase.RUNNING, "SUSPENDED": Phase.RUNNING,
    "COMPLETED": Phase.GONE, "CANCELLED": Phase.GONE, "FAILED": Phase.GONE, "TIMEOUT": Phase.GONE,
    "NODE_FAIL": Phase.GONE, "PREEMPTED": Phase.GONE, "BOOT_FAIL": Phase.GONE, "DEADLINE": Phase.GONE,
    "OUT_OF_MEMORY": Phase.GONE,
}  # fmt: skip
"""A job is in exactly one of these. Source: slurm.h's enum job_states, https://slurm.schedmd.com/job_state_codes.html."""

FLAGS = {
    "LAUNCH_FAILED": None, "GETENV_FAILED": None, "UPDATE_DB": None, "RECONFIG_FAIL": None,
    "REQUEUED": Phase.WAITING, "REQUEUE_HOLD": Phase.WAITING, "REQUEUE_FED": Phase.WAITING,
    "SPECIAL_EXIT": Phase.WAITING, "RESV_DEL_HOLD": Phase.WAITING,
    "CONFIGURING": Phase.WAITING, "POWER_UP_NODE": Phase.WAITING,
    "COMPLETING": Phase.RUNNING, "STAGE_OUT": Phase.RUNNING, "SIGNALING": Phase.RUNNING,
    "STOPPED": Phase.RUNNING, "RESIZING": Phase.RUNNING, "EXPEDITING": Phase.RUNNING,
    "REVOKED": Phase.GONE,
}  # fmt: skip
"""What may be added to a state, the same source; None says nothing. Lines show it in the state's place.

A completing job has ended, and what it started may be there still: it is not gone. One that is put back
into the queue keeps its id, and starts again.
"""


def phase_of(words: Sequence[str]) -> Phase:
    """Return the phase of a job with a state and its flags.

    A word that is not known, or none at all, is never taken for "gone": such a job is listed, after all, and
    leaves the list when it is over.
    """
    phases = {(BASES | FLAGS).get(word, Phase.RUNNING) for word in words}
    for phase in (Phase.WAITING, Phase.RUNNING, Phase.GONE):
        if phase in phases:
            return phase
    return Phase.RUNNING


def state_of(words: Sequence[str]) -> str:
    """Return the one word that stands for a state and its flags: the state, where it is told."""
    return next((word for word in words if word not in FLAGS), words[0] if words else "")
