"""The digests that a record must have to stand for a cell: of its repro, case, probe, image and runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from trtmatrix.launchers.wheels import environment_digest
from trtmatrix.prepare.cases import case_digest
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import CellId, Product
from trtmatrix.suite.plan import Host
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case


def current_digests(
    cells: Sequence[Cell],
    repros: Mapping[str, LoadedRepro],
    probe: str,
    origin: Callable[[Cell], Mapping[str, str]],
) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current (see ``is_digest_of``).

    ``origin`` gives those that its version and GPU have at any case.
    """
    cases: dict[tuple[str, str], dict[str, str]] = {}
    columns: dict[tuple[str, str], Mapping[str, str]] = {}
    found = {}
    for cell in cells:
        row, column = (cell.repro.id, cell.case.id), (cell.version.name, cell.gpu.slug)
        if row not in cases:
            cases[row] = {**cell_digests(cell, repros[cell.repro.id]), "probe": probe}
        if column not in columns:
            columns[column] = origin(cell)
        found[cell.id] = {**cases[row], **columns[column]}
    return found


def cell_digests(cell: Cell, loaded: LoadedRepro) -> dict[str, str]:
    """Return the digests of a cell's repro and case, and of what is asked of it."""
    return {
        "repro": f"{loaded.repro.digest[:32]}{loaded.code.authoring[:32]}",
        "case": case_digest(cell.case),
        "asked": asked_digest(cell.case),
    }


def asked_digest(case: Case) -> str:
    """Return the SHA-256 of what is asked of a case's measurement beside its parameters (hexadecimal).

    Its limits, expectations and the like are no part of it: they judge what was measured.
    """
    asked: list[object] = [sorted(case.defects), case.builds, case.processes, case.seconds]
    if case.tolerance:  # the run counts what is beyond it
        asked.append(sorted(case.tolerance.items()))
    return sha256(json.dumps(asked).encode()).hexdigest()


def origin_digests(cell: Cell, host: Host, *, on_host: bool) -> dict[str, str]:
    """Return how a record's version must have been started to be current: the runtime, the image.

    ``on_host``: interpreters of the host were asked for; their records are never a container's.
    """
    if on_host and cell.version.product is Product.TENSORRT:
        return {"runtime": "host"}
    image = image_digest(cell, host)
    return {"runtime": cell.version.runtime, **({"image": image} if image is not None else {})}


def image_digest(cell: Cell, host: Host) -> str | None:
    """Return the digest that a record's image must have to be current, where it is known here.

    A locked image is known whether it is here or not: under any of the IDs that engines give it.
    """
    match cell.version.origin:
        case WheelsOrigin(wheels=wheels):
            return environment_digest(wheels)
        case ImageOrigin() as origin if cell.gpu.present or cell.version.product is not Product.TENSORRT:
            return " ".join(origin.pin.ids) if origin.pin is not None else host.engine.held(origin)
        case _:
            return None
