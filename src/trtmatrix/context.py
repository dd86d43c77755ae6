"""What every command starts from: the project's files read, the host looked at, cells expanded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.core.compare import Entry, Stored, make_entries
from trtmatrix.core.config import ImageOrigin, Matrix, WheelsOrigin
from trtmatrix.core.errors import ConfigError, UsageError
from trtmatrix.core.expand import Cell, Selection, expand
from trtmatrix.core.matrixfile import parse_matrix
from trtmatrix.core.model import NO_GPU, Gpu, Product, Repro
from trtmatrix.core.plan import Excluded, Host, Plan, Pull, make_plan
from trtmatrix.core.record import Record
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.gpu import GpuScan, find_gpus, named_gpus
from trtmatrix.effects.paths import Project, default_cache
from trtmatrix.effects.repro_files import LoadedRepro, digest_package, read_repros
from trtmatrix.effects.store import read_records
from trtmatrix.workshop import current_digests

RUNTIMES = ("container", "wheels", "host")


@dataclass(frozen=True, kw_only=True)
class Context:
    """The project as read, and what the user selected of it; ``controls``: these go along."""

    project: Project
    matrix: Matrix
    repros: dict[str, LoadedRepro]
    selection: Selection
    pythons: tuple[str, ...]
    controls: bool = True

    @property
    def plain_repros(self) -> list[Repro]:
        """The repros without their modules."""
        return [loaded.repro for loaded in self.repros.values()]


def open_context(args: argparse.Namespace) -> Context:
    """Read matrix.yaml and the repros, check the selection; all mistakes are told, nothing written."""
    project = Project(
        matrix=args.matrix, repros=args.repros, results=args.results,
        cache=(args.cache or default_cache()).resolve(),
    )  # fmt: skip
    selection = _selection(args)
    problems: list[str] = []
    matrix, loaded = None, []
    try:
        matrix = read_matrix(project.matrix)
    except ConfigError as error:
        problems += error.problems
    try:
        loaded = read_repros(project.repros)
    except ConfigError as error:
        problems += error.problems
    if matrix is None or problems:
        raise ConfigError(problems)
    repros = {item.repro.id: item for item in loaded}
    context = Context(
        project=project, matrix=matrix, repros=repros, selection=selection,
        pythons=tuple(getattr(args, "python", []) or [sys.executable]),
        controls=not getattr(args, "no_controls", False),
    )  # fmt: skip
    expand(matrix, context.plain_repros, [NO_GPU], selection)
    return context


def read_matrix(path: Path) -> Matrix:
    """Read matrix.yaml; :class:`ConfigError` where it is not there or has mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [
                f"{path}: cannot be read: {error}; run this in the project's folder, "
                "or name the file by --matrix"
            ]
        ) from error
    return parse_matrix(text, str(path))


def _selection(args: argparse.Namespace) -> Selection:
    names = {name: tuple(getattr(args, name, [])) for name in ("trt", "repro", "case", "gpu", "runtime")}
    for runtime in names["runtime"]:
        if runtime not in RUNTIMES:
            raise UsageError(f"--runtime {runtime}: known are {', '.join(RUNTIMES)}")
    return Selection(
        versions=names["trt"], repros=names["repro"], cases=names["case"], gpus=names["gpu"],
        runtimes=names["runtime"],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The host, the cells over its GPUs, and the plan for them."""

    host: Host
    scan: GpuScan
    cells: tuple[Cell, ...]
    plan: Plan
    stored: tuple[Stored, ...]


def look_around(context: Context, pull: Pull) -> Scene:
    """Find GPUs, engine and records, and plan; touches nothing."""
    scan = find_gpus()
    host = find_host(context, scan)
    stored = tuple(without_superseded(read_records(context.project.results)))
    gpus = table_gpus(context, scan, stored)
    cells = expand(context.matrix, context.plain_repros, gpus, context.selection, companions=context.controls)
    plan = make_plan(cells, host, context.selection, pull)
    return Scene(host=host, scan=scan, cells=cells, plan=plan, stored=stored)


def without_superseded(stored: Sequence[Stored]) -> list[Stored]:
    """Leave out records whose outputs were measured again: another record stands for the same engines."""
    again = {(s.record.cell, s.record.remeasured_from) for s in stored if s.record.remeasured_from}
    return [item for item in stored if (item.record.cell, item.record.run) not in again]


def find_host(context: Context, scan: GpuScan) -> Host:
    """Look at the engine and, where asked for, at the host's interpreters."""
    from trtmatrix.effects.containers import find_engine
    from trtmatrix.effects.interpreters import find_tensorrt

    asked = "host" in context.selection.runtimes
    return Host(
        engine=find_engine(gpu_here=bool(scan.gpus)), gpus=scan.gpus,
        interpreters=find_tensorrt(list(context.pythons)) if asked else {},
        builds_images=context.project.image_builder is not None,
    )  # fmt: skip


def table_gpus(context: Context, scan: GpuScan, stored: Sequence[Stored]) -> tuple[Gpu, ...]:
    """Return the GPUs of the tables: those named, else those here and those that have records."""
    if context.selection.gpus:
        return named_gpus(context.selection.gpus, [*scan.gpus, *recorded_gpus(stored).values()])
    gpus = {gpu.slug: gpu for gpu in reversed(scan.gpus)}  # of equal ones the first
    for slug, facts in recorded_gpus(stored).items():
        gpus.setdefault(slug, facts)
    return tuple(gpus.values()) or (NO_GPU,)


def recorded_gpus(stored: Sequence[Stored]) -> dict[str, Gpu]:
    """Return the GPUs that records of TensorRT name, each with every driver that was recorded."""
    seen: dict[str, list[Record]] = {}
    for item in stored:
        if item.record.product is Product.TENSORRT and item.record.gpu.get("name"):
            seen.setdefault(item.record.cell.gpu, []).append(item.record)
    return {slug: _recorded_gpu(slug, records) for slug, records in sorted(seen.items())}


def _recorded_gpu(slug: str, records: Sequence[Record]) -> Gpu:
    def all_of(key: str) -> str:
        return ", ".join(sorted({str(r.gpu[key]) for r in records if r.gpu.get(key)}))

    return Gpu(
        slug=slug, name=str(records[0].gpu["name"]), variant=all_of("variant"),
        compute=all_of("compute") or None, driver=all_of("driver") or None,
    )  # fmt: skip


def origin_digests(cell: Cell, host: Host, *, on_host: bool) -> dict[str, str]:
    """Return how a record's version must have been started to be current: the runtime, the image.

    ``on_host``: interpreters of the host were asked for; their records are never a container's.
    """
    if on_host and cell.version.product is Product.TENSORRT:
        return {"runtime": "host"}
    image = image_digest(cell, host)
    return {"runtime": cell.version.runtime, **({"image": image} if image is not None else {})}


def image_digest(cell: Cell, host: Host) -> str | None:
    """Return the digest that a record's image must have to be current, where it is known here."""
    from trtmatrix.effects.interpreters import environment_digest

    match cell.version.origin:
        case WheelsOrigin(wheels=wheels):
            return environment_digest(wheels)
        case ImageOrigin(image=image) if cell.gpu.present or cell.version.product is not Product.TENSORRT:
            return host.engine.images.get(image)
        case _:
            return None


def entries_of(
    context: Context, scene: Scene, stored: Sequence[Stored], extra: Sequence[Excluded] = (),
    executed: frozenset[str] = frozenset(),
) -> tuple[Entry, ...]:  # fmt: skip
    """Return what the tables show."""
    current = current_digests(
        scene.cells,
        context.repros,
        digest_package("trtprobe"),
        lambda c: origin_digests(c, scene.host, on_host="host" in context.selection.runtimes),
    )
    return make_entries(
        scene.cells, stored, current, [*scene.plan.excluded, *extra], executed,
        calibration=read_calibration(),
    )  # fmt: skip
