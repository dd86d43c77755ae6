"""The files of a failing cell's archive: what it is run with, what was recorded, and the texts over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.bundle_gather import Gathered
from trtmatrix.core.bundle import facts
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.judge import subject_of
from trtmatrix.core.record import Record
from trtmatrix.effects.packing import Part
from trtmatrix.effects.store import read_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, "NDArray[Any] | Path"]

RUN_WITH, CHECKED_BY, COMPARED, SEEN, ASKED_FOR = 1, 2, 3, 4, 5
"""Ranks: where all does not fit the highest are left out first."""


def data_parts(gathered: Gathered, attached: Mapping[str, Path]) -> list[Part]:
    """Return all but the texts that tell of the others; ``attached``: name → file, as the user asked."""
    record, good = gathered.found.record, gathered.good
    parts = [*_models(gathered), *_arrays(gathered)]
    parts += [
        _json(facts.RECORD, record, "the record of the run, as it was stored"),
        Part(name=facts.LAYERS, text=to_json(layers_of(record)), rank=COMPARED,
             what="of each engine: layers, tactics, size, seconds, clocks"),
    ]  # fmt: skip
    if log := str(record.data.get("log", "")):
        what = "the product's own words of that run"
        parts.append(Part(name=facts.LOG, text=log, what=what, rank=CHECKED_BY))
    if good is not None and good.record is not None:
        what = f"the record of {good.cell.version.name}, the nearest version that passes"
        parts.append(_json(facts.GOOD_RECORD, good.record, what))
    for name, content in (gathered.recipe.files if gathered.recipe else {}).items():
        parts.append(Part(name=f"{facts.IMAGE}/{name}", data=content, what="how the image is built"))
    for name, file in attached.items():
        weights = gathered.found.own_model and file.suffix != ".json"  # a capture's calls are text
        what = "attached as asked for: it may hold the model's weights"
        parts.append(Part(name=name, file=file, what=what, rank=ASKED_FOR, weights=weights))
    return parts


def _json(name: str, record: Record, what: str) -> Part:
    return Part(name=name, text=to_json(record.data), what=what)


def layers_of(record: Record) -> dict[str, Any]:
    """Return what the product told of each engine of a record, as a JSON object."""
    data = record.data
    engines = [build.get("engine", {}) for build in data.get("builds") or [data]]
    return {"version": record.cell.version, "engines": engines}


def _models(gathered: Gathered) -> Iterator[Part]:
    """Yield the graph, the files of its weights, and the graphs that it is compared with."""
    folder, own = gathered.files, gathered.found.own_model
    whose = "your own model: its graph and weights" if own else "the graph with its weights"
    yield Part(name=facts.MODEL, file=folder / "model.onnx", what=whose, weights=own, rank=RUN_WITH)
    check = folder / "check.onnx"
    if check.is_file():
        yield Part(name=check.name, file=check, what="the same graph for ONNX Runtime", rank=COMPARED)
    for file in sorted((folder / facts.OTHERS).glob("*.onnx")):
        what = "a graph that it is compared with"
        yield Part(name=f"{facts.OTHERS}/{file.name}", file=file, what=what, rank=SEEN)
    for name in external_files(folder):
        yield Part(name=name, file=folder / name, what="weights of the graph", weights=own, rank=RUN_WITH)


def external_files(folder: Path) -> list[str]:
    """Return the files with the weights of a prepared graph, by the names that it gives them."""
    from trtmatrix.effects.store import read_json

    return sorted((read_json(folder / "case.json") or {}).get("external", {}))


def _arrays(gathered: Gathered) -> Iterator[Part]:
    folder = gathered.files
    yield Part(
        name=facts.INPUTS, arrays=_files(folder / "inputs"), what="inputs, by name", rank=RUN_WITH,
    )  # fmt: skip
    for name, arrays, what, rank in (
        (facts.REFERENCE, _files(folder / "reference"), "the float64 reference of each output", CHECKED_BY),
        (facts.EXTRA, _files(folder / "extra"), "arrays that the repro needs beside the graph", RUN_WITH),
        (facts.DEFECTS, _defects(folder), "what known defects add to an output", COMPARED),
        (facts.BAD_OUTPUTS, _outputs(gathered, gathered.found.record, gathered.build), "what came out", SEEN),
        (facts.GOOD_OUTPUTS, _good_outputs(gathered), "what came out of the good version", SEEN),
    ):
        if arrays:
            floors = _floors(gathered) if name == facts.REFERENCE else {}
            coarse = name == facts.DEFECTS
            yield Part(name=name, arrays=arrays, what=what, rank=rank, floors=floors, coarse=coarse)


def _files(folder: Path) -> dict[str, Path]:
    return {file.stem: file for file in sorted(folder.glob("*.npy"))}


def _defects(folder: Path) -> dict[str, Path]:
    """Return the shapes of known defects as ``<defect>/<output>``."""
    return {f"{file.parent.name}/{file.stem}": file for file in sorted((folder / "defects").glob("*/*.npy"))}


def _floors(gathered: Gathered) -> dict[str, float]:
    """Return the noise floor of each output that has one."""
    found = gathered.found
    subject = subject_of(found.record, found.case, found.entry.cell.repro, found.calibration)
    if subject.noise is None:
        return {}
    floors = {name: subject.noise.floor(name, subject.precision) for name in subject.noise.outputs}
    return {name: floor for name, floor in floors.items() if floor}


def _good_outputs(gathered: Gathered) -> Arrays:
    record = gathered.good.record if gathered.good else None
    return {} if record is None else _outputs(gathered, record, 0)


def _outputs(gathered: Gathered, record: Record, build: int) -> Arrays:
    """Return the outputs of one engine that were kept and are still in the cache."""
    mark, cache = f"@{build}" if build else "", gathered.found.context.project.cache
    found: dict[str, NDArray[Any] | Path] = {}
    for name in record.builds[build].outputs:
        facts_of = record.data.get("kept", {}).get(name + mark)
        output = read_output(cache, str(facts_of["sha256"])) if facts_of else None
        if output is not None:
            found[name] = output
    return found


def lacking_outputs(gathered: Gathered) -> list[str]:
    """Return what is to be told of outputs that are not there."""
    told = []
    pairs = [("of this run", gathered.found.record, gathered.build)]
    if gathered.good is not None and gathered.good.record is not None:
        pairs.append((f"of {gathered.good.cell.version.name}", gathered.good.record, 0))
    for whose, record, build in pairs:
        wanted, found = set(record.builds[build].outputs), set(_outputs(gathered, record, build))
        if wanted - found:
            kept = (
                "were not kept (right ones are not)"
                if not record.data.get("kept")
                else "are not on this host"
            )
            told.append(f"The outputs {whose} {kept}: {', '.join(sorted(wanted - found))}.")
    return told


def with_notes(gathered: Gathered, notes: Sequence[str]) -> Gathered:
    """Return the same with more notes."""
    failure = replace(gathered.failure, notes=(*gathered.failure.notes, *notes))
    return replace(gathered, failure=failure)
