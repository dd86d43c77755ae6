"""Which launches of a plan cannot run for what a host lacks, and what is told of that. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.images.downloads import Room, asked_for, find_downloads, gigabytes, image_of, need_here
from trtmatrix.images.lock_report import locked_tensorrt
from trtmatrix.images.rules import RULES, Finding, Level, Rule
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.container import give_gpu
from trtmatrix.launchers.lock import Lock
from trtmatrix.launchers.references import Trouble
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.model import Product
from trtmatrix.suite.plan import Engine, Excluded, GpuAccess, Keep, Launch, Plan

ENGINE_LEAST_MEMORY = 6 << 20
"""The least memory limit that Docker takes for a container, in bytes (4 MiB before 20.10)."""
PROBE_LEAST_MEMORY = 48 << 20
"""A limit below which the probe does not even start, in bytes.

Measured with Python 3.11 and ONNX Runtime: it never starts with 47 MiB, mostly with 48 MiB, and a small cell
passes from 64 MiB on.
"""
REFUSING = frozenset({Trouble.UNREACHABLE, Trouble.NEEDS_LOGIN, Trouble.WRONG_LOGIN, Trouble.MISSING})
"""Answers with which a pull cannot come out well either; the others may pass until then."""


BY_WHOLE_GPU = (GpuAccess.CDI, GpuAccess.NODES, GpuAccess.RUNTIME)
"""Ways in which a container is given a GPU, and none of its MIG instances."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a registry said of one reference: its digest, or what is wrong, with the words and the remedy."""

    host: str
    digest: str = ""
    trouble: Trouble | None = None
    words: str = ""
    remedy: str = ""


NOWHERE = Room(path="", free=0)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A host as it was found.

    ``images``: where the engine keeps images, None where that is not on this host; ``memory`` and
    ``available``: of the host, in bytes, 0 where not known. ``nodes``: the device nodes of NVIDIA that are
    here, None where the engine is on another host. ``mig``: of each GPU in MIG mode, by index, how many
    instances it has. ``answers``: by reference, what registries said; ``indexes``: by address, why an index
    of wheels does not answer (nothing: it does); ``unhashed``: by version, the wheels that its image is
    built from and that have no SHA-256. What was not asked is not in these.
    """

    engine: Engine
    gpus: tuple[Gpu, ...] = ()
    scan_reason: str = ""
    images: Room | None = None
    cache: Room = NOWHERE
    results: Room = NOWHERE
    memory: int = 0
    available: int = 0
    nodes: frozenset[str] | None = None
    mig: Mapping[int, int] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    unhashed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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


def _engine_api(launch: Launch, facts: Facts, wants: Wants) -> str:
    del wants
    engine = facts.engine
    needed, what = needed_api(engine, with_gpu=launch.gpu.present)
    if image_of(launch) is None or not engine.api or _numbers(engine.api) >= _numbers(needed):
        return ""
    return f"{engine.name} {engine.version} speaks API {engine.api}; {what} needs {needed}"


def needed_api(engine: Engine, *, with_gpu: bool) -> tuple[str, str]:
    """Return the least API version that our containers need, and what of them needs it.

    Source: https://docs.docker.com/reference/api/engine/version-history/; CDI came with Docker 25 (1.44).
    Podman numbers its Docker-compatible API by its own rules: there only what it always had is asked for.
    """
    if with_gpu and engine.gpu_access is GpuAccess.TOOLKIT:
        return "1.40", "giving a container a GPU"
    if with_gpu and engine.gpu_access is GpuAccess.CDI and engine.name == "Docker":
        return "1.44", "giving a container a GPU by CDI"
    return "1.25", "an init inside the container"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _nodes(launch: Launch, facts: Facts, wants: Wants) -> str:
    del wants
    engine = facts.engine
    if image_of(launch) is None or facts.nodes is None or engine.gpu_access is not GpuAccess.NODES:
        return ""
    missing = [node for node in give_gpu(launch.gpu, engine).nodes if node not in facts.nodes]
    if launch.gpu.index is not None and engine.driver_folder is None:
        missing.append("the driver folder /usr/local/nvidia")
    return f"not here: {', '.join(missing)}" if missing else ""


def _mig(launch: Launch, facts: Facts, wants: Wants) -> str:
    """Instances have CDI names and device nodes of their own, which are not given; the GPU's lead nowhere.

    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
    """
    del wants
    gpu, access = launch.gpu, facts.engine.gpu_access
    if gpu.index is None or not gpu.variant.endswith("MIG on"):
        return ""
    if image_of(launch) is not None and access in BY_WHOLE_GPU:
        return (
            f"{gpu.name} is in MIG mode, and containers cannot be given an instance by {access.value}\n"
            "install NVIDIA's Container Toolkit, or leave MIG: sudo nvidia-smi -mig 0"
        )
    without = launch.version.product is Product.TENSORRT and not facts.mig.get(gpu.index, 1)
    return f"{gpu.name} is in MIG mode without an instance" if without else ""


def _memory_limit(launch: Launch, facts: Facts, wants: Wants) -> str:
    del facts
    if image_of(launch) is None or wants.memory >= PROBE_LEAST_MEMORY:
        return ""
    engine = wants.memory < ENGINE_LEAST_MEMORY
    who, least = (
        ("the engine takes", ENGINE_LEAST_MEMORY) if engine else ("the probe needs", PROBE_LEAST_MEMORY)
    )
    return f"--memory {wants.memory} bytes: {who} at least {least}"


def _platform(launch: Launch, facts: Facts, wants: Wants) -> str:
    origin = image_of(launch)
    if origin is None or not launch.lacks_image:
        return ""
    name = origin.image if origin.build is None else origin.build.base
    locked = wants.lock.images.get(name)
    if locked is None or locked.of(facts.engine.platform) is not None:
        return ""
    published = ", ".join(each.platform for each in locked.platforms) or "none"
    return f"{name} is published for {published}; this engine runs {facts.engine.platform}"


def _library(launch: Launch, facts: Facts, wants: Wants) -> str:
    """Compare as a run in the image does, so that none is refused that would have run."""
    version, says = launch.version, locked_tensorrt(launch.version, wants.lock, facts.engine.platform)
    if not launch.lacks_image or not says or wrong_library(says, version) is None:
        return ""
    pinned = f"{version.name} is pinned for TensorRT {version.library.value}"
    return f"{pinned}, and its locked image says that it has {says}"


def _wheels(launch: Launch, facts: Facts, wants: Wants) -> str:
    del wants
    name = launch.version.name
    unhashed = facts.unhashed.get(name, ()) if launch.build else ()
    if not unhashed:
        return ""
    return f"no SHA-256 of {', '.join(unhashed)}\n{RULES['wheels'].mends.replace('VERSION', name)}"


def _registry(launch: Launch, facts: Facts, wants: Wants) -> str:
    answer = facts.answers.get(_reference(launch, facts, wants))
    if answer is None or answer.trouble not in REFUSING:
        return ""
    # The engine may reach what this process does not: by its own proxy, or from another host.
    if answer.trouble is Trouble.UNREACHABLE and (facts.engine.proxied or facts.images is None):
        return ""
    return f"{answer.words}\n{answer.remedy}"


def _reference(launch: Launch, facts: Facts, wants: Wants) -> str:
    """Return what a registry will be asked for; nothing where none will be."""
    origin = image_of(launch)
    if origin is None or not launch.lacks_image:
        return ""
    asked = asked_for(origin, wants.lock, facts.engine, wants.registry)
    return asked.reference if asked is not None else ""


def _wheel_index(launch: Launch, facts: Facts, wants: Wants) -> str:
    del wants
    origin = image_of(launch)
    if not launch.build or origin is None or origin.build is None:
        return ""
    if not (why := facts.indexes.get(origin.build.index, "")):
        return ""
    remedy = RULES["wheel-index"].mends.replace("VERSION", launch.version.name)
    return f"{origin.build.index or 'the index that pip is set to'}: {why}\n{remedy}"


CHECKS: Mapping[str, Callable[[Launch, Facts, Wants], str]] = {
    "engine-api": _engine_api, "gpu-nodes": _nodes, "mig": _mig, "memory-limit": _memory_limit,
    "platform": _platform, "library": _library, "wheels": _wheels, "registry": _registry,
    "wheel-index": _wheel_index,
}  # fmt: skip
"""What every launch is held against, by rule, the most certain first: it returns what keeps the launch from
running, its own remedy on a second line where the rule's is not the one; nothing where the launch can run."""


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Why a launch cannot run: the rule, the words, and the remedy."""

    rule: Rule
    detail: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What is left of the wanted launches, what of them is not attempted, and what is told of it."""

    launches: tuple[Launch, ...]
    excluded: tuple[Excluded, ...]
    findings: tuple[Finding, ...]


def check(facts: Facts, wants: Wants) -> Checked:
    """Hold every wanted launch against every rule; room on the disk goes to those that start first."""
    lacking: list[tuple[Launch, Lack]] = []
    able: list[Launch] = []
    for launch in wants.launches:
        if (lack := find_lack(launch, facts, wants)) is None:
            able.append(launch)
        else:
            lacking.append((launch, lack))
    fitting, without_room = find_room(able, facts, wants)
    lacking += without_room
    excluded = [
        Excluded(cell=cell, why=lack.rule.excludes[0], detail=lack.detail)
        for launch, lack in lacking for cell in launch.cells
    ]  # fmt: skip
    told = [*lack_findings(lacking), *doubt_findings(fitting, facts, wants)]
    return Checked(launches=tuple(fitting), excluded=tuple(excluded), findings=tuple(told))


def find_lack(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    """Return the first thing, but for room on the disk, that keeps a launch from running, or None."""
    for name, holds in CHECKS.items():
        if text := holds(launch, facts, wants):
            detail, _, remedy = text.partition("\n")
            return Lack(rule=RULES[name], detail=detail, remedy=remedy or RULES[name].mends)
    return None


def find_room(
    launches: Sequence[Launch], facts: Facts, wants: Wants
) -> tuple[list[Launch], list[tuple[Launch, Lack]]]:
    """Return the launches whose images fit beside those before them, and those whose images do not."""
    if facts.images is None:
        return list(launches), []
    rule, fitting, lacking = RULES["disk-images"], list[Launch](), list[tuple[Launch, Lack]]()
    for launch in launches:
        downloads = find_downloads([*fitting, launch], wants.lock, facts.engine, wants.registry)
        need = need_here(downloads, wants.keep, wants.lock, facts.engine)
        if launch.lacks_image and need.least > facts.images.free:
            detail = (
                f"{gigabytes(facts.images.free)} free at {facts.images.path}, "
                f"at least {gigabytes(need.least)} needed with {downloads[-1].image}"
            )
            lacking.append((launch, Lack(rule=rule, detail=detail, remedy=rule.mends)))
        else:
            fitting.append(launch)
    return fitting, lacking


def lack_findings(lacking: Iterable[tuple[Launch, Lack]]) -> Iterator[Finding]:
    """Yield a finding for each lack, with the cells that it prevents: ``46 cells of 10.7.0, 10.8.0``."""
    groups: dict[Lack, list[Launch]] = {}
    for launch, lack in lacking:
        groups.setdefault(lack, []).append(launch)
    for lack, launches in groups.items():
        count = sum(len(launch.cells) for launch in launches)
        names = ", ".join(dict.fromkeys(launch.version.name for launch in launches))
        prevents = f"{count} {'cell' if count == 1 else 'cells'} of {names}"
        yield lack.rule.finding(lack.detail, Level.TROUBLE, remedy=lack.remedy, prevents=prevents)


def doubt_findings(fitting: Sequence[Launch], facts: Facts, wants: Wants) -> Iterator[Finding]:
    """Yield what may go wrong with launches that are tried all the same."""
    downloads = find_downloads(fitting, wants.lock, facts.engine, wants.registry)
    need = need_here(downloads, wants.keep, wants.lock, facts.engine)
    if facts.images is not None and need.usual > facts.images.free:
        found = (
            f"{gigabytes(facts.images.free)} free at {facts.images.path}; what is to be pulled and built "
            f"usually takes about {gigabytes(need.usual)}, unpacked: tried all the same"
        )
        yield RULES["disk-images"].finding(found, Level.TROUBLE, prevents="")
    for reference in dict.fromkeys(_reference(launch, facts, wants) for launch in fitting):
        answer = facts.answers.get(reference)
        if answer is not None and answer.trouble is not None:
            found = f"{answer.words}; it is tried all the same"
            yield RULES["registry"].finding(found, Level.TROUBLE, remedy=answer.remedy, prevents="")


def restrict(plan: Plan, excluded: Iterable[Excluded]) -> Plan:
    """Return a plan without the cells that are not attempted, and with why."""
    left_out = tuple(excluded)
    gone = {item.cell.id for item in left_out}
    kept = [launch.of(cell for cell in launch.cells if cell.id not in gone) for launch in plan.launches]
    launches = tuple(launch for launch in kept if launch.cells)
    return replace(plan, launches=launches, excluded=(*plan.excluded, *left_out))
