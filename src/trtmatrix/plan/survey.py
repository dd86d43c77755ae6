"""What is here: the host, the cells with their plan, the stored records, and what the tables show of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trtmatrix.judge.calibration import read_calibration
from trtmatrix.judge.compare import Entry, Stored, make_entries
from trtmatrix.judge.controls import expand_with_controls
from trtmatrix.judge.record import Record
from trtmatrix.judge.standing import Standing, standing_of
from trtmatrix.launchers.gpu import GpuScan, find_gpus, named_gpus
from trtmatrix.plan.context import Context, own_platform
from trtmatrix.plan.stale import current_digests, origin_digests
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import Cell, expand
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import NO_GPU, CellId, Gpu, Product
from trtmatrix.suite.plan import CHILDREN, Engine, Excluded, Host, Plan, Pull, make_plan


class Nodes(Protocol):
    """A cluster's nodes, whose GPUs stand for this host's; :mod:`trtmatrix.slurm.cluster` has one."""

    def host(self, stored: Iterable[Stored]) -> Host:
        """Return them together as one host, as records and digests see it."""

    def planned(self, context: Context, stored: Sequence[Stored]) -> Host:
        """Return the same host as a plan sees it, which counts on the images that nodes have."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The host, the cells over its GPUs, and the plan for them.

    ``nodes``: whose GPUs stand for its own; ``nodes_host``: they as one host.
    """

    host: Host
    scan: GpuScan
    cells: tuple[Cell, ...]
    plan: Plan
    stored: tuple[Stored, ...]
    nodes: Nodes | None = None
    nodes_host: Host | None = None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that cells can run on."""
        return (self.nodes_host or self.host).gpus

    def host_of(self, cell: Cell) -> Host:
        """Return where a cell is run: on the cluster's nodes where there is one and it needs a GPU."""
        on_gpu = cell.version.product is Product.TENSORRT
        return self.nodes_host if self.nodes_host is not None and on_gpu else self.host

    @property
    def here_alone(self) -> Survey:
        """The survey without what a cluster's nodes run: their own jobs tell what they lack."""
        return replace(self, plan=replace(self.plan, launches=self.plan.here))

    def seen_since(self, stored: Iterable[Stored]) -> Survey:
        """Return the survey with the boards that a cluster's jobs have found by now."""
        if self.nodes is None:
            return self
        host = self.nodes.host(stored)
        gpus = {gpu.slug: gpu for gpu in host.gpus}
        cells = tuple(replace(cell, gpu=gpus.get(cell.gpu.slug, cell.gpu)) for cell in self.cells)
        return replace(self, nodes_host=host, cells=cells)


def take_survey(context: Context, pull: Pull, nodes: Nodes | None = None) -> Survey:
    """Find GPUs (of a cluster's ``nodes`` where there are any), engine and records, and plan.

    Nothing is changed.
    """
    scan = find_gpus() if nodes is None else GpuScan(gpus=(), reason="--executor slurm: those of the site")
    host, stored = find_host(context, scan), tuple(read_records(context.project.results))
    nodes_host = nodes.host(stored) if nodes is not None else None
    gpus = table_gpus(context, (nodes_host or host).gpus, stored)
    every = expand_with_controls if context.controls else expand
    cells = every(context.matrix, context.plain_repros, gpus, context.selection)
    there = nodes.planned(context, stored) if nodes is not None else None
    plan = plan_cells(cells, host, context, pull, there)
    if hidden := find_hidden(context, stored, plan):
        cells = tuple(cell for cell in cells if cell.version.name not in hidden)
        shown = tuple(item for item in plan.excluded if item.cell.version.name not in hidden)
        plan = replace(plan, excluded=shown)
    return Survey(
        host=host, scan=scan, cells=cells, plan=plan, stored=stored, nodes=nodes, nodes_host=nodes_host
    )


def find_hidden(context: Context, stored: Iterable[Stored], plan: Plan) -> frozenset[str]:
    """Return the versions that are not shown: planned, not asked for by name and not run here."""
    if context.selection.versions:
        return frozenset()
    planned = _find_planned(context, stored)
    return planned - {launch.version.name for launch in plan.launches}


def _find_planned(context: Context, stored: Iterable[Stored]) -> frozenset[str]:
    """Return TensorRT's additions to the agreed versions of which nothing is known yet."""
    recorded, repros = {item.record.cell.version for item in stored}, context.plain_repros
    return frozenset(
        version.name for version in context.matrix.versions
        if version.addition and version.product is Product.TENSORRT
        and standing_of(version, repros, recorded) is Standing.PLANNED
    )  # fmt: skip


def plan_cells(cells: Sequence[Cell], host: Host, context: Context, pull: Pull, nodes: Host | None) -> Plan:
    """Plan what this host runs, and what a cluster's nodes do where there is one."""
    if nodes is None:
        return make_plan(cells, host, context.selection, pull)
    here = [cell for cell in cells if cell.version.product is not Product.TENSORRT]
    there = [cell for cell in cells if cell.version.product is Product.TENSORRT]
    ours = make_plan(here, host, context.selection, pull)
    theirs = make_plan(there, nodes, context.selection, pull)
    return Plan(
        launches=(*theirs.launches, *ours.launches), excluded=(*theirs.excluded, *ours.excluded),
        boards=ours.boards,
    )  # fmt: skip


def find_host(context: Context, scan: GpuScan) -> Host:
    """Look at the engine and, where asked for, at the host's interpreters."""
    from trtmatrix.launchers.interpreters import find_tensorrt

    asked = "host" in context.selection.runtimes
    engine = find_engine_of(context, scan)
    return Host(
        engine=engine, gpus=scan.gpus,
        offline=context.offline, lacking=lacking_wheels(context) if context.offline else {},
        interpreters=find_tensorrt(list(context.pythons)) if asked else {},
        builds_images=context.project.image_builder is not None and engine.is_daemon,
    )  # fmt: skip


def find_engine_of(context: Context, scan: GpuScan) -> Engine:
    """Look at the engine that is meant; a file of the user's counts as an image that is here."""
    if context.engine in CHILDREN:
        from trtmatrix.launchers.child_containers import find_child_engine

        engine = find_child_engine(context.engine, context.project.cache, gpu_here=bool(scan.gpus))
        engine = replace(engine, platform=own_platform())
    else:
        from trtmatrix.launchers.docker_engine import find_engine

        engine = find_engine(gpu_here=bool(scan.gpus), offline=context.offline)
    origins = [v.origin for v in context.matrix.versions if isinstance(v.origin, ImageOrigin)]
    files = {o.image: o.pin.ids[0] for o in origins if o.is_file and o.pin is not None}
    return replace(engine, images={**engine.images, **files}) if files else engine


def lacking_wheels(context: Context) -> dict[str, str]:
    """Return what each version of wheels lacks that is neither installed nor in the wheelhouse, in words."""
    from trtmatrix.launchers.wheels import find_lacking, find_wheelhouse, is_installed

    wheelhouse, lacking = find_wheelhouse(context.project.folder), {}
    for version in context.matrix.versions:
        origin = version.origin
        if not isinstance(origin, WheelsOrigin):
            continue
        if is_installed(context.project.cache, version.name, origin.wheels):
            continue
        if words := find_lacking(wheelhouse, origin.wheels):
            lacking[version.name] = words
    return lacking


def table_gpus(context: Context, here: Sequence[Gpu], stored: Sequence[Stored]) -> tuple[Gpu, ...]:
    """Return the GPUs of the tables: those named, else those here and those that have records."""
    if context.selection.gpus:
        return named_gpus(context.selection.gpus, [*here, *recorded_gpus(stored).values()])
    gpus = {gpu.slug: gpu for gpu in reversed(here)}  # of equal ones the first
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


def digests_now(context: Context, survey: Survey) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current."""
    return current_digests(
        survey.cells,
        context.repros,
        context.code.probe,
        lambda c: origin_digests(c, survey.host_of(c), on_host="host" in context.selection.runtimes),
    )


def entries_of(
    context: Context, survey: Survey, stored: Sequence[Stored], extra: Sequence[Excluded] = (),
    executed: frozenset[str] = frozenset(),
) -> tuple[Entry, ...]:  # fmt: skip
    """Return what the tables show."""
    return make_entries(
        survey.cells, stored, digests_now(context, survey), [*survey.plan.excluded, *extra], executed,
        calibration=read_calibration(),
    )  # fmt: skip
