"""The outcome of an archive's verification, as text and as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from trtmatrix.core.bundle.facts import RUN
from trtmatrix.core.bundle.spread import Figure
from trtmatrix.core.record import write_number


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The outcome of a verification.

    ``problems``: why it is not verified; ``notes``: what was otherwise than recorded.
    ``sha256``: of the archive's file. ``recorded`` and ``verdict``: verdicts then and now; ``image``: that it
    ran in, ``image_recorded`` the one of the record, by their own digests. ``exit_code``: reproduce.sh's.
    """

    file: str
    sha256: str
    verified: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cell: str = ""
    recorded: str = ""
    verdict: str = ""
    reason: str = ""
    manner: str = ""
    figures: tuple[Figure, ...] = ()
    judged_by: str = ""
    image: str = ""
    image_recorded: str = ""
    gpu: str = ""
    driver: str = ""
    library: str = ""
    os: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    when: str = ""
    tool: str = ""
    said: str = field(default="", repr=False)


def outcome_json(found: Verified) -> dict[str, Any]:
    """Return an outcome as a JSON object."""
    data = asdict(found)
    data["figures"] = [
        {
            "name": figure.name, "recorded": list(map(write_number, figure.recorded)),
            "found": list(map(write_number, figure.found)) if figure.found else None,
            "slack": figure.slack, "within": figure.within, "compared": figure.slack is not None,
        }
        for figure in found.figures
    ]  # fmt: skip
    return data


def range_text(values: tuple[float, float] | None) -> str:
    """Write a least and a largest figure."""
    if values is None:
        return "absent"
    low, high = values
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def outcome_text(found: Verified) -> str:
    """Return an outcome for the terminal."""
    lines = [f"{found.file}: {'verified: the failure comes back' if found.verified else 'NOT VERIFIED'}"]
    lines += [f"  {problem}" for problem in found.problems]
    if found.verdict:
        lines.append(f"  recorded {found.recorded}, here {found.verdict}: {found.reason or found.manner}")
    lines += [
        f"  {figure.name}: {range_text(figure.found)} (recorded: {range_text(figure.recorded)})"
        f"{'' if figure.slack is not None else ', not compared'}"
        for figure in found.figures
    ]  # fmt: skip
    lines += [f"  note: {note}" for note in found.notes]
    if found.judged_by:
        lines.append(f"  judged by {found.judged_by}")
    if found.image:
        lines.append(f"  image {found.image}")
    if found.exit_code is not None:
        lines.append(f"  {RUN}: exit code {found.exit_code}, {found.seconds:g} s")
    if not found.verified and found.said:
        lines += ["  its last words:", *(f"    {line}" for line in found.said.strip().splitlines()[-12:])]
    return "\n".join(lines) + "\n"
