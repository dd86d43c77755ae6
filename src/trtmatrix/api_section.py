"""The API part of an upgrade report: the difference of two surfaces, and where the user's code meets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.core.api import ApiUse, Certainty
from trtmatrix.core.upgrade.report import ApiSection, Source

if TYPE_CHECKING:
    from trtmatrix.core.api import Surface
    from trtmatrix.core.surface_bracket import Bracket
    from trtmatrix.effects.surfaces import Surfaces


def make_api_section(results: Path, before: str, after: str, code: Sequence[Path] = ()) -> ApiSection:
    """Compare the surfaces of two versions and scan code for what changes; the code is never run.

    Where a version's own is not known, the nearest around the move stands in for it (``stands_in``), and what
    may have changed outside of the move is only a possible use. Never raises for a surface that is not there:
    ``lacking`` says why there is nothing to show, and what would supply it.
    """
    from trtmatrix.core.codescan.scan import scan_code
    from trtmatrix.core.surface_bracket import compare_bracket
    from trtmatrix.core.surface_diff import find_behaviours
    from trtmatrix.effects.code_files import read_code
    from trtmatrix.effects.surfaces import read_change_table, read_surfaces

    surfaces = read_surfaces(results)
    missing = [name for name in (before, after) if surfaces.of(name) is None]
    named = tuple(str(path) for path in code)
    if (bracket := surfaces.between(before, after)) is None:
        return ApiSection(code=named, lacking=f"{_unknown(missing, surfaces)}. {_reads(missing)}")
    table = read_change_table()
    changes = compare_bracket(bracket, table)
    behaviours = find_behaviours(before, after, table)
    files = read_code(code)
    scan = scan_code(files.texts, bracket.before, changes, behaviours, after)
    uses = tuple(doubt_use(use, bracket) for use in scan.uses)
    return ApiSection(
        changes=changes, behaviours=behaviours, uses=uses, code=named, files=len(files.texts),
        unread=(*sorted(files.unread), *scan.unread),
        surfaces=(_source(bracket.before), _source(bracket.after)),
        stands_in=f"{bracket.lacking}. {_reads(missing)}" if missing else "",
    )  # fmt: skip


def doubt_use(use: ApiUse, bracket: Bracket) -> ApiUse:
    """Return a use as it is known where a stand-in was compared: its name may change outside of the move."""
    from trtmatrix.core.surface_bracket import is_open

    if use.certainty is Certainty.POSSIBLE or not is_open(use.change, bracket):
        return use
    return replace(use, certainty=Certainty.POSSIBLE, why="it may have changed before or after this move")


def _source(surface: Surface) -> Source:
    """Return where a surface was read, in words."""
    origin = surface.origin
    of = origin.wheel or origin.image or "the bindings here"
    read = f", read {origin.extracted}" if origin.extracted else ""
    return Source(title=f"TensorRT {surface.version}: {of}{read}")


def _unknown(missing: Sequence[str], surfaces: Surfaces) -> str:
    known = ", ".join(surfaces.versions) or "none"
    return f"the API of TensorRT {' and '.join(missing)} is not known here (known: {known})"


def _reads(missing: Sequence[str]) -> str:
    """Say what reads the surfaces that are missing."""
    return f"nox -s matrix -- --trt {','.join(missing)} reads it inside the image on the first run"
