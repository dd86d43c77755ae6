"""What sbatch is told for an array and for an import: its words, in one place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trtmatrix.core.slurm.jobs import job_comment, job_name
from trtmatrix.core.slurm.layout import array_folder, import_folder, said_file
from trtmatrix.core.slurm.site import Site, SiteGpu
from trtmatrix.core.slurm.sitevalues import option_value

MIB = 1 << 20
SHORT = 3
"""Minutes up to which a job is told later."""
WARNED = 60
"""Seconds before its time limit at which a job is told: enough to copy out what is finished."""


def array_words(
    site: Site,
    gpu: SiteGpu,
    *,
    key: str,
    tasks: Iterable[int],
    attempt: int,
    minutes: int,
    after: str = "",
    avoid: Iterable[str] = (),
    facts: dict[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the words of sbatch for an attempt at some tasks of an array; script and argument follow them.

    ``after``: the job of the import that it depends on; ``avoid``: nodes that had trouble of their own,
    beside those that the site's options exclude; ``facts``: what else the comment holds (``sent=<number>``),
    and what people want to read in squeue. Of doubled words the last counts: a GPU's own follow the site's.
    """
    numbers = f"{task_numbers(tasks)}%{site.limits.running}"
    output = said_file(array_folder(site.shared, key), "%a", attempt, "%A")  # Slurm makes no folder for it
    words = [
        *_common(key, attempt, facts or {}), f"--output={output}", f"--array={numbers}",
        f"--gres={gpu.gres}", f"--time={minutes}", f"--signal=B:TERM@{warned(minutes)}",
        f"--cpus-per-task={site.limits.cpus}", f"--mem={-(-site.limits.memory // MIB)}M",
    ]  # fmt: skip
    if after:
        words += [f"--dependency=afterok:{after}", "--kill-on-invalid-dep=yes"]
    named = {
        "constraint": gpu.constraint, "partition": gpu.partition, "account": gpu.account, "qos": gpu.qos,
    }  # fmt: skip
    options = [
        *site.options, *(f"--{name}={value}" for name, value in named.items() if value), *gpu.options
    ]  # fmt: skip
    return (*words, *options, *_exclude(tuple(avoid), options))


def _exclude(avoid: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Yield the word that keeps a job from some nodes and from those that options exclude already."""
    if avoid:
        nodes = filter(None, [option_value("exclude", "x", options), *avoid])
        yield f"--exclude={','.join(nodes)}"


def import_words(
    site: Site, *, key: str, attempt: int, facts: dict[str, str] | None = None
) -> tuple[str, ...]:
    """Return the words of sbatch for the import of an image, which asks for no GPU."""
    minutes = site.limits.import_minutes
    words = [
        *_common(f"import-{key}", attempt, facts or {}),
        f"--output={import_folder(site.shared, key, attempt)}.txt", f"--time={minutes}",
        f"--signal=B:TERM@{warned(minutes)}", f"--cpus-per-task={site.limits.cpus}",
        f"--mem={-(-site.limits.memory // MIB)}M",
    ]  # fmt: skip
    return (*words, *site.options, *site.import_options)


def _common(key: str, attempt: int, facts: dict[str, str]) -> list[str]:
    """Return what every job of ours is told.

    No requeue: an attempt runs once, a further one has a folder of its own. The caller's environment stays
    here (``--export=NONE``): a job that depends on what was typed in one shell is run differently by the
    next, and everything exported would stand in Slurm's own state. Its node gives it that of a login.
    """
    return [
        "--parsable", f"--job-name={job_name(key)}",
        f"--comment={job_comment(key, attempt=str(attempt), **facts)}", "--no-requeue", "--export=NONE",
        "--nodes=1", "--ntasks=1", "--open-mode=append",
    ]  # fmt: skip


def warned(minutes: int) -> int:
    """Return the seconds before its time limit at which a job is told; a short one has less to copy out."""
    return WARNED if minutes > SHORT else WARNED // 3


def task_numbers(tasks: Iterable[int]) -> str:
    """Return task numbers as sbatch's ``--array`` has them: ``0-3,7``."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(tasks)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
