"""The rules by which a host is looked at before a run: each with what it prevents, what mends it, its source.

A rule that prevents cells names the kinds of :class:`Exclusion` that they get; one without any only warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtmatrix.core.model import Exclusion


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. ``looks_at``: the fact; ``mends``: the command or step; ``source``: who says so."""

    id: str
    looks_at: str
    prevents: str
    mends: str
    source: str
    excludes: frozenset[Exclusion] = frozenset()


def _rule(
    id: str,  # noqa: A002 - the name of the field
    looks_at: str, *, prevents: str, mends: str, source: str, excludes: tuple[Exclusion, ...] = (),
) -> Rule:  # fmt: skip
    return Rule(
        id=id, looks_at=looks_at, prevents=prevents, mends=mends, source=source, excludes=frozenset(excludes)
    )


_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
_ENGINE_API = "https://docs.docker.com/reference/api/engine/version-history/"
_MEMORY = "https://docs.docker.com/engine/containers/resource_constraints/"
_PAGE = "docs/hosts.md"
_UNPACKED = "measured by this project, but not of NGC's images: bench/unpacking.py"
_CHOSEN = "chosen by this project, not measured: LOW in src/trtmatrix/core/preflight/host.py"

_ALL = (
    _rule(
        "engine", "whether a container engine answers", prevents="all cells in images",
        mends="install and start Docker, or name it rightly: the finding says which of them",
        source="https://docs.docker.com/engine/install/", excludes=(Exclusion.NO_ENGINE,),
    ),
    _rule(
        "engine-api", "whether the engine's API has what our containers ask for",
        prevents="cells in images: the engine refuses their containers",
        mends="install a newer engine: https://docs.docker.com/engine/install/",
        source=_ENGINE_API, excludes=(Exclusion.ENGINE_TOO_OLD,),
    ),
    _rule(
        "engine-limits", "what the engine cannot limit: one without root whose user was given no control",
        prevents="", mends="delegate cgroup controllers to the user: "
        "https://rootlesscontaine.rs/getting-started/common/cgroup2/",
        source="https://rootlesscontaine.rs/getting-started/common/cgroup2/",
    ),
    _rule(
        "gpu", "the GPUs that the driver knows", prevents="all cells of TensorRT",
        mends="run on a host with this NVIDIA GPU and its driver",
        source="https://docs.nvidia.com/deploy/nvml-api/", excludes=(Exclusion.NO_GPU, Exclusion.OTHER_GPU),
    ),
    _rule(
        "gpu-access", "how containers get the GPU: the toolkit, CDI, or device nodes and a driver folder",
        prevents="all cells of TensorRT in images", mends=f"install NVIDIA's Container Toolkit: {_TOOLKIT}",
        source=_TOOLKIT, excludes=(Exclusion.NO_GPU_ACCESS,),
    ),
    _rule(
        "gpu-nodes", "the device nodes that a container is given where there is neither toolkit nor CDI",
        prevents="cells of that GPU in images: the engine refuses their containers",
        mends="sudo nvidia-modprobe -u -c=0",
        source="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        excludes=(Exclusion.NO_GPU_ACCESS,),
    ),
    _rule(
        "mig", "whether a GPU in MIG mode has an instance that CUDA can use, and whether containers get it",
        prevents="all cells of that GPU: CUDA finds no device on it; by CDI or device nodes those in images",
        mends="make an instance: sudo nvidia-smi mig -cgi PROFILE -C; or leave MIG: sudo nvidia-smi -mig 0; "
        "in images with NVIDIA's Container Toolkit alone",
        source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
        excludes=(Exclusion.NO_GPU_ACCESS,),
    ),
    _rule(
        "driver", "the driver against the least one of each image, with the branches for data-centre GPUs",
        prevents="cells of these versions: NVIDIA's notes do not support them, the engine may start them",
        mends="install a newer driver, or leave these versions out",
        source="https://docs.nvidia.com/deploy/cuda-compatibility/", excludes=(Exclusion.DRIVER_TOO_OLD,),
    ),
    _rule(
        "compute", "the compute capability against those that each version supports",
        prevents="cells of these versions: NVIDIA's notes do not support them on this GPU",
        mends="nothing: these versions do not support this GPU",
        source="https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/support-matrix.html",
        excludes=(Exclusion.UNSUPPORTED_GPU,),
    ),
    _rule(
        "component", "whether the image has what a case needs", prevents="these cases",
        mends="nothing: the image has no such component", source="matrix.yaml",
        excludes=(Exclusion.COMPONENT_MISSING,),
    ),
    _rule(
        "image", "whether a missing image may be pulled or built", prevents="cells of these versions",
        mends="name the versions by --trt, or --pull all, or docker pull by hand; nox -s image -- VERSION "
        "builds one of ours",
        source=_PAGE, excludes=(Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT),
    ),
    _rule(
        "offline", "with --offline: whether images and wheels are here", prevents="cells of these versions",
        mends="on a host with a network: nox -s pack -- --trt VERSION --to DIR; here: python3 -I DIR/unpack",
        source=_PAGE, excludes=(Exclusion.NOT_HERE,),
    ),
    _rule(
        "interpreter", "whether a Python of this host has the version", prevents="cells of these versions",
        mends="name an interpreter that has this TensorRT by --python PATH", source="README.md",
        excludes=(Exclusion.NO_INTERPRETER,),
    ),
    _rule(
        "runtime", "whether the runtime that was asked for is the version's",
        prevents="cells of these versions", mends="leave --runtime out", source="README.md",
        excludes=(Exclusion.OTHER_RUNTIME,),
    ),
    _rule(
        "platform", "whether an image is published for what this engine runs",
        prevents="cells of these versions", mends="run on a host of one of those platforms",
        source="https://github.com/opencontainers/image-spec/blob/main/image-index.md",
        excludes=(Exclusion.IMAGE_NOT_GIVEN,),
    ),
    _rule(
        "library", "whether the locked image says that it has the TensorRT that a version is pinned for",
        prevents="cells of these versions: no run in that image counts for them",
        mends="correct library: or image: in matrix.yaml; nox -s lock shows what the image says",
        source="https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html",
        excludes=(Exclusion.IMAGE_NOT_PULLED,),
    ),
    _rule(
        "registry", "whether the registry is reached, lets us in, and has the image",
        prevents="cells of these versions: their images cannot be had", mends="docker login nvcr.io",
        source="https://github.com/opencontainers/distribution-spec/blob/main/spec.md",
        excludes=(Exclusion.IMAGE_NOT_GIVEN,),
    ),
    _rule(
        "lock", "whether an image is pinned by digest", prevents="",
        mends="nox -s lock -- --update", source="https://docs.docker.com/reference/cli/docker/image/pull/",
    ),
    _rule(
        "wheels", "whether each wheel of an image that is to be built has its SHA-256",
        prevents="cells of these versions: their images are not built",
        mends="nox -s image -- VERSION --lock takes them as they come, this once",
        source="docker/wheels/build", excludes=(Exclusion.IMAGE_NOT_BUILT,),
    ),
    _rule(
        "wheel-index", "whether the index of the wheels that are to be fetched answers",
        prevents="cells of these versions: their images cannot be built",
        mends="check network and proxy, or build from a folder: docker/wheels/build VERSION --wheels DIR",
        source="https://packaging.python.org/en/latest/specifications/simple-repository-api/",
        excludes=(Exclusion.IMAGE_NOT_BUILT,),
    ),
    _rule(
        "disk-images", "the free disk of the engine against what is to be pulled and unpacked",
        prevents="cells of these versions: their images do not fit",
        mends="free disk, run fewer versions (--trt), or let images go after their last cell (--keep none)",
        source=_UNPACKED, excludes=(Exclusion.NO_ROOM,),
    ),
    _rule(
        "disk-cache", "the free disk of the cache: prepared cases, environments, outputs", prevents="",
        mends="free 5 GB there, or name another folder by --cache", source=_CHOSEN,
    ),
    _rule(
        "disk-results", "the free disk of the results", prevents="",
        mends="free 5 GB there, or name another folder by --results", source=_CHOSEN,
    ),
    _rule(
        "memory", "the memory limit of a container against the host's memory", prevents="",
        mends="name a limit below it by --memory: then a cell that wants more ends, and nothing else",
        source=_MEMORY,
    ),
    _rule(
        "memory-limit", "the memory limit of a container against the least that engine and probe take",
        prevents="all cells in images", mends="give containers more: --memory 4g",
        source=_MEMORY, excludes=(Exclusion.NO_MEMORY,),
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
