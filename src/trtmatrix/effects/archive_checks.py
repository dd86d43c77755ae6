"""Looks whether an unpacked archive is of one piece, whatever its list of digests says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.bundle import facts
from trtmatrix.core.record import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_files(folder: Path, expected: Mapping[str, Any], record: Record) -> tuple[list[str], list[str]]:
    """Return which files are not those that were recorded, whatever SHA256SUMS says; and what is to be noted.

    The record's own digest of what the product was given decides; :data:`facts.EXPECTED` may be anyone's.
    """
    from trtmatrix.onnxmodel.reading import digest_file

    problems = []
    for name, digest in expected.get("files", {}).items():
        if not (folder / name).is_file():
            problems.append(f"{name} is not in the archive")
        elif digest_file(folder / name) != digest:
            problems.append(f"{name} is not the file that {facts.EXPECTED} was written for")
    wanted = record.digests.get("content")
    if problems:
        return problems, []
    if not wanted:
        return [], [f"{facts.RECORD} has no digest of graph and inputs: that they are its own is not checked"]
    if archive_content(folder, expected) != wanted:
        what = (
            f"{facts.MODEL}, {facts.INPUTS} or what belongs to them is not what {facts.RECORD} was made with"
        )
        return [what], []
    return [], []


def archive_content(folder: Path, expected: Mapping[str, Any]) -> str:
    """Return the digest of what an unpacked archive gives to a product, as a record has it of its case."""
    import numpy as np

    from trtmatrix.effects.cases import content_digest

    arrays_of = (facts.INPUTS, facts.REFERENCE, facts.DEFECTS, facts.EXTRA)
    names = [name for name in expected["files"] if name not in arrays_of]
    arrays: dict[str, NDArray[Any]] = {}
    for kind, name in (("inputs", facts.INPUTS), ("extra", facts.EXTRA)):
        if (folder / name).is_file():
            with np.load(folder / name, allow_pickle=False) as archive:
                arrays |= {f"{kind}/{key}": np.ascontiguousarray(archive[key]) for key in archive.files}
    return content_digest({name: folder / name for name in names if (folder / name).is_file()}, arrays)


def check_image(folder: Path, record: Record) -> list[str]:
    """Return whether the script would run another image than the record's."""
    if record.digests.get("runtime") != "container":
        return []
    wanted = record.digests.get("image", "")
    script = (folder / facts.RUN).read_text(encoding="utf-8", errors="replace")
    if wanted and wanted not in script:
        return [f"{facts.RUN} does not name the image of {facts.RECORD}, {wanted}"]
    return []
