"""What ``list`` prints: versions with their facts, repros with their cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from trtmatrix.suite.matrix import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.suite.repros import Case, Repro

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
    parts = [_columns([heads, *table])]
    if any(version.addition for version in versions):
        parts.append("+ an addition to the seven versions that were agreed")
    parts += [_repro_text(repro, rows) for repro in _repros(rows)]
    return "\n\n".join(parts)


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, the first one underlined; tabulate takes longer to import than all else."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


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
        "versions": [_plain(asdict(version)) for version in versions],
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


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a dataclass
    """Return what JSON can hold: enums by their value, without what is None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value
