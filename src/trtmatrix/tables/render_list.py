"""What ``list`` prints: versions with their facts, repros with their cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from tabulate import tabulate

from trtmatrix.judge.entry import Standing
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Product
from trtmatrix.suite.repros import Case, Repro

Rows = Sequence[tuple[Repro, Case]]


def origin_text(version: Version) -> str:
    """Return where a version comes from, in one phrase."""
    origin = version.origin
    if isinstance(origin, ImageOrigin):
        return origin.image + (" (built here)" if origin.build else "")
    return ", ".join(origin.wheels)


def list_text(versions: Sequence[Version], rows: Rows, standings: Mapping[str, Standing]) -> str:
    """Return the lists for a terminal; ``standings``: how the results of each version are known."""
    lines = []
    for version in versions:
        standing, on_trt = standings[version.name], version.product is Product.TENSORRT
        results = standing.value if on_trt or standing is not Standing.PLANNED else "run here"
        library = version.library
        lines.append((version.name, results, library.value, library.known.value, origin_text(version)))
    parts = [tabulate(lines, ("version", "results", "library", "known", "origin"), disable_numparse=True)]
    for repro, cases in _by_repro(rows):
        about = [f"{repro.id}: {repro.title} · {repro.upstream}", repro.url]
        for name, defect in repro.defects.items():
            about.append(f"  known defect {name}: {defect.what} · {defect.upstream}".removesuffix(" · "))
        about += [f"  {c.id}" + (f" ({c.control.value} control)" if c.control else "") for c in cases]
        parts.append("\n".join(about))
    return "\n\n".join(parts)


def _by_repro(rows: Rows) -> list[tuple[Repro, list[Case]]]:
    repros = {repro.id: repro for repro, _ in rows}
    return [(repro, [case for owner, case in rows if owner.id == name]) for name, repro in repros.items()]


def list_json(versions: Sequence[Version], rows: Rows, standings: Mapping[str, Standing]) -> dict[str, Any]:
    """Return the lists as plain data, by the keys of matrix.yaml and of the repros."""
    facts = {"id", "title", "upstream", "url", "defects"}
    return {
        "versions": [_VERSION.dump_python(version, mode="json", exclude_none=True) for version in versions],
        "results": {name: standing.value for name, standing in standings.items()},
        "repros": [
            {
                **_FACTS.dump_python(repro, mode="json", include=facts),
                "cases": [_CASE.dump_python(case, mode="json") for case in cases],
            }
            for repro, cases in _by_repro(rows)
        ],
    }


_VERSION, _FACTS, _CASE = TypeAdapter(Version), TypeAdapter(Repro), TypeAdapter(Case)
