"""What ``list`` prints: versions with their facts, repros with their cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from trtmatrix.core.config import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.core.model import Case, Repro

Rows = Sequence[tuple[Repro, Case]]


def origin_text(version: Version) -> str:
    """Return where a version comes from, in one phrase."""
    match version.origin:
        case ImageOrigin(image=image, build=None):
            return image
        case ImageOrigin(image=image):
            return f"{image} (built here)"
        case WheelsOrigin(wheels=wheels):
            return ", ".join(wheels)
        case InterpreterOrigin(interpreter=interpreter):
            return interpreter


def list_text(versions: Sequence[Version], rows: Rows) -> str:
    """Return the lists for a terminal."""
    table = [
        (v.name + (" +" if v.addition else ""), v.library.value, _known(v), origin_text(v)) for v in versions
    ]
    heads = ("version", "library", "known", "origin")
    parts = [tabulate(table, heads, tablefmt="simple", disable_numparse=True)]
    if any(version.addition for version in versions):
        parts.append("+ an addition to the seven versions that were agreed")
    parts += [_repro_text(repro, rows) for repro in _repros(rows)]
    return "\n\n".join(parts)


def _known(version: Version) -> str:
    recalled = [n for n, fact in version.facts().items() if fact.known.value == "recalled"]
    return version.library.known.value + (f" (recalled: {', '.join(recalled)})" if recalled else "")


def _repro_text(repro: Repro, rows: Rows) -> str:
    cases = [
        case.id + (f" ({case.control.value} control)" if case.control else "")
        for owner, case in rows
        if owner.id == repro.id
    ]
    head = f"{repro.id}: {repro.title} · {repro.upstream}\n{repro.url}"
    for name, defect in repro.defects.items():
        head += f"\n  known defect {name}: {defect.what}" + (
            f" · {defect.upstream}" if defect.upstream else ""
        )
    return head + "\n" + "\n".join(f"  {case}" for case in cases)


def _repros(rows: Rows) -> list[Repro]:
    return list({repro.id: repro for repro, _ in rows}.values())


def list_json(versions: Sequence[Version], rows: Rows) -> dict[str, Any]:
    """Return the lists as plain data."""
    return {
        "versions": [version.model_dump(mode="json", exclude_none=True) for version in versions],
        "repros": [
            {
                "id": repro.id, "title": repro.title, "upstream": repro.upstream, "url": repro.url,
                "defects": {name: vars(defect) for name, defect in repro.defects.items()},
                "cases": [
                    {
                        "id": case.id, "params": dict(case.params), "limits": dict(case.limits),
                        "control": case.control.value if case.control else None,
                        "defects": list(case.defects), "defect": case.defect or None,
                        "builds": case.builds, "processes": case.processes, "useful": case.useful,
                        "dangerous": case.dangerous,
                    }
                    for owner, case in rows if owner.id == repro.id
                ],
            }
            for repro in _repros(rows)
        ],
    }  # fmt: skip
