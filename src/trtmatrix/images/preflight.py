"""Preflight: everything that can be known to fail is known, and left out, before anything is pulled."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trtmatrix.common.deadline import ask_all
from trtmatrix.common.errors import ConfigError, TrtMatrixError
from trtmatrix.common.paths import Project
from trtmatrix.images.checks import Answer, Facts, Wants, check, restrict
from trtmatrix.images.downloads import LOW, Room, asked_references, gigabytes, image_of
from trtmatrix.images.pins import read_build
from trtmatrix.images.rules import RULES, Finding, Level, finding_lines
from trtmatrix.launchers.container import Limits
from trtmatrix.launchers.references import Trouble, explain_trouble, parse_reference
from trtmatrix.launchers.wheels import pip_index
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import estimate_seconds, order_launches
from trtmatrix.plan.scene import Scene
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import GpuAccess, Keep, Launch

if TYPE_CHECKING:
    from trtmatrix.images.registry import Registry

ASK_SECONDS = (5.0, 5.0)
"""To connect to a registry or index, and between two pieces of its answer."""
SECONDS = 20.0
"""For all registries together, and for all indexes: one that sends a byte now and then would never end."""
ATTEMPTS = 2
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a run will be: which images it keeps, a container's memory in bytes, what starts without a pull."""

    keep: Keep = Keep.ALL
    memory: int = Limits().memory
    is_here: Callable[[Launch], bool] = lambda launch: not launch.lacks_image


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What was gathered, what was wanted, and what came of both: the scene's plan holds only what can run."""

    facts: Facts
    wants: Wants
    scene: Scene
    findings: tuple[Finding, ...]


def preflight(
    context: Context, scene: Scene, terms: Terms, served: frozenset[CellId] = frozenset()
) -> Preflight:
    """Gather the facts that the wanted launches hang on, and hold them against every rule.

    Cells that are ``served`` from the store need nothing. With ``--offline`` nobody is asked.
    """
    wants = find_wants(context, scene, terms, served)
    facts = gather(context, scene, wants.launches)
    checked = check(facts, wants)
    troubled = [item for item in disk_findings(facts) if item.level is Level.TROUBLE and wants.launches]
    return Preflight(
        facts=facts, wants=replace(wants, launches=checked.launches),
        scene=replace(scene, plan=restrict(scene.plan, checked.excluded)),
        findings=(*checked.findings, *troubled),
    )  # fmt: skip


def tell(findings: Sequence[Finding]) -> None:
    """Tell on stderr what keeps cells from running, or may end the run in its middle."""
    for line in finding_lines(findings):
        print(line, file=sys.stderr)


def find_wants(context: Context, scene: Scene, terms: Terms, served: frozenset[CellId]) -> Wants:
    """Return the launches with the cells that are to be run, in the order in which they start."""
    every = [launch.of(c for c in launch.cells if c.id not in served) for launch in scene.plan.launches]
    todo = [launch for launch in every if launch.cells]
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], scene.stored)
    return Wants(
        launches=tuple(order_launches(todo, seconds, terms.is_here)), lock=context.lock, keep=terms.keep,
        memory=terms.memory, registry=context.matrix.registry,
    )  # fmt: skip


def gather(context: Context, scene: Scene, launches: Sequence[Launch]) -> Facts:
    """Look at what the launches hang on; registries and indexes are asked for what is to be pulled alone."""
    engine, project = scene.host.engine, context.project
    # Where the engine keeps images; None where that is on another host.
    images = find_room(Path(engine.root)) if engine.root and Path(engine.root).is_dir() else None
    builds = [launch for launch in launches if launch.build]
    indexes = {origin.build.index for x in builds if (origin := image_of(x)) and origin.build}
    silent = context.offline or not engine.is_daemon  # whose logins for registries are its own
    asks = () if silent else asked_references(launches, context.lock, engine, context.matrix.registry)
    total, available = find_memory()
    by_nodes = engine.gpu_access is GpuAccess.NODES and images is not None
    return Facts(
        engine=engine, gpus=scene.scan.gpus, scan_reason=scene.scan.reason,
        images=images, cache=find_room(project.cache), results=find_room(project.results),
        memory=total, available=available, nodes=find_nodes() if by_nodes else None,
        mig=count_mig_instances(scene.scan.gpus),
        answers=ask_registries(asks, engine.insecure),
        indexes={} if context.offline else ask_indexes(sorted(indexes)),
        unhashed=unhashed_wheels(builds, project),
    )  # fmt: skip


def disk_findings(facts: Facts) -> Iterator[Finding]:
    """Yield how much is free for cache and results."""
    for rule, room in (("disk-cache", facts.cache), ("disk-results", facts.results)):
        low, found = room.free < LOW, f"{room.path}: {gigabytes(room.free)} free"
        level = Level.TROUBLE if low else Level.GOOD
        yield RULES[rule].finding(found, level, remedy=None if low else "")


def find_room(path: Path) -> Room:
    """Return what is free where a folder is, or will be made."""
    there = path.resolve()
    existing = next(parent for parent in (there, *there.parents) if parent.exists())
    return Room(path=str(path), free=shutil.disk_usage(existing).free)


def find_memory() -> tuple[int, int]:
    """Return the memory of this host, whole and available, in bytes; zeros where it does not say."""
    try:
        text = MEMORY.read_text()
    except OSError:
        return 0, 0
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    return kilobytes.get("MemTotal", 0) << 10, kilobytes.get("MemAvailable", 0) << 10


def find_nodes(folder: Path = Path("/dev")) -> frozenset[str]:
    """Return the device nodes of NVIDIA's driver that are here."""
    return frozenset(str(node) for node in folder.glob("nvidia*"))


def count_mig_instances(gpus: Iterable[Gpu]) -> dict[int, int]:
    """Return how many MIG instances each GPU in MIG mode has, by index; without those NVML is silent on."""
    indices = [gpu.index for gpu in gpus if gpu.index is not None and "MIG on" in gpu.variant]
    if not indices:
        return {}
    import pynvml

    found = {}
    try:
        pynvml.nvmlInit()
        for index in indices:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found[index] = _count_instances(pynvml, handle)
    except pynvml.NVMLError:
        return found
    return found


def _count_instances(nvml, handle) -> int:  # type: ignore[no-untyped-def] # noqa: ANN001 - the pynvml module
    count = 0
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue
        count += 1
    return count


def ask_registries(
    references: Sequence[str], insecure: Sequence[str], seconds: float = SECONDS
) -> dict[str, Answer]:
    """Ask for every reference at the same time; returns what was said of each, within ``seconds`` in all."""
    if not references:
        return {}
    from trtmatrix.images.registry import Registry  # here: who asks nobody does not wait for its imports

    registry = Registry(insecure=insecure, attempts=ATTEMPTS, seconds=ASK_SECONDS)
    answers = ask_all(
        lambda reference: _ask(registry, reference), references, seconds=seconds,
        note=lambda missing: _tell_waiting([parse_reference(each).host for each in missing]),
    )  # fmt: skip
    return {each: answers[each] if each in answers else _silent(each, seconds) for each in references}


def _ask(registry: Registry, reference: str) -> Answer:
    try:
        return Answer(host=parse_reference(reference).host, digest=registry.check(reference))
    except TrtMatrixError as error:  # of a registry, or that no image can have this name
        return _bad(error)


def _bad(error: TrtMatrixError) -> Answer:
    words, _, remedy = str(error).partition("\n")
    trouble, host = getattr(error, "trouble", Trouble.MISSING), getattr(error, "host", "")
    return Answer(host=host, trouble=trouble, words=words, remedy=remedy.strip())


def _silent(reference: str, seconds: float) -> Answer:
    host = parse_reference(reference).host
    why = f"it does not answer within {seconds:.0f} s"
    return _bad(explain_trouble(Trouble.UNREACHABLE, host, reference, why))


def _tell_waiting(hosts: Iterable[str]) -> None:
    print(f"trtmatrix: asking {', '.join(dict.fromkeys(hosts))} …", file=sys.stderr, flush=True)


def ask_indexes(addresses: Collection[str], seconds: float = SECONDS) -> dict[str, str]:
    """Return why each index of wheels does not answer; nothing where it does, whatever it says.

    An empty address is the index that pip is set to; where that is none, or several, nothing is asked.
    """
    places = {address: address or pip_index(os.environ) for address in addresses}
    asked = [address for address, place in places.items() if place]
    answers = ask_all(
        lambda address: _ask_index(places[address], named=bool(address)), asked, seconds=seconds,
        note=lambda missing: _tell_waiting(urlsplit(places[each]).hostname or each for each in missing),
    )  # fmt: skip
    late = f"it does not answer within {seconds:.0f} s"
    return {address: answers.get(address, late) for address in asked}


def _ask_index(place: str, *, named: bool) -> str:
    import requests

    try:
        requests.head(place, timeout=ASK_SECONDS, allow_redirects=True).close()
    except requests.exceptions.SSLError:
        return ""  # somebody answers; pip may trust more than we do
    except requests.exceptions.RequestException as error:
        host = "" if named else f" ({urlsplit(place).hostname})"
        return f"it does not answer{host}: {error.__class__.__name__}"
    return ""


def unhashed_wheels(launches: Iterable[Launch], project: Project) -> dict[str, tuple[str, ...]]:
    """Return by version the wheels of images to be built that the project's lock files have no SHA-256 of."""
    found: dict[str, tuple[str, ...]] = {}
    for launch in launches:
        origin, name = image_of(launch), launch.version.name
        if project.image_builder is not None and launch.build and origin is not None and origin.build:
            with contextlib.suppress(ConfigError):  # the build itself says what is wrong with its files
                found[name] = read_build(name, origin, origin.build, project).unhashed
    return found
