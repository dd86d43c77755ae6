"""Why Slurm would not have a job, by its own words, and what mends that."""

from __future__ import annotations

import re

_GRES = 'what the nodes have: sinfo -o "%P %G %f %N"; correct gres, constraint and partition of the site file'
_ACCOUNT = "yours: sacctmgr show assoc user=$USER format=account,partition,qos; correct the site file"
_TIME = 'what partitions allow: sinfo -o "%P %l"; lower limits.minutes of the site file'
_ARRAY = "scontrol show config | grep -E 'MaxArraySize|MaxJobCount'; lower limits.tasks of the site file"
_MEMORY = 'what the nodes have: sinfo -o "%P %c %m %N"; lower limits.cpus and limits.memory of the site file'
_LIMITS = "a limit of yours: sacctmgr show qos; sacctmgr show assoc; lower limits.tasks or limits.minutes"
_OPTIONS = "correct options of the site file: man sbatch"

REMEDIES = (
    ("invalid generic resource", _GRES),
    ("invalid gres", _GRES),
    ("invalid feature", _GRES),
    ("invalid partition", 'the partitions: sinfo -o "%P %a %l %G"; correct partition of the site file'),
    ("invalid account", _ACCOUNT),
    ("invalid qos", _ACCOUNT),
    ("accounting/qos policy", _LIMITS),
    ("group not permitted", 'who may use a partition: scontrol show partition; correct the site file'),
    ("job array", _ARRAY),
    ("job queue full", _ARRAY),
    ("time limit", _TIME),
    ("memory specification", _MEMORY),
    ("cpu count", _MEMORY),
    ("more processors requested", _MEMORY),
    ("node count specification", _MEMORY),
    ("dependency", "the job that it waits for is gone: run again"),
    ("unrecognized option", _OPTIONS),
    ("invalid option", _OPTIONS),
    ("unable to open", "the shared folder must be readable here: trtmatrix doctor --executor slurm"),
    ("requested node configuration is not available", _GRES),  # also the last line of what is told above
    ("permission", "may you submit here? sacctmgr show assoc user=$USER; scontrol show partition"),
)  # fmt: skip
"""Parts of Slurm's messages in lower case, and the remedy.

Source: slurm_errno.c (https://github.com/SchedMD/slurm), and what sbatch of several releases was seen to say.
"""

AWAY = (
    "unable to contact slurm controller", "socket timed out", "connection refused", "connection timed out",
    "zero bytes were transmitted", "transport endpoint is not connected", "connection reset",
    "in standby mode", "no route to host", "unable to connect to", "munge encode failed",
    "protocol authentication error", "unable to establish", "connection failure",
    "network is unreachable", "no error", "socket error", "failed to access \"/",
)  # fmt: skip
"""Parts of messages of a controller that does not answer now, and may later. The same source."""


FULL = (
    "job queue full", "temporarily unable to accept", "job creation temporarily disabled",
    "unable to create job record", "resource temporarily unavailable",
)  # fmt: skip
"""Parts of messages of a controller that has as many jobs as it takes now (MaxJobCount), or as many requests.

The same source, and sbatch.c there: sbatch tries 15 times, says the first time why, and at last what is wrong
by then.
"""

FEWER = (
    "it is tried again until Slurm takes it; fewer jobs at once: lower limits.tasks of the site file, or "
    "wait for others of yours to end: squeue --me"
)
"""What is to be done where Slurm has enough jobs for now."""

_LIMIT = re.compile(r"\b(?:Assoc|QOS)[A-Z]\w+")
"""A reason of Slurm's, which sbatch writes before a limit's refusal: AssocMaxSubmitJobLimit,
QOSMaxSubmitJobPerUserLimit. Source: https://slurm.schedmd.com/job_reason_codes.html."""


def is_full(message: str) -> bool:
    """Whether a message says that the controller has no room for more jobs now, whoever's they are."""
    low = message.lower()
    return any(words in low for words in FULL)


def is_limit_of_jobs(message: str) -> bool:
    """Whether a message says that there are too many jobs of an account or a user now.

    Where no reason is told, one sentence stands for limits of jobs' number, size and time.
    """
    if reasons := _LIMIT.findall(message):
        return any("SubmitJob" in reason for reason in reasons)
    return "accounting/qos policy (job submit limit" in message.lower()


def remedy_of(message: str) -> str:
    """Return what mends a refusal."""
    low = message.lower()
    known = (remedy for words, remedy in REMEDIES if words in low)
    return next(known, "what this host says of the site: trtmatrix doctor --executor slurm")


def is_away(message: str) -> bool:
    """Whether a message says that the controller did not answer, rather than that it refused."""
    low = message.lower()
    return any(words in low for words in AWAY)
