"""What a value in slurm.yaml must be, rule by rule: sizes, times, paths, GPUs, words for sbatch. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

GPU_COUNT = re.compile(
    r"gpu(?::(?P<type>[A-Za-z0-9_.+-]+(?=:)|[A-Za-z_][A-Za-z0-9_.+-]*))?(?::(?P<count>[0-9]+))?"
)
"""How sbatch writes GPUs: ``gpu``, ``gpu:h200``, ``gpu:2``, ``gpu:3090:1``.

What begins with a digit is a type where a number follows it, and else a number itself: Slurm 22.05 takes
``gpu:2080ti:1``, and refuses ``gpu:2080ti``. Source: https://slurm.schedmd.com/sbatch.html (``--gres``).
"""
MIG_PROFILE = re.compile(r"(?:.*[^A-Za-z0-9])?[0-9]+g\.[0-9]+gb(?:[^A-Za-z0-9].*)?", re.IGNORECASE)
"""A type that is a part of a GPU: ``1g.10gb``, ``1g.10gb+me``, ``a100_3g.20gb`` as slurmd finds it by itself.

Source: https://slurm.schedmd.com/gres.html (MIG Management).
"""
SIZE = re.compile(r"([1-9][0-9]*)([mgt])i?b?", re.IGNORECASE)
LEAST_MEMORY = 64 << 20
"""Below it the probe does not start: see ``core.preflight.checks.PROBE_LEAST_MEMORY``."""
MOST_MINUTES = 366 * 24 * 60
SLURM_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")

OWN = {
    "array": "a", "comment": "", "dependency": "d", "error": "e", "gres": "", "input": "i", "job-name": "J",
    "kill-on-invalid-dep": "", "no-requeue": "", "open-mode": "", "output": "o", "parsable": "",
    "requeue": "", "signal": "", "test-only": "", "time": "t", "wait": "W", "wrap": "",
    "cpus-per-task": "c", "mem": "", "mem-per-cpu": "", "mem-per-gpu": "", "gpus": "G", "gpus-per-node": "",
    "gpus-per-task": "", "nodes": "N", "ntasks": "n", "ntasks-per-node": "", "chdir": "D", "export": "",
}  # fmt: skip
"""Options of sbatch that this tool sets itself, or that change what a job is; each with its letter."""
NO_LOGIN = "--export=NIL"
"""The one ``--export`` that a site may have: no environment of a login is made. Newer releases know it.

Source: https://slurm.schedmd.com/sbatch.html (``--export``).
"""
KEYED = {"partition": "p", "account": "A", "qos": "q", "constraint": "C"}
"""Options of sbatch that an entry of ``gpus`` has a key for."""


def check_gres(value: str) -> str:
    """Refuse what asks for another number of GPUs than one."""
    parts = value.split(",")
    asked = [part for part in parts if re.match(r"(?:gres[:/])?gpu\b", part)]
    if len(asked) != 1:
        raise ValueError(
            "asks for no GPU, or for several kinds: write gpu:TYPE:1 as sinfo -o %G names the type"
        )
    kind = asked[0].partition(":")[2].partition(":")[0]
    if MIG_PROFILE.fullmatch(kind):
        raise ValueError(f"{kind} is a part of a GPU (MIG), and cells run on whole ones: name their type")
    match = GPU_COUNT.fullmatch(asked[0])
    if match is None:
        raise ValueError(f"sbatch does not read this: write {_gres_hint(asked[0])}")
    if match["count"] not in {None, "1"}:
        text = "a cell runs on one GPU, and a job has one task"
        raise ValueError(f"asks for {match['count']} GPUs; {text}: write {_gres_hint(asked[0])}")
    if not all(re.fullmatch(r"[A-Za-z0-9_]+(?::[A-Za-z0-9_.+:-]+)?", part) for part in parts):
        raise ValueError(
            "each further resource is name:count or name:type:count, after a comma without blanks"
        )
    return value


def _gres_hint(asked: str) -> str:
    words = re.sub(r"^gres[:/]", "", asked).partition("(")[0].split(":")
    lone = len(words) == 2
    named = [
        word for word in words[1:2]
        if re.fullmatch(r"[A-Za-z0-9_.+-]+", word) and not (lone and word.isdecimal())
    ]  # fmt: skip
    return ":".join(["gpu", *named, "1"])


def check_gpu_name(value: str) -> str:
    """Refuse a whole line of ``nvidia-smi -L``."""
    if match := re.match(r"GPU [0-9]+: (.*?) \(UUID", value):
        raise ValueError(f'write the name alone: "{match[1]}"')
    if not re.search(r"[A-Za-z]", value):
        raise ValueError('write it as nvidia-smi -L does, such as "NVIDIA H200"')
    return value


def read_size(value: object) -> object:
    """Read ``36g`` as bytes, by powers of two."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"needs a unit: write {value}g, or m for MiB")  # noqa: TRY004 - pydantic's own kind
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("no size such as 36g or 4000m")
    size = int(match[1]) << {"m": 20, "g": 30, "t": 40}[match[2].lower()]
    if size < LEAST_MEMORY:
        raise ValueError("too little: a container with less than 64m does not even start")
    return size


def check_minutes(value: object) -> object:
    """Refuse a time as Slurm writes it, with the minutes that it is."""
    if isinstance(value, str) and (match := SLURM_TIME.fullmatch(value.strip())):
        raise ValueError(f"is in minutes, a whole number without quotes: write {slurm_minutes(match)}")
    return value


def slurm_minutes(match: re.Match[str]) -> int:
    """Return the minutes of a time of Slurm's, rounded up; one at least.

    Source: https://slurm.schedmd.com/sbatch.html (``--time``): minutes, minutes:seconds,
    hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
    """
    days, *rest = (int(part) if part else 0 for part in match.groups())
    count = sum(part is not None for part in match.groups()[1:])
    first, second, third = rest
    if match[1] is not None:
        seconds = ((days * 24 + first) * 60 + second) * 60 + third
    elif count == 3:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    return max(1, -(-seconds // 60))


def check_shared(value: str) -> str:
    """Refuse what is no folder that every node can find under one name, or that a tool would misread."""
    if not value.startswith("/"):
        raise ValueError("write the absolute path that every node sees, without ~ or variables")
    _check_signs(value)
    if ".." in value.split("/") or value.strip("/") == "":
        raise ValueError("write the folder itself, such as /shared/me/trtmatrix")
    return value.rstrip("/")


def _check_signs(value: str) -> None:
    if bad := next((sign for sign in "%\\:,\"'$`#\n\t" if sign in value), None):
        raise ValueError(
            f"has {bad!r}, which Slurm or a container runtime reads as something else: rename it"
        )


def check_scratch(value: str) -> str:
    """Refuse what is no folder of a node: an absolute path, in which variables of the job may stand."""
    plain = re.sub(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})", "/x", value)
    if not plain.startswith("/"):
        raise ValueError("write an absolute path of the nodes, or a variable of the job: $TMPDIR")
    _check_signs(plain)
    if ".." in plain.split("/") or plain.strip("/") == "":
        raise ValueError("write the folder itself, such as /local/$SLURM_JOB_ID")
    return value.rstrip("/")


def check_folder(value: str) -> str:
    """Refuse a folder that is not named from the root on."""
    if value and not value.startswith("/"):
        raise ValueError("write an absolute path of the nodes")
    _check_signs(value)
    return value


def check_line(value: str) -> str:
    """Refuse a line of shell that does nothing."""
    if not value.strip() or "\0" in value:
        raise ValueError("must be a line of shell, such as module load apptainer")
    return value


def check_options(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse options that would undo this tool's own, and words that sbatch would take for its script."""
    if problem := options_problem(values):
        raise ValueError(problem)
    return values


def check_gpu_options(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse, beside those, options that an entry of ``gpus`` has a key for."""
    for value in check_options(values):
        name = value.partition("=")[0]
        for key, letter in KEYED.items():
            if name == f"--{key}" or _is_short(value, letter):
                raise ValueError(f"{name}: write it as {key}: beside name: and gres:")
    return values


def options_problem(values: Sequence[str]) -> str:
    """Return what is wrong with further words for sbatch, or nothing."""
    if values and not values[0].startswith("-"):
        return f"sbatch would take {values[0]!r} for its script: options begin with -"
    for value in values:
        name = value.partition("=")[0]
        for option, letter in OWN.items():
            if value == NO_LOGIN:
                continue
            if name == f"--{option}" or _is_short(value, letter):
                return f"{name}: this is set for each job by this tool: remove it"
        if name in {"-M", "--clusters", "--cluster"}:
            return f"{name}: jobs on another cluster would not be found again: write a site file for each"
        if any(sign.isspace() and sign != " " for sign in value) or not value.strip():
            return "each word stands on its own, without line ends"
        if value.startswith("--") and " " in name:
            return f'{value!r} is one word to sbatch: write ["{name.split()[0]}=…"]'
    if "/" in (file := option_value("exclude", "x", values)):
        return f"{file} is a file of nodes: write their names, to which those with trouble are added"
    return ""


def option_value(name: str, letter: str, words: Sequence[str]) -> str:
    """Return what an option among words for sbatch is set to: the last one counts where it stands twice."""
    value = ""
    for word, following in pairwise([*words, ""]):
        if word in {f"--{name}", f"-{letter}"}:
            value = following
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
        elif word.startswith(f"-{letter}") and not word.startswith("--"):
            value = word[2:]
    return value


def _is_short(value: str, letter: str) -> bool:
    return bool(letter) and value.startswith(f"-{letter}")
