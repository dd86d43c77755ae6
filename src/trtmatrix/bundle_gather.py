"""From a cell that fails to all that its archive says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtmatrix import __version__
from trtmatrix.bundle_find import Found
from trtmatrix.context import own_platform
from trtmatrix.core.bundle.facts import ChangeLine, Failure, Recipe
from trtmatrix.core.bundle.lines import (
    Layout,
    environment_of,
    failing_build,
    kind_word,
    latest_tried,
    nearest_good,
    on_cpu_words,
    output_lines,
    version_lines,
    why_not_latest,
)
from trtmatrix.core.config import ImageOrigin, WheelsOrigin
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.lock import pin_of
from trtmatrix.core.manner import Kind, Manner, manner_of
from trtmatrix.core.model import Control, Product, Repro, release_of
from trtmatrix.core.record import RAN
from trtmatrix.core.words import PRODUCT_NAMES
from trtmatrix.effects.asked import read_recipe
from trtmatrix.effects.cases import CaseCache, read_content
from trtmatrix.effects.code import digest_program
from trtmatrix.effects.image_facts import find_image, read_os
from trtmatrix.effects.image_recipe import ImageRecipe, make_recipe
from trtmatrix.effects.remembered import Remembered

Tell = Callable[[str], None]

BY_US_ALONE = frozenset({Kind.LIMIT, Kind.REMARK})
"""Failures that no other tool can show: what the repro measures by itself, how attention was compiled."""

OWN_REFERENCE = "ONNX Runtime"


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What an archive is made of: its texts' facts, where the case's files lie, the good version's entry.

    ``build``: the number of the engine whose outputs are shown. ``recipe`` is None outside of containers.
    ``manner``: in which way the cell fails.
    """

    found: Found
    failure: Failure
    files: Path
    good: Entry | None
    build: int
    manner: Manner
    recipe: ImageRecipe | None


def gather(found: Found, archive: str, dockerfile: Path | None, tell: Tell) -> Gathered:
    """Return all that is known of a failing cell; its case is prepared where it is not.

    ``archive``: what the archive is called.
    """
    context, entry, record = found.context, found.entry, found.record
    cases = CaseCache(context.project.cache)
    if not cases.folder(found.loaded, found.case).is_dir():
        tell("preparing the case: its graph, inputs and float64 reference")
    files = cases.prepare(found.loaded, found.case)
    recipe, os = _image(found, dockerfile)
    good, build = nearest_good(found.row, entry), failing_build(record, entry, found.calibration)
    manner = manner_of(entry, found.calibration)
    if manner is None or entry.outcome is None:
        raise MachineryError(f"{entry.cell.id}: it fails, and its records do not say in which way")
    version, repro = entry.cell.version, entry.cell.repro
    newest, tried = _newest_known(version.product), latest_tried(found.row)
    failure = Failure(
        cell=entry.cell.id, product=version.product, product_name=PRODUCT_NAMES[version.product],
        version=str(record.observed.get("library") or version.library.value), title=repro.title,
        upstream=repro.upstream, url=repro.url, summary=repro.summary, kind=kind_word(manner),
        verdict=entry.outcome.verdict, reason=entry.outcome.reason, figure=entry.figure,
        figure_label=repro.figure.label, manner=manner.words, builds=entry.outcome.builds,
        failed=entry.outcome.failed, params=dict(found.case.params), precision=found.case.precision,
        environment=environment_of(record, entry.cell.version, os), image=recipe.image if recipe else None,
        outputs=output_lines(record, entry, build, _layout(record.data, files), found.calibration),
        versions=version_lines(found.row, entry), workarounds=_workarounds(repro),
        notes=tuple(_notes(found, files, good, recipe, build)),
        nearest_good=good.cell.version.name if good else "", latest=tried.cell.version.name if tried else "",
        newest_known=newest or found.row[-1].cell.version.name,
        latest_words=why_not_latest(found.row, newest),
        on_cpu=on_cpu_words(found.others), own_model=found.own_model, tool=__version__,
        measured_on=record.started[:10], is_control=found.case.control is Control.NEGATIVE,
        recipe=_asked(found, manner, files),
        reference_by=OWN_REFERENCE if found.own_model else "",
        message="" if record.ended == RAN else record.detail, archive=archive,
    )  # fmt: skip
    return Gathered(
        found=found, failure=failure, files=files, good=good, build=build, manner=manner, recipe=recipe
    )


def with_changes(gathered: Gathered, changes: Sequence[ChangeLine]) -> Gathered:
    """Return the same with what changes the failure."""
    return replace(gathered, failure=replace(gathered.failure, changes=tuple(changes)))


def with_attached(gathered: Gathered, names: tuple[str, ...]) -> Gathered:
    """Return the same with files that the user attaches."""
    return replace(gathered, failure=replace(gathered.failure, attached=names))


def _asked(found: Found, manner: Manner, files: Path) -> Recipe | None:
    """Return what other tools are to be asked for; None where none of them can show the failure."""
    if manner.kind in BY_US_ALONE:
        return None
    return read_recipe(found.loaded.file, found.case.params, files, found.entry.cell.version.product)


def _image(found: Found, dockerfile: Path | None) -> tuple[ImageRecipe | None, str]:
    """Return how to get the cell's image and the name of the operating system inside."""
    project, version, record = found.context.project, found.entry.cell.version, found.record
    origin = version.origin
    if not isinstance(origin, ImageOrigin) or record.digests.get("runtime") != "container":
        return None, ""
    ran = record.digests.get("image", "")
    held = find_image(ran) or find_image(origin.image)
    base = pin_of(found.context.lock, origin.build.base, own_platform()) if origin.build else None
    recipe = make_recipe(version, origin, ran, held, dockerfile, project.image_builder, base)
    os = read_os(held.id, Remembered(project.cache, digest_program())) if held else ""
    return recipe, os


def _layout(record: Any, files: Path) -> Layout:  # noqa: ANN401 - JSON
    """Return dtype and shape of each output: as it was kept, else the reference's shape alone."""
    import numpy as np

    references = {file.stem: np.load(file, mmap_mode="r") for file in (files / "reference").glob("*.npy")}
    layout: dict[str, tuple[str, tuple[int, ...]]] = {
        name: ("", tuple(array.shape)) for name, array in references.items()
    }
    for name, facts in record.get("kept", {}).items():
        layout[name] = str(facts["dtype"]), tuple(facts["shape"])
    return layout


def _workarounds(repro: Repro) -> tuple[str, ...]:
    return tuple(f"{item.what} ({item.source})" if item.source else item.what for item in repro.workarounds)


def _newest_known(product: Product) -> str:
    """Return the newest release of TensorRT whose API surface is known; nothing of other products."""
    if product is not Product.TENSORRT:
        return ""
    from trtmatrix.effects.surfaces import read_store

    return max(read_store().origins, key=release_of, default="")


def _notes(
    found: Found, files: Path, good: Entry | None, recipe: ImageRecipe | None, build: int
) -> list[str]:
    """Return what a reader must know that stands nowhere else."""
    entry, record = found.entry, found.record
    notes = list(recipe.notes) if recipe else [_runtime(found)]
    content = record.digests.get("content")
    if content != read_content(files):
        since = "is older than such digests" if content is None else "was made with other files"
        notes.append(f"Graph and inputs were made by the present repro; the record {since}.")
    if build:
        notes.append(f"The outputs and figures shown are of engine {build + 1} of {len(record.builds)}.")
    if good is None:
        notes.append("No version is known here that passes with a record of its own.")
    if entry.overruled:
        notes.append(entry.overruled)
    return notes


def _runtime(found: Found) -> str:
    origin = found.entry.cell.version.origin
    if isinstance(origin, WheelsOrigin):
        return f"It ran outside of containers, in an environment with {', '.join(origin.wheels)} from PyPI."
    return "It ran outside of containers, in an interpreter of the host."
