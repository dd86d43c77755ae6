"""The API part of an upgrade report: the difference of two surfaces, and where the user's code meets it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.core.upgrade.report import ApiSection, Source

if TYPE_CHECKING:
    from trtmatrix.core.api import Surface
    from trtmatrix.effects.surfaces import Surfaces


def make_api_section(results: Path, before: str, after: str, code: Sequence[Path] = ()) -> ApiSection:
    """Compare the surfaces of two versions and scan code for what changes; the code is never run.

    Never raises for a surface that is not there: ``lacking`` says why, and what would supply it.
    """
    from trtmatrix.core.codescan.scan import scan_code
    from trtmatrix.core.surface_diff import compare_surfaces, find_behaviours
    from trtmatrix.effects.code_files import read_code
    from trtmatrix.effects.surfaces import read_change_table, read_surfaces

    surfaces = read_surfaces(results)
    old, new = surfaces.of(before), surfaces.of(after)
    named = tuple(str(path) for path in code)
    if old is None or new is None:
        missing = [name for name, found in ((before, old), (after, new)) if found is None]
        return ApiSection(code=named, lacking=_lacking(missing, surfaces))
    table = read_change_table()
    changes = compare_surfaces(old, new, table)
    behaviours = find_behaviours(before, after, table)
    files = read_code(code)
    scan = scan_code(files.texts, old, changes, behaviours, after)
    return ApiSection(
        changes=changes, behaviours=behaviours, uses=scan.uses, code=named, files=len(files.texts),
        unread=(*sorted(files.unread), *scan.unread), surfaces=(_source(old), _source(new)),
    )  # fmt: skip


def _source(surface: Surface) -> Source:
    """Return where a surface was read, in words."""
    origin = surface.origin
    of = origin.wheel or origin.image or "the bindings here"
    read = f", read {origin.extracted}" if origin.extracted else ""
    return Source(title=f"TensorRT {surface.version}: {of}{read}")


def _lacking(missing: Sequence[str], surfaces: Surfaces) -> str:
    """Say which surfaces are not known, which are, and what reads them."""
    known = ", ".join(surfaces.versions) or "none"
    several = " and ".join(missing)
    return (
        f"the API of TensorRT {several} is not known here (known: {known}). NVIDIA publishes it inside the image only: "
        f"nox -s matrix -- --trt {','.join(missing)} reads it on the first run of that version"
    )
