"""Verifies an archive from itself alone: unpacked into an empty folder, run in a fresh container, judged."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trtmatrix import __version__
from trtmatrix.bundle_judge import Judged, Known, find_known_cell, judge_run
from trtmatrix.bundle_measure import measure_here
from trtmatrix.bundle_scripts import check_scripts
from trtmatrix.bundle_settings import Tell, find_settings
from trtmatrix.core.bundle.expected_check import expected_trouble
from trtmatrix.core.bundle.facts import EXPECTED, RECORD, REFERENCE, RUN, SCRIPT
from trtmatrix.core.bundle.outcome import Verified, outcome_json, range_text
from trtmatrix.core.errors import MachineryError, TrtMatrixError, UsageError
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.record import RAN, Record, RecordError, parse_record
from trtmatrix.core.redact import redact
from trtmatrix.effects.archive_checks import check_files, check_image
from trtmatrix.effects.offline import is_offline, need_network
from trtmatrix.effects.private import known_secrets
from trtmatrix.effects.run_archive import Ran, run_archive
from trtmatrix.effects.store import read_json


def verify_archive(
    file: Path, seconds: float, tell: Tell, known: Known | None = None, *, trust: bool = False
) -> Verified:
    """Return whether an archive's failure comes back from the archive alone, and write that beside it.

    ``known``: the archive's cell, where it is known; else the project of the working directory is asked.
    ``trust``: its scripts are run also where this version would write others.
    An older outcome of other bytes goes first; one of these very bytes stays where nothing could be run.
    :class:`UsageError` where it is no archive, :class:`MachineryError` where it cannot be run here.
    """
    from trtmatrix.onnxmodel.reading import digest_file

    if not file.is_file():
        raise UsageError(
            f"{file}: there is no such file; an archive is made by: python -m trtmatrix bundle make"
        )
    digest = digest_file(file)
    if not (is_known := (read_json(outcome_file(file)) or {}).get("sha256") == digest):
        forget_outcome(file)
    try:
        found = _verify(file, digest, seconds, tell, known, trust)
    except TrtMatrixError as error:
        if not is_known:
            why = redact(str(error), known_secrets()).text
            told = Verified(file=file.name, sha256=digest, verified=False, problems=(why,), tool=__version__)
            write_outcome(file, told)
        raise
    found = _public(found)
    write_outcome(file, found)
    return found


def _verify(
    file: Path, digest: str, seconds: float, tell: Tell, known: Known | None, trust: bool
) -> Verified:
    from trtmatrix.effects.unpack import ChangedError, read_archive

    with tempfile.TemporaryDirectory(prefix="trtmatrix-verify-") as name:
        try:
            folder = read_archive(file, Path(name) / "archive")
        except ChangedError as error:
            return Verified(
                file=file.name, sha256=digest, verified=False, problems=error.problems, tool=__version__
            )
        return _verify_folder(file, digest, folder, seconds, tell, known, trust)


def outcome_file(file: Path) -> Path:
    """Return where the outcome of an archive's verification lies."""
    return file.with_name(f"{file.name}.verify.json")


def forget_outcome(file: Path) -> None:
    """Remove the outcome of an earlier verification."""
    try:
        outcome_file(file).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{outcome_file(file)}: cannot be replaced: {error.strerror or error}") from error


def _public(found: Verified) -> Verified:
    """Return an outcome whose texts hold nothing private of this host, as it is sent along."""
    wanted = (found.cell, found.image, found.image_recorded, found.sha256, found.when)
    secrets = known_secrets(
        keep=[text for text in wanted if text],
        versions=[text for text in (found.library, found.driver, found.tool) if text],
    )
    texts: dict[str, Any] = {}
    for name, value in vars(found).items():
        if isinstance(value, str) and value not in wanted:
            texts[name] = redact(value, secrets).text
        elif name in {"problems", "notes"}:
            texts[name] = tuple(redact(text, secrets).text for text in value)
    figures = tuple(replace(figure, name=redact(figure.name, secrets).text) for figure in found.figures)
    return replace(found, figures=figures, **texts)


def write_outcome(file: Path, found: Verified) -> None:
    """Write an outcome beside its archive, whole or not at all."""
    target = outcome_file(file)
    partial = target.with_name(f".{target.name}.partial")
    partial.write_text(to_json(outcome_json(found)), encoding="utf-8")
    partial.replace(target)


def _verify_folder(
    file: Path, digest: str, folder: Path, seconds: float, tell: Tell, known: Known | None, trust: bool
) -> Verified:
    (record, expected), scratch = _read(folder), folder.parent
    out = scratch / "out"
    problems, unchecked = check_files(folder, expected, record)
    problems += check_image(folder, record)
    if problems:
        return Verified(
            file=file.name, sha256=digest, verified=False, problems=tuple(problems), cell=str(record.cell),
            tool=__version__,
        )  # fmt: skip
    known = known or find_known_cell(record)
    unchecked += check_scripts(file, folder, record, expected, known, trust=trust)
    out.mkdir()
    need_image(record)
    settings, notes = find_settings(record, scratch, tell)
    tell(f"running {RUN} of the archive")
    ran = run_archive(folder, out, settings, seconds)
    result, untrue = measure_here(folder, out, ran.result)
    judged = judge_run(record, expected, result, known)
    recorded = record.digests.get("image", "")
    other = [f"run in {ran.image}, built or pulled anew; recorded: {recorded}"]
    more = (
        other if ran.image and ran.image.removeprefix("sha256:") != recorded.removeprefix("sha256:") else []
    )
    problems = [*_why_not(ran, judged, seconds), *untrue]
    seen = _object(ran.result.get("observed"))
    return Verified(
        file=file.name, sha256=digest, verified=not problems,
        problems=tuple(problems), notes=(*unchecked, *notes, *more, *judged.notes), cell=str(record.cell),
        recorded=judged.recorded, verdict=judged.verdict, reason=judged.reason, manner=judged.manner,
        figures=judged.figures, judged_by=_how(judged, result), image=ran.image,
        image_recorded=recorded, tool=__version__,
        gpu=str(_object(ran.result.get("engine")).get("gpu") or ""),
        driver=str(seen.get("driver") or ""), library=str(seen.get("library") or ""),
        os=str(_object(ran.result.get("platform")).get("os") or ""), exit_code=ran.code,
        seconds=round(ran.seconds, 1), when=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        said="" if not problems else ran.said,
    )  # fmt: skip


def need_image(record: Record) -> None:
    """Offline, refuse a record's image that is not here: the script would pull or build it."""
    if not is_offline() or record.digests.get("runtime") != "container":
        return
    from trtmatrix.effects.engine import find_engine

    engine, image = find_engine(gpu_here=False, offline=True), record.digests.get("image", "")
    if not engine.available:
        raise MachineryError(engine.reason)
    if image not in engine.ids:
        need_network(f"the image {image or 'that the failure was seen in'}, which is not here,")


def _read(folder: Path) -> tuple[Record, dict[str, Any]]:
    expected = read_json(folder / EXPECTED)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        record = parse_record(text, RECORD)
    except (OSError, UnicodeDecodeError, RecordError) as error:
        raise UsageError(f"the archive's {RECORD} cannot be read: {error}") from error
    if expected is None or not (folder / RUN).is_file():
        raise UsageError(f"the archive has no {EXPECTED} or no {RUN}: bundle make writes both")
    if trouble := expected_trouble(expected):
        raise UsageError(f"the archive's {EXPECTED} cannot be used: {trouble}: ask for an archive anew")
    return record, expected


def _object(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON of anyone's
    return value if isinstance(value, dict) else {}


def _how(judged: Judged, result: Mapping[str, Any]) -> str:
    """Return who judged, and what."""
    if not judged.by:
        return ""
    if result.get("ended") != RAN:
        return f"{judged.by}; how it ended is as {SCRIPT} tells it"
    counts = any(
        _object(build.get("measurements")).get("scalars") for build in result.get("builds") or [result]
    )
    told = f"; what {SCRIPT} counts by itself is as it tells it" if counts else ""
    return f"{judged.by}; the outputs that were saved were measured here against {REFERENCE}{told}"


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
