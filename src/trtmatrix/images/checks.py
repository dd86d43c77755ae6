"""Which launches of a plan cannot run for what a host lacks, and what is told of that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.common.text import counted
from trtmatrix.images.downloads import Room, asked_for, find_downloads, gigabytes, need_here
from trtmatrix.images.lock_report import locked_tensorrt
from trtmatrix.images.rules import RULES, Finding, Level
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.plan.lockfile import Lock
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Engine, Excluded, GpuAccess, Keep, Launch, Plan

PROBE_LEAST_MEMORY = 48 << 20
"""A limit below which the probe does not even start, in bytes.

Measured with Python 3.11 and ONNX Runtime: it never starts with 47 MiB, mostly with 48 MiB, and a small cell
passes from 64 MiB on.
"""
REFUSING = frozenset({Trouble.UNREACHABLE, Trouble.NEEDS_LOGIN, Trouble.WRONG_LOGIN, Trouble.MISSING})
"""Answers with which a pull cannot come out well either; of others the pull itself tells."""
NOWHERE = Room(path="", free=0)
BY_WHOLE_GPU = (GpuAccess.CDI, GpuAccess.NODES, GpuAccess.RUNTIME)
"""Ways in which a container is given a GPU, and none of its MIG instances."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """A host as it was found.

    ``images``: where the engine keeps images, None where that is not on this host; ``memory`` and
    ``available``: of the host, in bytes, 0 where not known. ``answers``: by reference, what is
    wrong with asking a registry for it, or None.
    """

    engine: Engine
    gpus: tuple[Gpu, ...] = ()
    scan_reason: str = ""
    images: Room | None = None
    cache: Room = NOWHERE
    results: Room = NOWHERE
    memory: int = 0
    available: int = 0
    answers: Mapping[str, RegistryError | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a run wants: launches in the order in which they start, with only the cells that are to be run.

    ``memory``: a container's limit in bytes; ``registry``: the mirror that is set.
    """

    launches: tuple[Launch, ...] = ()
    lock: Lock = field(default_factory=Lock)
    keep: Keep = Keep.ALL
    memory: int = 32 << 30
    registry: str = ""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What is left of the wanted launches, what of them is not attempted, and what is told of it."""

    launches: tuple[Launch, ...]
    excluded: tuple[Excluded, ...]
    findings: tuple[Finding, ...]


def check(facts: HostFacts, wants: Wants) -> Checked:
    """Hold every wanted launch against every rule; room on the disk goes to those that start first."""
    fitting: list[Launch] = []
    lacking: dict[Finding, list[Launch]] = {}
    for launch in wants.launches:
        if (lack := next(find_lacks(launch, fitting, facts, wants), None)) is None:
            fitting.append(launch)
        else:
            lacking.setdefault(lack, []).append(launch)
    excluded, told = [], []
    for lack, launches in lacking.items():
        cells = [cell for launch in launches for cell in launch.cells]
        excluded += [Excluded(cell=c, why=RULES[lack.rule].excludes[0], detail=lack.found) for c in cells]
        names = ", ".join(dict.fromkeys(launch.version.name for launch in launches))
        told.append(replace(lack, prevents=f"{counted(len(cells), 'cell')} of {names}"))
    # What may not fit is tried all the same.
    need = need_here(find_downloads(fitting, wants.lock, facts.engine, wants.registry), wants.keep)
    if facts.images is not None and need.usual > facts.images.free:
        takes = f"usually takes about {gigabytes(need.usual)}, unpacked: tried all the same"
        found = f"{facts.images.told}; what is to be pulled and built {takes}"
        told.append(_trouble("disk-images", found, prevents=""))
    return Checked(launches=tuple(fitting), excluded=tuple(excluded), findings=tuple(told))


def find_lacks(launch: Launch, before: Sequence[Launch], facts: HostFacts, wants: Wants) -> Iterator[Finding]:
    """Yield what keeps a launch from running, the most certain first; ``before``: whose images have room."""
    origin, engine, gpu, version = launch.image, facts.engine, launch.gpu, launch.version
    if origin is None:
        return
    # Instances have CDI names and device nodes of their own, which are not given; the GPU's lead nowhere.
    # Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
    access = engine.gpu_access
    if gpu.index is not None and gpu.variant.endswith("MIG on") and access in BY_WHOLE_GPU:
        found = f"{gpu.name} is in MIG mode, and containers cannot be given an instance by "
        yield _trouble("mig", found + (access.value if access else "none"))
    if wants.memory < PROBE_LEAST_MEMORY:
        least = f"the probe needs at least {PROBE_LEAST_MEMORY >> 20} MiB"
        yield _trouble("memory-limit", f"--memory is {wants.memory >> 20} MiB: {least}")
    if not launch.lacks_image:
        return
    # Its image may not be there to be pulled or built on, or be another than is meant.
    name = origin.image if origin.build is None else origin.build.base
    locked = wants.lock.images.get(name)
    if locked is not None and engine.platform not in locked.platforms:
        published = ", ".join(locked.platforms) or "none"
        yield _trouble("platform", f"{name} is published for {published}; this engine runs {engine.platform}")
    says = locked_tensorrt(version, wants.lock, engine.platform)
    if says and wrong_library(says, version) is not None:  # as a run in the image compares
        pinned = f"{version.name} is pinned for TensorRT {version.library.value}"
        yield _trouble("library", f"{pinned}, and its locked image says that it has {says}")
    asked = asked_for(origin, wants.lock, engine, wants.registry)
    answer = facts.answers.get(asked.reference) if asked is not None else None
    # The engine may reach what this process does not: by its own proxy, or from another host.
    own_way = {Trouble.UNREACHABLE} if engine.proxied or facts.images is None else set()
    if answer is not None and answer.trouble in REFUSING - own_way:
        words, _, remedy = str(answer).partition("\n")
        yield _trouble("registry", words, remedy=remedy.strip())
    if facts.images is not None:
        downloads = find_downloads([*before, launch], wants.lock, engine, wants.registry)
        if (need := need_here(downloads, wants.keep)).least > facts.images.free:
            free = f"{gigabytes(facts.images.free)} free at {facts.images.path}"
            needed = f"at least {gigabytes(need.least)} needed with {downloads[-1].image}"
            yield _trouble("disk-images", f"{free}, {needed}")


def _trouble(rule: str, found: str, **others: str) -> Finding:
    return RULES[rule].finding(found, Level.TROUBLE, **others)


def restrict(plan: Plan, excluded: Iterable[Excluded]) -> Plan:
    """Return a plan without the cells that are not attempted, and with why."""
    left_out = tuple(excluded)
    launches = plan.without({item.cell.id for item in left_out})
    return replace(plan, launches=launches, excluded=(*plan.excluded, *left_out))
