"""Which cells run here, in which engine and image, which do not and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trtmatrix.suite.cells import Cell, Selection, by_host
from trtmatrix.suite.matrix import Driver, ImageOrigin, Version
from trtmatrix.suite.model import CellId, Exclusion, Gpu, Product, release_of


class Pull(str, Enum):
    """Which missing images are pulled, or built where they are made by us."""

    NAMED = "named"
    ALL = "all"
    NEVER = "never"


class Keep(str, Enum):
    """Which images that a run pulled stay after their last cell."""

    NONE = "none"
    ALL = "all"


class Isolation(str, Enum):
    """What cells of one launch share."""

    WORKER = "worker"
    PROCESS = "process"
    CONTAINER = "container"


class GpuAccess(str, Enum):
    """How a container is given a GPU."""

    TOOLKIT = "NVIDIA Container Toolkit"
    CDI = "CDI"
    NODES = "device nodes"
    RUNTIME = "the runtime's own way"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The container engine as found: ``images`` maps references to image IDs.

    ``reason``: why none is available; ``remedy``: what mends that.
    ``ids`` are those of all images, also of those without a name; ``proxied``: it reaches registries by a
    proxy or mirror of its own. ``driver_folder`` is the host folder with the driver's libraries that
    ``device nodes`` needs; ``root`` is where the engine keeps images. ``name``: Docker or Podman, or
    Apptainer or pyxis, which are no daemons; ``platform``: what it runs, as registries name it;
    ``insecure``: the registries, by host or network, that it speaks plain HTTP with. ``rootless``: it runs as
    the caller, who is root inside; ``unlimited``: what it cannot limit, in words; ``ulimits``: limits of a
    process that it must be told, since its own defaults may be more than it may set.
    """

    available: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""
    images: Mapping[str, str] = field(default_factory=dict)
    gpu_access: GpuAccess | None = None
    driver_folder: str | None = None
    root: str = ""
    ids: frozenset[str] = frozenset()
    name: str = "Docker"
    proxied: bool = False
    platform: str = "linux/amd64"
    insecure: tuple[str, ...] = ()
    rootless: bool = False
    unlimited: tuple[str, ...] = ()
    ulimits: Mapping[str, int] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The engine's own command line."""
        return self.name.lower()

    @property
    def is_daemon(self) -> bool:
        """Whether Docker's API asks it, as it does Docker and Podman; all others are ``CHILDREN``."""
        return self.command not in CHILDREN

    def held(self, origin: ImageOrigin) -> str | None:
        """Return the ID under which the image of an origin is here, or None.

        A locked image is known by its ID alone: a tag can be pushed again, and neither tag nor digest
        survives ``docker save`` and ``load``.
        """
        if origin.pin is not None:
            here = self.ids | set(self.images.values())
            return next((image_id for image_id in origin.pin.ids if image_id in here), None)
        return self.images.get(origin.mirror or origin.image) or self.images.get(origin.image)


@dataclass(frozen=True, kw_only=True)
class Host:
    """What was found on this host. ``interpreters`` maps a library's version to a Python.

    ``builds_images``: the project has the script that makes images from wheels. ``offline``: nothing may be
    had from elsewhere; then ``lacking`` says, by version, what its environment of wheels lacks.
    """

    engine: Engine
    gpus: tuple[Gpu, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)
    builds_images: bool = False
    offline: bool = False
    lacking: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that is not attempted, with the kind of reason and the words for it."""

    cell: Cell
    why: Exclusion
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The cells of one version on one GPU; ``python`` is set where a host interpreter runs them.

    ``pull``, ``build``: how its image, which is not here, is had first.
    """

    version: Version
    gpu: Gpu
    cells: tuple[Cell, ...]
    pull: bool = False
    build: bool = False
    python: str | None = None

    @property
    def image(self) -> ImageOrigin | None:
        """The image that it runs in, or None where a Python of this host runs it."""
        origin = self.version.origin
        return origin if self.python is None and isinstance(origin, ImageOrigin) else None

    @property
    def lacks_image(self) -> bool:
        """Whether its image is not here."""
        return self.pull or self.build

    def of(self, cells: Iterable[Cell]) -> Launch:
        """Return the same launch over these cells."""
        return replace(self, cells=tuple(cells))

    def on(self, board: Gpu) -> Launch:
        """Return the same launch on an equal board; itself where it needs none."""
        if not board.present:
            return self
        cells = tuple(replace(cell, gpu=board) for cell in self.cells)
        return replace(self, gpu=board, cells=cells)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be started, and what would not. ``boards``: the GPUs of this host, equal ones too."""

    launches: tuple[Launch, ...]
    excluded: tuple[Excluded, ...]
    boards: tuple[Gpu, ...] = ()

    def without(self, cells: Collection[CellId]) -> Plan:
        """Return the plan without these cells; launches that have no other are left out."""
        kept = (launch.of(cell for cell in launch.cells if cell.id not in cells) for launch in self.launches)
        return replace(self, launches=tuple(launch for launch in kept if launch.cells))

    @property
    def here(self) -> tuple[Launch, ...]:
        """The launches that this host runs."""
        return tuple(launch for launch in self.launches if not launch.gpu.remote)

    @property
    def away(self) -> tuple[Launch, ...]:
        """The launches that a cluster's nodes run."""
        return tuple(launch for launch in self.launches if launch.gpu.remote)


def make_plan(cells: Sequence[Cell], host: Host, selection: Selection, pull: Pull) -> Plan:
    """Split cells into launches (one a version and GPU) and exclusions."""
    excluded: list[Excluded] = []
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if reason := exclude(cell, host, selection, pull):
            excluded.append(Excluded(cell=cell, why=reason[0], detail=reason[1]))
        else:
            groups.setdefault((cell.version.name, cell.gpu.slug), []).append(cell)
    launches = []
    for group in groups.values():
        launch = Launch(version=group[0].version, gpu=group[0].gpu, cells=tuple(group))
        origin = launch.version.origin
        if by_host(launch.version, selection):
            launch = replace(launch, python=host_python(launch.version, host))
        elif isinstance(origin, ImageOrigin) and host.engine.held(origin) is None:
            launch = replace(launch, build=origin.build is not None, pull=origin.build is None)
        launches.append(launch)
    return Plan(launches=tuple(launches), excluded=tuple(excluded), boards=host.gpus)


Reason = tuple[Exclusion, str]


def exclude(cell: Cell, host: Host, selection: Selection, pull: Pull) -> Reason | None:
    """Return why a cell cannot run on this host, or None where it can."""
    version, gpu = cell.version, cell.gpu
    if version.compute and gpu.compute:
        low, high = version.compute.min, version.compute.max
        if not release_of(low) <= release_of(gpu.compute) <= release_of(high):
            words = f"by NVIDIA's notes {version.name} supports compute capability {low} to {high}"
            return Exclusion.UNSUPPORTED_GPU, words
    for need, name in (("torch", "torch"), ("torch_tensorrt", "Torch-TensorRT")):
        if need in cell.case.needs and getattr(version, need) is None:
            return Exclusion.COMPONENT_MISSING, f"no {name} in the image"
    if version.product is Product.TENSORRT and not gpu.present:
        if not host.gpus:
            return Exclusion.NO_GPU, "TensorRT needs an NVIDIA GPU and its driver"
        who = "slurm.yaml" if host.gpus[0].remote else "this host"
        return Exclusion.OTHER_GPU, f"{who} has {', '.join(dict.fromkeys(board.name for board in host.gpus))}"
    if by_host(version, selection):
        if host_python(version, host) is not None:
            return None
        found = ", ".join(sorted(host.interpreters)) or "none"
        words = f"TensorRT in the host's interpreters: {found} (--python PATH adds one)"
        return Exclusion.NO_INTERPRETER, words
    if selection.runtimes and version.runtime not in selection.runtimes:
        return Exclusion.OTHER_RUNTIME, f"{version.name} is of runtime {version.runtime}"
    if isinstance(version.origin, ImageOrigin):
        wanted = pull is Pull.ALL or (pull is Pull.NAMED and bool(selection.versions))
        return _without_container(cell, version.origin, host, wanted=wanted)
    absent = host.lacking.get(version.name)
    return (Exclusion.NOT_HERE, absent) if absent else None


def host_python(version: Version, host: Host) -> str | None:
    """Return the host interpreter whose library is this version's, as far as both are written; or None."""
    ours = version.library.value.split(".")
    for library, python in host.interpreters.items():
        if all(mine == theirs for mine, theirs in zip(ours, library.split("."), strict=False)):
            return python
    return None


def _without_container(cell: Cell, origin: ImageOrigin, host: Host, *, wanted: bool) -> Reason | None:
    """Return why no container of a cell can be had here; ``wanted``: its image may be pulled or built."""
    version, gpu, engine, rule = cell.version, cell.gpu, host.engine, cell.version.driver
    if not engine.available:
        return Exclusion.NO_ENGINE, engine.reason
    if version.product is Product.TENSORRT and engine.gpu_access is None:
        return Exclusion.NO_GPU_ACCESS, "neither NVIDIA Container Toolkit, CDI nor device nodes"
    if version.product is Product.TENSORRT and rule and not driver_suffices(rule, gpu):
        here = "the newest seen" if gpu.remote else "here"
        words = f"by NVIDIA's notes {version.name} needs {rule.least}, {here} is {gpu.driver}"
        return Exclusion.DRIVER_TOO_OLD, words
    if engine.held(origin) is not None:
        return None
    built, image = origin.build is not None, origin.reference
    if host.offline:
        return Exclusion.NOT_HERE, image
    if not engine.is_daemon and (built or is_own(origin.image)):
        words = f"{engine.name} builds none: name one by --image {version.name}=FILE"
        return Exclusion.IMAGE_NOT_BUILT, words
    if built:
        return None if wanted and host.builds_images else (Exclusion.IMAGE_NOT_BUILT, image)
    if is_own(origin.image):
        return Exclusion.IMAGE_NOT_BUILT, f"{image}: made by hand, in no registry"
    return None if wanted else (Exclusion.IMAGE_NOT_PULLED, image)


def driver_suffices(rule: Driver, gpu: Gpu) -> bool:
    """Whether the GPU's driver runs an image: at least ``least``, or a named data-centre branch.

    Source: CUDA's forward compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/.
    An unknown driver is given the benefit of the doubt: the run itself will tell.
    """
    if gpu.driver is None or is_driver_enough(rule, gpu):
        return True
    driver, branches = release_of(gpu.driver), map(release_of, rule.datacenter)
    return gpu.datacenter and any(driver.major == b.major and driver >= b for b in branches)


def is_driver_enough(rule: Driver, gpu: Gpu) -> bool:
    """Whether the GPU's driver runs an image without that image's own driver library, or is unknown."""
    return gpu.driver is None or release_of(gpu.driver) >= release_of(rule.least)


def count_excluded(excluded: Iterable[Excluded]) -> list[tuple[Exclusion, int, str]]:
    """Return each kind of exclusion with its count and the detail of one cell, the commonest first."""
    details: dict[Exclusion, list[str]] = {}
    for item in excluded:
        details.setdefault(item.why, []).append(item.detail)
    ordered = sorted(details.items(), key=lambda pair: (-len(pair[1]), pair[0].value))
    return [(why, len(found), found[0]) for why, found in ordered]


_LONG = ("docker.io/library/", "docker.io/", "localhost/")
_LEAST_ID = 12

ENGINE = "TRTMATRIX_ENGINE"  # which engine is meant, where --engine does not say
IMAGE_SUFFIXES = {"auto": ".tar", "docker": ".tar", "podman": ".tar", "apptainer": ".sif", "pyxis": ".sqsh"}
"""The engines by the names that users give them, and what the file of an image ends with for each."""
CHILDREN = frozenset({"apptainer", "pyxis"})  # those that are no daemons: what they start is a child of ours
OWN = "trtmatrix/"
"""What the names of images begin with that are made on this host: no registry has them, and none is asked."""


def is_own(image: str) -> bool:
    """Whether an image has a name of this project's own, so that it is made here and never pulled."""
    return short_name(image).startswith(OWN)


@dataclass(frozen=True, kw_only=True)
class HeldImage:
    """An image that is here. ``name``: a tag or digest that the engine knows it by; ``id``: ``sha256:…``."""

    name: str
    id: str


def short_name(reference: str) -> str:
    """Return what Docker calls an image that Podman calls ``docker.io/…`` or, made here, ``localhost/…``."""
    return next((reference.removeprefix(p) for p in _LONG if reference.startswith(p)), reference)


def find_image(images: Mapping[str, str], wanted: str) -> HeldImage | None:
    """Return the image of a name, digest or ID; None where it is not here. ``images``: reference → ID."""
    plain, digits = short_name(wanted), wanted.removeprefix("sha256:")
    names = [wanted, plain, f"{plain}:latest"]
    if len(digits) >= _LEAST_ID:
        names += sorted(n for n, i in images.items() if i.removeprefix("sha256:").startswith(digits))
    for name in filter(images.__contains__, names):
        return HeldImage(name=name, id=images[name])
    return None


def registry_name(images: Mapping[str, str], image_id: str) -> str:
    """Return ``name@sha256:…`` of an image that a registry has, else nothing."""
    return min((name for name, i in images.items() if i == image_id and "@sha256:" in name), default="")
