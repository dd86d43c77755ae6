"""The rules by which a host is held against a plan before a run, and what is told of it.

A rule that prevents cells names the kinds of :class:`Exclusion` that they get; one without any only warns.
Pure: :mod:`.checks` holds launches against those that need a look at the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trtmatrix.suite.outcome import Exclusion


class Level(str, Enum):
    """How a finding stands."""

    GOOD = "ok"
    LACKING = "--"
    TROUBLE = "!!"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; ``remedy`` is what to type or do.

    ``prevents``: what cannot be done because of it, in words; nothing where all can. ``rule``: the id of the
    rule that it comes of, nothing where it comes of none.
    """

    level: Level
    what: str
    found: str
    remedy: str = ""
    prevents: str = ""
    rule: str = ""


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings for a terminal."""
    for item in findings:
        yield f"[{item.level.value}] {item.what}: {item.found}"
        if item.prevents:
            yield f"     prevents {item.prevents}"
        if item.remedy:
            yield f"     -> {item.remedy}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule; docs/hosts.md has what it looks at, and its source. ``mends``: the command or step.

    ``what``: what its findings are about, in words; the id where that says it.
    """

    id: str
    mends: str
    prevents: str = ""
    excludes: tuple[Exclusion, ...] = ()
    what: str = ""

    def finding(
        self, found: str, level: Level = Level.LACKING, *, what: str = "", remedy: str | None = None,
        prevents: str | None = None,
    ) -> Finding:  # fmt: skip
        """Return what was found by it, with its remedy and what it prevents but where others are named."""
        return Finding(
            level=level, what=what or self.what or self.id, found=found, rule=self.id,
            remedy=self.mends if remedy is None else remedy,
            prevents=self.prevents if prevents is None else prevents,
        )  # fmt: skip


_ALL = (
    Rule(
        id="engine", what="container engine", excludes=(Exclusion.NO_ENGINE,),
        prevents="all cells in images",
        mends="install and start Docker, or name it rightly: the finding says which of them",
    ),
    Rule(
        id="engine-api", what="container engine", excludes=(Exclusion.ENGINE_TOO_OLD,),
        prevents="cells in images: the engine refuses their containers",
        mends="install a newer engine: https://docs.docker.com/engine/install/",
    ),
    Rule(
        id="engine-limits", what="limits of containers", mends="delegate cgroup controllers to the user: "
              "https://rootlesscontaine.rs/getting-started/common/cgroup2/",
    ),
    Rule(
        id="gpu", what="GPU", excludes=(Exclusion.NO_GPU, Exclusion.OTHER_GPU),
        prevents="all cells of TensorRT", mends="run on a host with this NVIDIA GPU and its driver",
    ),
    Rule(
        id="gpu-access", what="container engine", excludes=(Exclusion.NO_GPU_ACCESS,),
        prevents="all cells of TensorRT in images", mends="install NVIDIA's Container Toolkit: "
              "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
    ),
    Rule(
        id="gpu-nodes", what="device nodes", excludes=(Exclusion.NO_GPU_ACCESS,),
        prevents="cells of that GPU in images: the engine refuses their containers",
        mends="sudo nvidia-modprobe -u -c=0",
    ),
    Rule(
        id="mig", what="MIG", excludes=(Exclusion.NO_GPU_ACCESS,),
        prevents="all cells of that GPU: CUDA finds no device on it; by CDI or device nodes those in "
                 "images",
        mends="make an instance: sudo nvidia-smi mig -cgi PROFILE -C; or leave MIG: sudo nvidia-smi -mig "
              "0; in images with NVIDIA's Container Toolkit alone",
    ),
    Rule(
        id="driver", excludes=(Exclusion.DRIVER_TOO_OLD,),
        prevents="cells of these versions: NVIDIA's notes do not support them, the engine may start them",
        mends="install a newer driver, or leave these versions out",
    ),
    Rule(
        id="compute", excludes=(Exclusion.UNSUPPORTED_GPU,),
        prevents="cells of these versions: NVIDIA's notes do not support them on this GPU",
        mends="nothing: these versions do not support this GPU",
    ),
    Rule(
        id="component", excludes=(Exclusion.COMPONENT_MISSING,), prevents="these cases",
        mends="nothing: the image has no such component",
    ),
    Rule(
        id="image", excludes=(Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT),
        prevents="cells of these versions",
        mends="name the versions by --trt, or --pull all, or docker pull by hand; nox -s image -- VERSION "
              "builds one of ours",
    ),
    Rule(
        id="offline", excludes=(Exclusion.NOT_HERE,), prevents="cells of these versions",
        mends="on a host with a network: nox -s pack -- --trt VERSION --to DIR; here: python3 -I "
              "DIR/unpack",
    ),
    Rule(
        id="interpreter", excludes=(Exclusion.NO_INTERPRETER,), prevents="cells of these versions",
        mends="name an interpreter that has this TensorRT by --python PATH",
    ),
    Rule(
        id="runtime", excludes=(Exclusion.OTHER_RUNTIME,), prevents="cells of these versions",
        mends="leave --runtime out",
    ),
    Rule(
        id="platform", excludes=(Exclusion.IMAGE_NOT_GIVEN,), prevents="cells of these versions",
        mends="run on a host of one of those platforms",
    ),
    Rule(
        id="library", what="TensorRT of the image", excludes=(Exclusion.IMAGE_NOT_PULLED,),
        prevents="cells of these versions: no run in that image counts for them",
        mends="correct library: or image: in matrix.yaml; nox -s lock shows what the image says",
    ),
    Rule(
        id="registry", excludes=(Exclusion.IMAGE_NOT_GIVEN,),
        prevents="cells of these versions: their images cannot be had", mends="docker login nvcr.io",
    ),
    Rule(
        id="lock", mends="nox -s lock -- --update",
    ),
    Rule(
        id="wheels", excludes=(Exclusion.IMAGE_NOT_BUILT,),
        prevents="cells of these versions: their images are not built",
        mends="nox -s image -- VERSION --lock takes them as they come, this once",
    ),
    Rule(
        id="wheel-index", what="index of wheels", excludes=(Exclusion.IMAGE_NOT_BUILT,),
        prevents="cells of these versions: their images cannot be built",
        mends="check network and proxy, or build from a folder: docker/wheels/build VERSION --wheels DIR",
    ),
    Rule(
        id="disk-images", what="disk for images", excludes=(Exclusion.NO_ROOM,),
        prevents="cells of these versions: their images do not fit",
        mends="free disk, run fewer versions (--trt), or let images go after their last cell (--keep none)",
    ),
    Rule(
        id="disk-cache", what="disk for cache", mends="free 5 GB there, or name another folder by --cache",
    ),
    Rule(
        id="disk-results", what="disk for results",
        mends="free 5 GB there, or name another folder by --results",
    ),
    Rule(
        id="memory",
        mends="name a limit below it by --memory: then a cell that wants more ends, and nothing else",
    ),
    Rule(
        id="memory-limit", what="memory limit", excludes=(Exclusion.NO_MEMORY,),
        prevents="all cells in images", mends="give containers more: --memory 4g",
    ),
)  # fmt: skip

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
"""All rules, in the order in which they are told."""


def rule_of(why: Exclusion) -> Rule | None:
    """Return the first rule that excludes for a reason, or None: not all that goes wrong is known before."""
    return next((rule for rule in _ALL if why in rule.excludes), None)


def remedy_of(why: Exclusion) -> str:
    """Return what mends a reason for which cells are not run, or nothing."""
    rule = rule_of(why)
    return rule.mends if rule is not None else ""
