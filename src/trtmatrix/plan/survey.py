"""What is here: the host, the cells with their plan, the stored records, and what the tables show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trtmatrix.common.errors import UsageError
from trtmatrix.judge.compare import make_entries
from trtmatrix.judge.controls import expand_with_controls
from trtmatrix.judge.entry import Entry, Standing, Stored, standing_of
from trtmatrix.judge.noise import read_calibration
from trtmatrix.judge.record import Record
from trtmatrix.launchers.gpu import GpuScan, find_gpus, known_gpu, named_gpus
from trtmatrix.plan.context import Context, own_platform
from trtmatrix.plan.order import cell_digests, origin_digests
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import Cell, expand
from trtmatrix.suite.digest import digest_own_code
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import NO_GPU, CellId, Gpu, Product
from trtmatrix.suite.plan import CHILDREN, Excluded, Host, Plan, Pull, make_plan


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

    Nothing is changed. A version that is only planned is not shown, unless it was named or runs here.
    """
    scan = find_gpus() if nodes is None else GpuScan(gpus=(), reason="--executor slurm: those of the site")
    host, stored = _find_host(context, scan), tuple(read_records(context.project.results))
    nodes_host = nodes.host(stored) if nodes is not None else None
    present, recorded = (nodes_host or host).gpus, recorded_gpus(stored)
    first = {gpu.slug: gpu for gpu in reversed(present)}  # of equal ones
    gpus = tuple({**recorded, **first}[slug] for slug in {**first, **recorded}) or (NO_GPU,)
    if context.selection.gpus:
        gpus = named_gpus(context.selection.gpus, [*present, *recorded.values()])
    every = expand_with_controls if context.controls else expand
    cells = every(context.matrix, context.plain_repros, gpus, context.selection)
    if nodes is None:
        plan = make_plan(cells, host, context.selection, pull)
    else:  # TensorRT runs on the nodes, the rest here
        there = [cell for cell in cells if cell.version.product is Product.TENSORRT]
        here = [cell for cell in cells if cell.version.product is not Product.TENSORRT]
        theirs = make_plan(there, nodes.planned(context, stored), context.selection, pull)
        ours = make_plan(here, host, context.selection, pull)
        plan = replace(
            ours, launches=theirs.launches + ours.launches, excluded=theirs.excluded + ours.excluded
        )
    if not context.selection.versions:
        measured = {item.record.cell.version for item in stored}
        runs = {launch.version.name for launch in plan.launches}
        hidden = {
            version.name for version in context.matrix.versions
            if version.addition and version.product is Product.TENSORRT and version.name not in runs
            and standing_of(version, context.plain_repros, measured) is Standing.PLANNED
        }  # fmt: skip
        cells = tuple(cell for cell in cells if cell.version.name not in hidden)
        shown = tuple(item for item in plan.excluded if item.cell.version.name not in hidden)
        plan = replace(plan, excluded=shown)
    return Survey(
        host=host, scan=scan, cells=cells, plan=plan, stored=stored, nodes=nodes, nodes_host=nodes_host
    )


def _find_host(context: Context, scan: GpuScan) -> Host:
    """Look at the engine that is meant, at wheels where no network may be used, and at named interpreters."""
    from trtmatrix.launchers.wheels import find_tensorrt

    project, lacking = context.project, dict[str, str]()
    if context.engine in CHILDREN:
        from trtmatrix.launchers.child_containers import find_child_engine

        engine = find_child_engine(context.engine, project.cache, gpu_here=bool(scan.gpus))
        engine = replace(engine, platform=own_platform())
    else:
        from trtmatrix.launchers.docker_engine import find_engine

        engine = find_engine(gpu_here=bool(scan.gpus), offline=context.offline)
    origins = {version.name: version.origin for version in context.matrix.versions}
    images = (origin for origin in origins.values() if isinstance(origin, ImageOrigin))
    files = {
        origin.image: origin.pin.ids[0] for origin in images if origin.is_file and origin.pin is not None
    }
    if context.offline:
        from trtmatrix.launchers.wheels import environment_folder, find_lacking, find_wheelhouse

        wheelhouse = find_wheelhouse(project.folder)
        for name, origin in origins.items():
            if not isinstance(origin, WheelsOrigin):
                continue
            if not environment_folder(project.cache, name, origin.wheels).is_dir():
                lacking[name] = find_lacking(wheelhouse, origin.wheels)
    return Host(
        engine=replace(engine, images={**engine.images, **files}),  # a file counts as an image that is here
        gpus=scan.gpus, offline=context.offline, lacking=lacking,
        interpreters=find_tensorrt(context.pythons) if "host" in context.selection.runtimes else {},
        builds_images=project.image_builder is not None and engine.is_daemon,
    )  # fmt: skip


def recorded_gpus(stored: Sequence[Stored]) -> dict[str, Gpu]:
    """Return the GPUs that records of TensorRT name, each with every driver that was recorded.

    Its compute capability is known where all that name one agree.
    """
    seen: dict[str, list[Record]] = {}
    for item in stored:
        if item.record.product is Product.TENSORRT and item.record.gpu.get("name"):
            seen.setdefault(item.record.cell.gpu, []).append(item.record)

    def all_of(slug: str, key: str) -> str:
        return ", ".join(sorted({str(r.gpu[key]) for r in seen[slug] if r.gpu.get(key)}))

    return {
        slug: Gpu(
            slug=slug, name=str(records[0].gpu["name"]), variant=all_of(slug, "variant"),
            compute=None if "," in (compute := all_of(slug, "compute")) else compute or None,
            driver=all_of(slug, "driver") or None,
        )
        for slug, records in sorted(seen.items())
    }  # fmt: skip


def choose_gpu(named: Sequence[str], here: Sequence[Gpu], stored: Sequence[Stored]) -> Gpu:
    """Return the one GPU that the answer is for: that named, else the only one here.

    :class:`UsageError` where none is named and none, or several kinds, are here.
    """
    recorded = recorded_gpus(stored)
    if named:
        gpu = named_gpus(named, [*here, *recorded.values()])[0]
        if not gpu.present and (known := known_gpu(gpu.name)):  # the table may know more than records do
            gpu = replace(gpu, datacenter=known.datacenter, compute=gpu.compute or known.compute)
        return gpu
    kinds = {gpu.slug: gpu for gpu in reversed(here)}
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    several = f"this host has {', '.join(gpu.name for gpu in kinds.values())}"
    records = ", ".join(gpu.name for gpu in recorded.values())
    raise UsageError(
        f"{several if kinds else 'no GPU is in this host'}: name the GPU that you deploy on, such as --gpu L4"
        f"{f' (there are records of {records})' if records else ''}"
    )


def digests_now(context: Context, survey: Survey) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current (``is_digest_of``)."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    columns: dict[tuple[str, str], Mapping[str, str]] = {}
    found, probe = {}, digest_own_code().probe
    on_host = "host" in context.selection.runtimes
    for cell in survey.cells:
        row, column = (cell.repro.id, cell.case.id), (cell.version.name, cell.gpu.slug)
        if row not in rows:
            rows[row] = {**cell_digests(cell, context.repros[cell.repro.id]), "probe": probe}
        if column not in columns:  # TensorRT runs on the cluster's nodes, where there is one
            on_nodes = cell.version.product is Product.TENSORRT
            host = survey.nodes_host if survey.nodes_host and on_nodes else survey.host
            columns[column] = origin_digests(cell, host, on_host=on_host)
        found[cell.id] = {**rows[row], **columns[column]}
    return found


def entries_of(
    context: Context, survey: Survey, stored: Sequence[Stored], extra: Sequence[Excluded] = (),
    executed: frozenset[str] = frozenset(),
) -> tuple[Entry, ...]:  # fmt: skip
    """Return what the tables show."""
    return make_entries(
        survey.cells, stored, digests_now(context, survey), [*survey.plan.excluded, *extra], executed,
        calibration=read_calibration(),
    )  # fmt: skip
