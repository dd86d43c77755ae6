"""Doctor: what was found on this host, what that lets run, what to do about the rest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.expand import select_versions
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import count_excluded
from trtmatrix.effects.offline import REMEDY
from trtmatrix.scene import Scene


class Level(str, Enum):
    """How a finding stands."""

    GOOD = "ok"
    LACKING = "--"
    TROUBLE = "!!"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; ``remedy`` is what to type or do."""

    level: Level
    what: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was looked at, what it lets run, and how the controls came out where they were run."""

    findings: tuple[Finding, ...]
    can_run: tuple[str, ...]
    cannot: tuple[str, ...]
    controls: tuple[Finding, ...] = ()


REMEDIES = {
    Exclusion.NO_GPU: "run on a host with an NVIDIA GPU and its driver",
    Exclusion.OTHER_GPU: "run on a host that has this GPU",
    Exclusion.NO_ENGINE: "install and start Docker: https://docs.docker.com/engine/install/",
    Exclusion.NO_GPU_ACCESS: "install NVIDIA's Container Toolkit: "
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
    Exclusion.DRIVER_TOO_OLD: "install a newer driver, or leave these versions out",
    Exclusion.IMAGE_NOT_PULLED: "name the versions by --trt, or --pull all, or docker pull by hand",
    Exclusion.IMAGE_NOT_BUILT: "name the version by --trt: a run makes it; by hand: nox -s image -- VERSION",
    Exclusion.NOT_HERE: REMEDY,
    Exclusion.UNSUPPORTED_GPU: "nothing: these versions do not support this GPU",
    Exclusion.COMPONENT_MISSING: "nothing: the image has no such component",
    Exclusion.NO_INTERPRETER: "name an interpreter that has this TensorRT by --python PATH",
}


def examine(context: Context, scene: Scene) -> Findings:
    """Look at engine, GPUs, images, disk and memory. Touches nothing."""
    versions = select_versions(context.matrix, context.selection)
    findings = [
        _engine(scene),
        *_gpus(scene),
        *_images(scene, versions),
        *_disk(context, scene),
        _memory(),
    ]
    can_run = [
        f"{launch.version.name} on {launch.gpu.name}: {len(launch.cells)} cells"
        + (" (its image is pulled first)" if launch.pull else "")
        + (" (its image is built first)" if launch.build else "")
        for launch in scene.plan.launches
    ]
    cannot = [
        f"{count} cells: {why.value}{f' ({detail})' if detail else ''}; {REMEDIES.get(why, '')}".rstrip("; ")
        for why, count, detail in count_excluded(scene.plan.excluded)
    ]
    return Findings(findings=tuple(findings), can_run=tuple(can_run), cannot=tuple(cannot))


def _engine(scene: Scene) -> Finding:
    engine = scene.host.engine
    if not engine.available:
        remedy = REMEDIES[Exclusion.NO_ENGINE]
        return Finding(level=Level.LACKING, what="container engine", found=engine.reason, remedy=remedy)
    access = engine.gpu_access.value if engine.gpu_access else "none"
    found = f"{engine.name} {engine.version}; containers get GPUs by: {access}"
    lacking = bool(scene.host.gpus) and engine.gpu_access is None
    return Finding(
        level=Level.TROUBLE if lacking else Level.GOOD, what="container engine", found=found,
        remedy=REMEDIES[Exclusion.NO_GPU_ACCESS] if lacking else "",
    )  # fmt: skip


def _gpus(scene: Scene) -> Iterator[Finding]:
    if not scene.scan.gpus:
        yield Finding(
            level=Level.LACKING,
            what="GPU",
            found=scene.scan.reason,
            remedy=REMEDIES[Exclusion.NO_GPU],
        )
    for gpu in scene.scan.gpus:
        found = f"{gpu.name}, {gpu.variant}, compute capability {gpu.compute}, driver {gpu.driver}"
        yield Finding(level=Level.GOOD, what=f"GPU {gpu.index}", found=found)


def _images(scene: Scene, versions: Sequence[Version]) -> Iterator[Finding]:
    engine = scene.host.engine
    for version in versions:
        origin = version.origin
        if not isinstance(origin, ImageOrigin):
            continue
        held = engine.held(origin)
        here = held is not None
        why = Exclusion.IMAGE_NOT_PULLED if origin.build is None else Exclusion.IMAGE_NOT_BUILT
        absent = why.value if engine.available else "unknown: no container engine"
        yield Finding(
            level=Level.GOOD if here else Level.LACKING, what=f"image of {version.name}",
            found=f"{origin.image}: " + (held[:19] if held is not None else absent),
            remedy="" if here or not engine.available else REMEDIES[why].replace("VERSION", version.name),
        )  # fmt: skip


def _disk(context: Context, scene: Scene) -> Iterator[Finding]:
    """Look at the disks: an NGC image takes 10 to 34 GB, and more while it is unpacked."""
    root, pulls = Path(scene.host.engine.root), sum(launch.lacks_image for launch in scene.plan.launches)
    places = [("cache", context.project.cache, 5), ("results", context.project.results, 5)]
    if scene.host.engine.root and root.exists():
        places.append(("images", root, max(5, 50 * pulls)))
    for what, path, needed in places:
        free = shutil.disk_usage(_existing(path.resolve())).free / 1e9
        low = free < needed
        yield Finding(
            level=Level.TROUBLE if low else Level.GOOD, what=f"disk for {what}",
            found=f"{path}: {free:.0f} GB free", remedy=f"free at least {needed} GB" if low else "",
        )  # fmt: skip


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _memory() -> Finding:
    text = Path("/proc/meminfo").read_text()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    found = f"{kilobytes['MemAvailable'] / 1e6:.0f} of {kilobytes['MemTotal'] / 1e6:.0f} GB available"
    return Finding(level=Level.GOOD, what="memory", found=found)


def doctor_text(findings: Findings) -> str:
    """Return the findings for a terminal."""
    lines = list(_lines(findings.findings))
    lines += ["", "This lets run:", *(f"  {line}" for line in findings.can_run or ("nothing",))]
    if findings.cannot:
        lines += ["", "Not here:", *(f"  {line}" for line in findings.cannot)]
    if findings.controls:
        lines += ["", *_lines(findings.controls)]
    return "\n".join(lines)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    for item in findings:
        yield f"[{item.level.value}] {item.what}: {item.found}"
        if item.remedy:
            yield f"     -> {item.remedy}"


def doctor_json(findings: Findings) -> dict[str, Any]:
    """Return the findings as plain data."""
    return asdict(findings)
