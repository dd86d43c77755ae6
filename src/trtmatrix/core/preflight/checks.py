"""Which launches of a plan cannot run for what a host lacks, and what is told of that. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.container import give_gpu
from trtmatrix.core.image_facts import locked_tensorrt
from trtmatrix.core.judge import wrong_library
from trtmatrix.core.model import Exclusion, Gpu, Product
from trtmatrix.core.plan import Engine, Excluded, GpuAccess, Launch, Plan
from trtmatrix.core.preflight.downloads import (
    Download,
    asked_for,
    find_downloads,
    need_here,
)
from trtmatrix.core.preflight.facts import Facts, Wants, image_of
from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.core.preflight.rules import RULES
from trtmatrix.core.registry import Trouble

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
class Lack:
    """Why a launch cannot run: the rule, the kind, the words, and a remedy where it is not the rule's own."""

    rule: str
    why: Exclusion
    detail: str
    remedy: str = ""

    @property
    def mends(self) -> str:
        """What mends it."""
        return self.remedy or RULES[self.rule].mends


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
        Excluded(cell=cell, why=lack.why, detail=lack.detail)
        for launch, lack in lacking
        for cell in launch.cells
    ]
    told = [*lack_findings(lacking), *doubt_findings(fitting, facts, wants)]
    return Checked(launches=tuple(fitting), excluded=tuple(excluded), findings=tuple(told))


def find_lack(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    """Return the first thing, but for room on the disk, that keeps a launch from running, or None."""
    return next((lack for rule in CHECKS if (lack := rule(launch, facts, wants)) is not None), None)


def _engine_api(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    del wants
    engine = facts.engine
    if image_of(launch) is None or not engine.api:
        return None
    needed, what = needed_api(engine, with_gpu=launch.gpu.present)
    if _numbers(engine.api) >= _numbers(needed):
        return None
    return Lack(
        rule="engine-api", why=Exclusion.ENGINE_TOO_OLD,
        detail=f"{engine.name} {engine.version} speaks API {engine.api}; {what} needs {needed}",
    )  # fmt: skip


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


def _nodes(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    del wants
    engine = facts.engine
    if image_of(launch) is None or facts.nodes is None or engine.gpu_access is not GpuAccess.NODES:
        return None
    missing = [node for node in give_gpu(launch.gpu, engine).nodes if node not in facts.nodes]
    if launch.gpu.index is not None and engine.driver_folder is None:
        missing.append("the driver folder /usr/local/nvidia")
    if not missing:
        return None
    return Lack(rule="gpu-nodes", why=Exclusion.NO_GPU_ACCESS, detail=f"not here: {', '.join(missing)}")


def _mig(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    """Instances have CDI names and device nodes of their own, which are not given; the GPU's lead nowhere.

    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
    """
    del wants
    access = facts.engine.gpu_access
    if image_of(launch) is not None and in_mig_mode(launch.gpu) and access in BY_WHOLE_GPU:
        detail = (
            f"{launch.gpu.name} is in MIG mode, and containers cannot be given an instance by {access.value}"
        )
        return Lack(
            rule="mig", why=Exclusion.NO_GPU_ACCESS, detail=detail,
            remedy="install NVIDIA's Container Toolkit, or leave MIG: sudo nvidia-smi -mig 0",
        )  # fmt: skip
    if launch.version.product is not Product.TENSORRT or launch.gpu.index is None:
        return None
    if facts.mig.get(launch.gpu.index, 1):
        return None
    return Lack(
        rule="mig",
        why=Exclusion.NO_GPU_ACCESS,
        detail=f"{launch.gpu.name} is in MIG mode without an instance",
    )


def in_mig_mode(gpu: Gpu) -> bool:
    """Whether a GPU of this host is in MIG mode, as its variant says."""
    return gpu.index is not None and gpu.variant.endswith("MIG on")


def _memory_limit(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    del facts
    if image_of(launch) is None or wants.memory >= PROBE_LEAST_MEMORY:
        return None
    who = "the engine takes" if wants.memory < ENGINE_LEAST_MEMORY else "the probe needs"
    least = ENGINE_LEAST_MEMORY if wants.memory < ENGINE_LEAST_MEMORY else PROBE_LEAST_MEMORY
    return Lack(
        rule="memory-limit", why=Exclusion.NO_MEMORY,
        detail=f"--memory {wants.memory} bytes: {who} at least {least}",
    )  # fmt: skip


def _platform(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    origin = image_of(launch)
    if origin is None or not launch.lacks_image:
        return None
    name = origin.image if origin.build is None else origin.build.base
    locked = wants.lock.images.get(name)
    if locked is None or locked.of(facts.engine.platform) is not None:
        return None
    published = ", ".join(each.platform for each in locked.platforms) or "none"
    return Lack(
        rule="platform", why=Exclusion.IMAGE_NOT_GIVEN,
        detail=f"{name} is published for {published}; this engine runs {facts.engine.platform}",
    )  # fmt: skip


def _library(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    """Compare as a run in the image does, so that none is refused that would have run."""
    says = locked_tensorrt(launch.version, wants.lock, facts.engine.platform)
    if not launch.lacks_image or not says or wrong_library(says, launch.version) is None:
        return None
    return Lack(
        rule="library", why=Exclusion.IMAGE_NOT_PULLED,
        detail=f"{launch.version.name} is pinned for TensorRT {launch.version.library.value}, and its locked "
        f"image says that it has {says}",
    )  # fmt: skip


def _registry(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    origin = image_of(launch)
    reference = _reference(launch, origin, facts, wants)
    answer = facts.answers.get(reference)
    if answer is None or answer.trouble not in REFUSING or _engine_has_its_own_way(answer.trouble, facts):
        return None
    return Lack(rule="registry", why=Exclusion.IMAGE_NOT_GIVEN, detail=answer.words, remedy=answer.remedy)


def _reference(launch: Launch, origin: ImageOrigin | None, facts: Facts, wants: Wants) -> str:
    """Return what a registry will be asked for; nothing where none will be."""
    if origin is None or not launch.lacks_image:
        return ""
    asked = asked_for(origin, wants.lock, facts.engine, wants.registry)
    return asked.reference if asked is not None else ""


def _engine_has_its_own_way(trouble: Trouble | None, facts: Facts) -> bool:
    """Whether the engine may reach what this process does not: by its own proxy, or from another host."""
    return trouble is Trouble.UNREACHABLE and (facts.engine.proxied or facts.images is None)


def _wheels(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    del wants
    unhashed = facts.unhashed.get(launch.version.name, ())
    if not launch.build or not unhashed:
        return None
    name = launch.version.name
    return Lack(
        rule="wheels", why=Exclusion.IMAGE_NOT_BUILT, detail=f"no SHA-256 of {', '.join(unhashed)}",
        remedy=RULES["wheels"].mends.replace("VERSION", name),
    )  # fmt: skip


def _wheel_index(launch: Launch, facts: Facts, wants: Wants) -> Lack | None:
    del wants
    origin = image_of(launch)
    if not launch.build or origin is None or origin.build is None:
        return None
    if not (why := facts.indexes.get(origin.build.index, "")):
        return None
    return Lack(
        rule="wheel-index", why=Exclusion.IMAGE_NOT_BUILT,
        detail=f"{origin.build.index or 'the index that pip is set to'}: {why}",
        remedy=RULES["wheel-index"].mends.replace("VERSION", launch.version.name),
    )  # fmt: skip


CHECKS: tuple[Callable[[Launch, Facts, Wants], Lack | None], ...] = (
    _engine_api, _nodes, _mig, _memory_limit, _platform, _library, _wheels, _registry, _wheel_index,
)  # fmt: skip
"""What every launch is held against, the most certain first."""


def find_room(
    launches: Sequence[Launch], facts: Facts, wants: Wants
) -> tuple[list[Launch], list[tuple[Launch, Lack]]]:
    """Return the launches whose images fit beside those before them, and those whose images do not."""
    if facts.images is None:
        return list(launches), []
    fitting: list[Launch] = []
    lacking: list[tuple[Launch, Lack]] = []
    for launch in launches:
        downloads = find_downloads([*fitting, launch], wants.lock, facts.engine, wants.registry)
        need = need_here(downloads, wants.keep, wants.lock, facts.engine)
        if launch.lacks_image and need.least > facts.images.free:
            detail = (
                f"{gigabytes(facts.images.free)} free at {facts.images.path}, "
                f"at least {gigabytes(need.least)} needed with {downloads[-1].image}"
            )
            lacking.append((launch, Lack(rule="disk-images", why=Exclusion.NO_ROOM, detail=detail)))
        else:
            fitting.append(launch)
    return fitting, lacking


def lack_findings(lacking: Iterable[tuple[Launch, Lack]]) -> Iterator[Finding]:
    """Yield a finding for each lack, with the cells that it prevents."""
    groups: dict[tuple[str, str, str], list[Launch]] = {}
    for launch, lack in lacking:
        groups.setdefault((lack.rule, lack.detail, lack.mends), []).append(launch)
    for (rule, detail, mends), launches in groups.items():
        yield Finding(
            level=Level.TROUBLE, what=WORDS[rule], found=detail, remedy=mends, prevents=cells_of(launches),
            rule=rule,
        )  # fmt: skip


WORDS = {
    "engine-api": "container engine", "gpu-nodes": "device nodes", "mig": "MIG", "platform": "platform",
    "library": "TensorRT of the image",
    "memory-limit": "memory limit", "registry": "registry", "wheels": "wheels",
    "wheel-index": "index of wheels", "disk-images": "disk for images",
}  # fmt: skip


def cells_of(launches: Sequence[Launch]) -> str:
    """Return what launches are, in words: ``46 cells of 10.7.0, 10.8.0``."""
    count = sum(len(launch.cells) for launch in launches)
    names = dict.fromkeys(launch.version.name for launch in launches)
    return f"{count} {'cell' if count == 1 else 'cells'} of {', '.join(names)}"


def doubt_findings(fitting: Sequence[Launch], facts: Facts, wants: Wants) -> Iterator[Finding]:
    """Yield what may go wrong with launches that are tried all the same."""
    downloads = find_downloads(fitting, wants.lock, facts.engine, wants.registry)
    if (tight := room_finding(downloads, facts, wants)) is not None:
        yield tight
    for reference in dict.fromkeys(_reference(x, image_of(x), facts, wants) for x in fitting):
        answer = facts.answers.get(reference)
        if answer is not None and answer.trouble is not None:
            yield Finding(
                level=Level.TROUBLE, what=WORDS["registry"], rule="registry",
                found=f"{answer.words}; it is tried all the same", remedy=answer.remedy,
            )  # fmt: skip


def room_finding(downloads: Sequence[Download], facts: Facts, wants: Wants) -> Finding | None:
    """Return the warning where images usually take more than is free, or None."""
    need = need_here(downloads, wants.keep, wants.lock, facts.engine)
    if facts.images is None or need.usual <= facts.images.free:
        return None
    return Finding(
        level=Level.TROUBLE, what=WORDS["disk-images"], rule="disk-images", remedy=RULES["disk-images"].mends,
        found=f"{gigabytes(facts.images.free)} free at {facts.images.path}; what is to be pulled and built "
        f"usually takes about {gigabytes(need.usual)}, unpacked: tried all the same",
    )  # fmt: skip


def gigabytes(count: float) -> str:
    """Return bytes for reading: ``9.4 GB``, ``82 MB``."""
    if count >= 10**9 or not count:
        return f"{count / 10**9:.{0 if count >= 10**11 else 1}f} GB"
    return f"{max(count / 10**6, 0.1):.{0 if count >= 10**7 else 1}f} MB"


def restrict(plan: Plan, excluded: Iterable[Excluded]) -> Plan:
    """Return a plan without the cells that are not attempted, and with why."""
    left_out = tuple(excluded)
    gone = {item.cell.id for item in left_out}
    kept = [launch.of(cell for cell in launch.cells if cell.id not in gone) for launch in plan.launches]
    launches = tuple(launch for launch in kept if launch.cells)
    return replace(plan, launches=launches, excluded=(*plan.excluded, *left_out))
