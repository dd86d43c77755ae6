"""Verifies an archive from itself alone: unpacked into an empty folder, run in a fresh container, judged."""

from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trtmatrix import __version__
from trtmatrix.bundle_judge import Judged, find_known_cell, judge_run
from trtmatrix.bundle_settings import Tell, find_settings
from trtmatrix.core.bundle.facts import ENVIRONMENT, EXPECTED, RECORD, RUN
from trtmatrix.core.bundle.outcome import Verified, outcome_json, range_text
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import Cell
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.record import Record, RecordError, parse_record
from trtmatrix.core.redact import redact
from trtmatrix.effects.archive_checks import check_files, check_image
from trtmatrix.effects.private import known_secrets
from trtmatrix.effects.run_archive import Ran, run_archive
from trtmatrix.effects.store import read_json


def verify_archive(file: Path, seconds: float, tell: Tell, cell: Cell | None = None) -> Verified:
    """Return whether an archive's failure comes back from the archive alone, and write that beside it.

    ``cell``: the archive's, where it is known; else the project of the working directory is asked for it.
    :class:`UsageError` where it is no archive, :class:`MachineryError` where it cannot be run here.
    """
    from trtmatrix.effects.unpack import ChangedError, read_archive
    from trtmatrix.onnxmodel.reading import digest_file

    if not file.is_file():
        raise UsageError(
            f"{file}: there is no such file; an archive is made by: python -m trtmatrix bundle make"
        )
    digest = digest_file(file)
    with tempfile.TemporaryDirectory(prefix="trtmatrix-verify-") as name:
        try:
            folder = read_archive(file, Path(name) / "archive")
        except ChangedError as error:
            found = Verified(
                file=file.name, sha256=digest, verified=False, problems=error.problems, tool=__version__
            )
        else:
            found = _verify_folder(file, digest, folder, seconds, tell, cell)
    write_outcome(file, found)
    return found


def outcome_file(file: Path) -> Path:
    """Return where the outcome of an archive's verification lies."""
    return file.with_name(f"{file.name}.verify.json")


def write_outcome(file: Path, found: Verified) -> None:
    """Write an outcome beside its archive, whole or not at all."""
    target = outcome_file(file)
    partial = target.with_name(f".{target.name}.partial")
    partial.write_text(to_json(outcome_json(found)), encoding="utf-8")
    partial.replace(target)


def _verify_folder(
    file: Path, digest: str, folder: Path, seconds: float, tell: Tell, cell: Cell | None
) -> Verified:
    (record, expected), scratch = _read(folder), folder.parent
    out = scratch / "out"
    problems = [*check_files(folder, expected), *check_image(folder, record)]
    if problems:
        return Verified(
            file=file.name, sha256=digest, verified=False, problems=tuple(problems), cell=str(record.cell),
            tool=__version__,
        )  # fmt: skip
    out.mkdir()
    settings, notes = find_settings(record, scratch, tell)
    tell(f"running {RUN} of the archive")
    ran = run_archive(folder, out, settings, seconds)
    judged = judge_run(record, expected, ran.result, cell or find_known_cell(record))
    image, more = _image_now(folder, record)
    seen, problems = ran.result.get("observed", {}), _why_not(ran, judged, seconds)
    return Verified(
        file=file.name, sha256=digest, verified=not problems,
        problems=tuple(problems), notes=(*notes, *more, *judged.notes), cell=str(record.cell),
        recorded=judged.recorded, verdict=judged.verdict, reason=judged.reason, manner=judged.manner,
        figures=judged.figures, judged_by=judged.by, image=image,
        image_recorded=record.digests.get("image", ""), tool=__version__,
        gpu=str(ran.result.get("engine", {}).get("gpu") or ""),
        driver=str(seen.get("driver") or ""), library=str(seen.get("library") or ""),
        os=str(ran.result.get("platform", {}).get("os") or ""), exit_code=ran.code,
        seconds=round(ran.seconds, 1), when=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        said="" if not problems else redact(ran.said, known_secrets()).text,
    )  # fmt: skip


def _read(folder: Path) -> tuple[Record, dict[str, Any]]:
    expected = read_json(folder / EXPECTED)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        record = parse_record(text, RECORD)
    except (OSError, UnicodeDecodeError, RecordError) as error:
        raise UsageError(f"the archive's {RECORD} cannot be read: {error}") from error
    if expected is None or not (folder / RUN).is_file():
        raise UsageError(f"the archive has no {EXPECTED} or no {RUN}: bundle make writes both")
    return record, expected


def _image_now(folder: Path, record: Record) -> tuple[str, list[str]]:
    """Return the digest of the image that the script found here, in its order; a note where it is another."""
    from trtmatrix.effects.image_facts import find_image

    ran = record.digests.get("image", "")
    if record.digests.get("runtime") != "container":
        return "", []
    image = (read_json(folder / ENVIRONMENT) or {}).get("image") or {}
    names = [name for name in (image.get("reference"), ran, image.get("tag")) if name]
    held = next((found for name in names if (found := find_image(name)) is not None), None)
    if held is None:
        return "", []
    other = [] if held.id == ran else [f"run in {held.id}, built or pulled anew; recorded: {ran}"]
    return held.id, other


def _why_not(ran: Ran, judged: Judged, seconds: float) -> list[str]:
    """Return why an archive is not verified; nothing where it is."""
    if ran.timed_out:
        return [f"{RUN} was not done after {seconds:g} s (--seconds S allows more)"]
    if not ran.result:
        last = ran.said.strip().splitlines()[-1:] or ["it said nothing"]
        return [f"{RUN} ended with exit code {ran.code} and wrote no result: {last[0]}"]
    problems = [judged.differs] if judged.differs else []
    if ran.code != 1 and not problems:
        problems.append(f"{RUN} says otherwise than the judge here: exit code {ran.code}, 1 was expected")
    problems += [
        f"{figure.name}: {range_text(figure.found)}, recorded {range_text(figure.recorded)} "
        f"± {figure.slack:.3g}"
        for figure in judged.figures if not figure.within
    ]  # fmt: skip
    return problems
