"""Images on the shared folder: had once by a job of their own, which the arrays depend on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.cluster import Cluster
from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm.fate import RETRIES
from trtmatrix.core.slurm.images import is_image_file, is_lasting
from trtmatrix.core.slurm.jobs import JobStatus, Phase, job_name
from trtmatrix.core.slurm.layout import import_folder
from trtmatrix.core.slurm.scripts import ImportScript, import_script
from trtmatrix.core.slurm.shared_json import parse_facts
from trtmatrix.core.slurm.submission import import_words
from trtmatrix.core.slurm.words import ENDED, STARTED
from trtmatrix.effects.shared_files import make_folder, read_text, write_text
from trtmatrix.effects.slurm import Refused, Slurm, TakesLater
from trtmatrix.slurm_pace import Pace


class NotHad(MachineryError):
    """An image was not had. ``lasting``: another import would come to the same."""

    def __init__(self, words: str, *, lasting: bool) -> None:
        """Keep which."""
        super().__init__(words)
        self.lasting = lasting


@dataclass(kw_only=True)
class SlurmImages:
    """Submits imports. ``submitted``: the jobs that this client submitted, by the image's key.

    A person who types the command again has mended something, perhaps: only imports that failed since this
    client began (``_before``: the last one that had ended before, by key) keep it from another one at once.
    ``_failed``: when it saw that an import had failed, by key and attempt; ``_begun``: when it submitted one.
    """

    cluster: Cluster
    slurm: Slurm
    note: Callable[[str], None]
    pace: Pace = field(default_factory=Pace)
    submitted: dict[str, str] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _failed: dict[tuple[str, int], float] = field(default_factory=dict)
    _begun: dict[tuple[str, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """See which imports have ended by now: one that is under way is the first of this client's."""
        keys = {path.name.partition(".")[0] for path in self._images.glob("*.*.sh")}
        for key in keys:
            last = max(self._attempts(key), default=0)
            self._before[key] = last if self._ended(key, last) else max(last - 1, 0)

    def job_for(
        self, version: Version, key: str = "", look: Callable[[], Sequence[JobStatus]] | None = None
    ) -> str:
        """Return the job that an array must wait for before its image is there; nothing where it is.

        To be called under the folder's lock: an image is imported by one job at a time. A job is looked for
        by its name, whoever of this user's clients submitted it; one of this client's that has just begun is
        there. ``key``: the image's that an array has. ``look``: what Slurm says under this very lock, for who
        asks for several. :class:`NotHad` where it is not worth another one, now or at all.
        """
        key = key or self.cluster.key_of(version)
        if self.cluster.folder.image(key) is not None:
            return ""
        if self._has_just_begun(key):
            return self.submitted[key]
        for job in (look or self.slurm.jobs)():
            if job.name == job_name(f"import-{key}") and job.phase is not Phase.GONE:
                return job.job
        if (failed := self.failure(version, key)) is not None:
            raise failed
        return self._submit(version, key)

    def failure(self, version: Version, key: str = "") -> NotHad | None:
        """Return why an image is not imported now: the last import failed, lately or for good.

        What it came to is told when it is seen first. ``key``: the image's that an array has.
        """
        key = key or self.cluster.key_of(version)
        attempt = max(self._attempts(key), default=0)
        said = self._ended(key, attempt)
        before = self._before.get(key, 0)
        if attempt <= before or not said or self.cluster.folder.image(key) is not None:
            return None
        words = self.trouble(version, key)
        ran = sum(number > before and self._ran(key, number) for number in self._attempts(key))
        lasting = ran > RETRIES or is_lasting(said.get("trouble", ""), said.get("detail", ""))
        now = time.monotonic()
        if (key, attempt) not in self._failed:
            self._failed[key, attempt] = now
            again = "" if lasting else f"\n  it is fetched again in {self.pace.again:g} s"
            self.note(f"{version.name}: {words}{again}")
        if not lasting and now - self._failed[key, attempt] >= self.pace.again:
            return None
        return NotHad(words, lasting=lasting)

    def _ended(self, key: str, attempt: int) -> dict[str, str]:
        """Return what an import said of its end; nothing where it has not come to one."""
        return _facts(self._left(key, attempt) / ENDED)

    def _ran(self, key: str, attempt: int) -> bool:
        """Whether an import ran: of one that Slurm gave no answer to, there may be no job."""
        return any(read_text(self._left(key, attempt) / name) is not None for name in (STARTED, ENDED))

    def _left(self, key: str, attempt: int) -> Path:
        return Path(import_folder(self.cluster.site.shared, key, attempt))

    def _has_just_begun(self, key: str) -> bool:
        """Whether the last import is this client's, so new that Slurm lists it, and has not ended."""
        attempt = max(self._attempts(key), default=0)
        begun = self._begun.get((key, attempt))
        new = begun is not None and time.monotonic() - begun < self.pace.settle
        return new and not self._ended(key, attempt)

    def _submit(self, version: Version, key: str) -> str:
        site = self.cluster.site
        attempt = 1 + max(self._attempts(key), default=0)
        script = Path(f"{import_folder(site.shared, key, attempt)}.sh")
        make_folder(script.parent)
        write_text(script, import_script(replace(script_of(self.cluster, version), key=key)), 0o755)
        words = import_words(site, key=key, attempt=attempt, facts={"version": version.name})
        try:
            job = self.slurm.submit(words, str(script), str(attempt))
        except (Refused, TakesLater):  # without an answer there may be a job: its number stays taken
            script.unlink(missing_ok=True)
            raise
        self.submitted[key], self._begun[key, attempt] = job, time.monotonic()
        self.note(f"{version.name}: job {job} fetches its image: {_reference(version)}")
        return job

    @property
    def _images(self) -> Path:
        return Path(self.cluster.site.shared, "images")

    def _attempts(self, key: str) -> list[int]:
        """Return the numbers of the imports that were begun."""
        names = [path.name for path in self._images.glob(f"{key}.*.sh")]
        return [int(name.split(".")[1]) for name in names if name.split(".")[1].isdecimal()]

    def trouble(self, version: Version, key: str) -> str:
        """Say what the last import of a version's image came to, where it is not there; else nothing."""
        attempts = self._attempts(key)
        if not attempts or self.cluster.folder.image(key) is not None:
            return ""
        folder = self._left(key, max(attempts))
        said = _facts(folder / ENDED)
        log = f"see {folder / 'log'}" if (folder / "log").is_file() else f"see {folder}.txt"
        return f"its image {_reference(version)} was not had: {said.get('detail') or 'no word of it'}; {log}"


def script_of(cluster: Cluster, version: Version) -> ImportScript:
    """Return what the script of an import is made from."""
    origin, reference = version.origin, _reference(version)
    pin = origin.pin if isinstance(origin, ImageOrigin) else None
    is_file = is_image_file(reference)
    return ImportScript(
        site=cluster.site, key=cluster.key_of(version), reference=reference,
        file=reference if is_file else "", ids=pin.ids if pin else (), config=pin.ids[0] if pin else "",
    )  # fmt: skip


def _reference(version: Version) -> str:
    return version.origin.reference if isinstance(version.origin, ImageOrigin) else version.name


def _facts(file: Path) -> dict[str, str]:
    """Return the lines ``name=value`` of a file; none where it is not there."""
    return parse_facts(read_text(file) or "")
