"""Slurm, through its own command line: submit, look, look back, cancel."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Sequence

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.slurm.jobs import PREFIX, JobStatus, Phase
from trtmatrix.core.slurm.parse import TroubledError, UnreadableError, parse_sacct, parse_squeue
from trtmatrix.core.slurm.parse_lines import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    parse_sacct_lines,
    parse_squeue_lines,
)
from trtmatrix.core.slurm.refusals import FEWER, is_away, is_full, is_limit_of_jobs, remedy_of
from trtmatrix.effects.slurm_commands import Answer, Run, SlurmAway, run_command

__all__ = ["Refused", "Slurm", "SlurmAway", "TakesLater"]

SECONDS = 60.0
"""For one command: a busy controller takes its time."""
SUBMIT_SECONDS = 180.0
"""sbatch waits and tries again by itself while the controller can take no more jobs."""
MANY = 4_000_000
"""Characters of JSON with others' jobs in it from which on lines are asked for: a few thousand jobs."""
TOGETHER = 100
"""Jobs named on one command line."""


class Refused(MachineryError):
    """Slurm would not have a job: its own words, and what mends that."""

    def __init__(self, words: str) -> None:
        """Keep Slurm's words."""
        super().__init__(f"sbatch refused the job: {words}\n  {remedy_of(words)}")
        self.words = words


class TakesLater(SlurmAway):
    """Slurm has as many jobs as it takes now, and may take this one later; surely it has not taken it.

    ``lasting``: it may be for the job's own size that it never does.
    """

    def __init__(self, words: str, *, lasting: bool) -> None:
        """Keep Slurm's words."""
        super().__init__(f"Slurm takes no more jobs now: {words}\n  {FEWER}")
        self.words, self.lasting = words, lasting


class Slurm:
    """Slurm's commands, as this user."""

    def __init__(self, *, run: Run = run_command, user: int | None = None, prefix: str = PREFIX) -> None:
        """``user``: the uid whose jobs are looked at, this process's by default."""
        self._run = run
        self._user = os.getuid() if user is None else user
        self._prefix = prefix
        self.json = True
        self._answered = False
        self.accounting: bool | None = None
        self._sacct_json = True

    def submit(self, words: Sequence[str], script: str, *args: str) -> str:
        """Submit a script with these options, and return the job's id.

        Raises ``Refused``; ``TakesLater`` where there are too many jobs now; ``SlurmAway`` where no answer
        came: the job may be there nevertheless, and is to be looked for by its name.
        """
        try:
            answer = self._ask(["sbatch", "--parsable", *words, script, *args], SUBMIT_SECONDS, refuses=True)
        except Refused as refused:
            if is_full(refused.words) or is_limit_of_jobs(refused.words):
                raise TakesLater(refused.words, lasting=not is_full(refused.words)) from refused
            raise
        found = re.findall(r"^(?:Submitted batch job )?(\d+)(?:;\S*)?$", answer.out.strip(), re.MULTILINE)
        if not found:
            raise SlurmAway(f"sbatch did not say which job it submitted, but {answer.out.strip()[:200]!r}")
        return str(found[-1])

    def jobs(self) -> list[JobStatus]:
        """Return this user's jobs whose names are this tool's, those that ended lately included.

        Raises ``SlurmAway`` where no controller answers. What is wrong with an answer is a ``MachineryError``
        the first time, and passing trouble, ``SlurmAway`` too, once squeue has been understood.
        """
        return [job for job in self._users_jobs() if job.name.startswith(self._prefix)]

    def has_jobs(self) -> bool:
        """Whether any job of this user's waits or runs, of whatever name. Raises as :meth:`jobs` does."""
        return any(job.phase is not Phase.GONE for job in self._users_jobs())

    def _users_jobs(self) -> list[JobStatus]:
        try:
            found = self._all_jobs(["squeue", f"--user={self._user}", "--states=all"])
        except SlurmAway:
            raise
        except MachineryError as error:
            if self._answered:
                raise SlurmAway(str(error)) from error
            raise
        self._answered = True
        return found

    def _all_jobs(self, command: list[str]) -> list[JobStatus]:
        found = self._jobs_by_json(command) if self.json else None
        if found is not None:
            return found
        answer = self._ask([*command, "--noheader", f"--format={SQUEUE_FORMAT}"])
        try:
            return parse_squeue_lines(answer.out, user=self._user)
        except UnreadableError as error:
            raise MachineryError(f"squeue writes what cannot be read: {error}") from error

    def _jobs_by_json(self, command: list[str]) -> list[JobStatus] | None:
        """Return the jobs, or None where this release has no JSON or too much of it: it is remembered."""
        answer = self._run([*command, "--json"], SECONDS)
        if answer.code and is_away(answer.words):
            raise _away("squeue", answer)
        try:
            found = parse_squeue(answer.out, user=self._user)
        except TroubledError:  # what the trouble is, lines tell
            return None
        except UnreadableError:
            self.json = False
            return None
        self.json = len(answer.out) < MANY or len(parse_squeue(answer.out)) == len(found)
        return found

    def past(self, jobs: Iterable[str] = (), *, names: Iterable[str] = ()) -> list[JobStatus]:
        """Return what accounting knows of jobs by id, or by name in the last days; nothing without it.

        That there is none is asked once; accounting that does not answer now is none for now.
        """
        by_id, by_name = [f"--jobs={','.join(part)}" for part in _parts(jobs)], list(_parts(names))
        found = [job for word in by_id for job in self._accounted([word])]
        for part in by_name:
            found += self._accounted(
                [f"--name={','.join(part)}", f"--user={self._user}", "--starttime=now-14days"]
            )
        return [job for job in found if job.name.startswith(self._prefix)]

    def _accounted(self, words: list[str]) -> list[JobStatus]:
        if self.accounting is False:
            return []
        plain = ["--allocations", "--noheader", "--parsable2", f"--format={SACCT_FORMAT}"]
        try:
            if self._sacct_json:
                answer = self._run(["sacct", *words, "--json"], SECONDS)
                found = self._read_sacct(answer)
                if found is not None:
                    return found
            return self._read_sacct(self._run(["sacct", *words, *plain], SECONDS), lines=True) or []
        except SlurmAway:
            return []
        except UsageError:  # no sacct here
            self.accounting = False
            return []

    def _read_sacct(self, answer: Answer, *, lines: bool = False) -> list[JobStatus] | None:
        if answer.code:
            if "accounting storage is disabled" in (answer.err + answer.out).lower():
                self.accounting = False
                return []
            if is_away(answer.words):
                return []
        try:
            found = parse_sacct_lines(answer.out) if lines else parse_sacct(answer.out)
        except TroubledError:
            return None
        except UnreadableError:
            self._sacct_json = False
            return None
        self.accounting = self.accounting or not answer.code
        return found

    def drained(self, node: str) -> str:
        """Return why a node takes no more jobs, as it was put down in Slurm; nothing where it does."""
        try:
            answer = self._run(["sinfo", "--noheader", f"--nodes={node}", "--format=%E"], SECONDS)
        except (MachineryError, UsageError):  # it is only told
            return ""
        words = answer.out.strip().splitlines()[:1]
        return "" if answer.code or words in ([], ["none"]) else words[0].strip()

    def is_person(self, by: str) -> bool:
        """Whether this user cancelled a job; root may be Slurm itself."""
        try:
            name = pwd.getpwuid(self._user).pw_name
        except KeyError:
            name = ""
        return self._user != 0 and by in {str(self._user), name} - {""}

    def cancel(self, jobs: Iterable[str]) -> None:
        """Cancel jobs, or tasks of arrays (``12_3``); those that are gone already are no error."""
        for part in _parts(jobs):
            answer = self._run(["scancel", *part], SECONDS)
            low = answer.words.lower()
            if answer.code and is_away(low):
                raise _away("scancel", answer)
            if answer.code and not ("invalid job id" in low or "already complet" in low):
                raise MachineryError(
                    f"scancel failed: {answer.words}\n  whose jobs are they? squeue --jobs={','.join(part)}"
                )

    def cancel_named(self, names: Iterable[str]) -> None:
        """Cancel this user's jobs of these names, where their ids are not known; that there is none is fine.

        Raises ``SlurmAway``. scancel takes one name at a time.
        """
        for name in names:
            answer = self._run(["scancel", f"--name={name}", f"--user={self._user}"], SECONDS)
            if answer.code and is_away(answer.words):
                raise _away("scancel", answer)

    def test(self, words: Sequence[str], script: str) -> str:
        """Return what sbatch says of when and where a job would start; ``Refused`` as for :meth:`submit`."""
        return self._ask(["sbatch", "--test-only", *words, script], SECONDS, refuses=True).words

    def _ask(self, command: list[str], seconds: float = SECONDS, *, refuses: bool = False) -> Answer:
        answer = self._run(command, seconds)
        if not answer.code:
            return answer
        if is_away(answer.words):
            raise _away(command[0], answer)
        if refuses:
            raise Refused(answer.words or f"exit code {answer.code}")
        raise MachineryError(f"{command[0]} failed: {answer.words}\n  try it by hand: {' '.join(command)}")


def _away(command: str, answer: Answer) -> SlurmAway:
    return SlurmAway(f"{command}: {answer.words}\n  is the controller up? scontrol ping")


def _parts(items: Iterable[str]) -> list[list[str]]:
    """Return items in parts that fit a command line."""
    found = list(dict.fromkeys(items))
    return [found[start : start + TOGETHER] for start in range(0, len(found), TOGETHER)]
