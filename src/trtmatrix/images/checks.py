"""The rules by which a host is held against a plan before a run, and what is told of it. Pure.

A rule that prevents cells names the kinds of :class:`Exclusion` that they get; one without any only warns.
docs/hosts.md has what each rule looks at, and its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby

from trtmatrix.common.text import counted, write_size
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.plan.lockfile import Lock, LockedLayer, pin_of
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Exclusion, Gpu
from trtmatrix.suite.plan import Engine, Excluded, GpuAccess, Keep, Launch, Plan, is_own


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
    """Yield the findings for a terminal; those in a row that one remedy mends share its line."""
    for (level, prevents, remedy), items in groupby(findings, lambda f: (f.level, f.prevents, f.remedy)):
        yield from (f"[{level.value}] {item.what}: {item.found}" for item in items)
        if prevents:
            yield f"     prevents {prevents}"
        if remedy:
            yield f"     -> {remedy}"


@dataclass(frozen=True)
class Rule:
    """One rule. ``mends``: the command or step; ``what``: what its findings are about, where not the id."""

    id: str
    excludes: tuple[Exclusion, ...]
    mends: str
    prevents: str = "cells of these versions"
    what: str = ""

    def finding(self, found: str, level: Level = Level.LACKING, **others: str) -> Finding:
        """Return what was found by it; ``others``: words in place of the rule's own."""
        told = Finding(level=level, what=self.what or self.id, found=found, rule=self.id)
        if level is not Level.GOOD:
            told = replace(told, remedy=self.mends, prevents=self.prevents if self.excludes else "")
        return replace(told, **others)  # type: ignore[arg-type]  # all of them are words


RULES: Mapping[str, Rule] = {rule.id: rule for rule in (
    Rule("engine", (Exclusion.NO_ENGINE,), "install and start Docker, or correct --engine or DOCKER_HOST",
         "all cells in images", "container engine"),
    Rule("engine-limits", (), "delegate cgroup controllers to the user: "
         "https://rootlesscontaine.rs/getting-started/common/cgroup2/", what="limits of containers"),
    Rule("gpu", (Exclusion.NO_GPU, Exclusion.OTHER_GPU), "run on a host with this NVIDIA GPU and its driver",
         "all cells of TensorRT", "GPU"),
    Rule("gpu-access", (Exclusion.NO_GPU_ACCESS,), "install NVIDIA's Container Toolkit: "
         "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
         "all cells of TensorRT in images", "container engine"),
    Rule("mig", (Exclusion.NO_GPU_ACCESS,),
         "install NVIDIA's Container Toolkit, or leave MIG: sudo nvidia-smi -mig 0", what="MIG"),
    Rule("driver", (Exclusion.DRIVER_TOO_OLD,), "install a newer driver, or leave these versions out"),
    Rule("compute", (Exclusion.UNSUPPORTED_GPU,), "nothing: these versions do not support this GPU"),
    Rule("component", (Exclusion.COMPONENT_MISSING,), "no remedy: the image does not have it",
         "these cases"),
    Rule("image", (Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT), "name the version with --trt "
         "(a run pulls or builds it), or use --pull all, or name a file with --image VERSION=FILE; by hand: "
         "docker pull, or nox -s image -- VERSION"),
    Rule("offline", (Exclusion.NOT_HERE,), "on a host with a network: nox -s pack -- --trt VERSION --to DIR; "
         "here: sh DIR/unpack"),
    Rule("interpreter", (Exclusion.NO_INTERPRETER,),
         "name an interpreter that has this TensorRT with --python PATH"),
    Rule("runtime", (Exclusion.OTHER_RUNTIME,), "leave --runtime out"),
    Rule("platform", (Exclusion.IMAGE_NOT_GIVEN,), "run on a host of one of those platforms"),
    Rule("registry", (Exclusion.IMAGE_NOT_GIVEN,), "docker login nvcr.io"),
    Rule("lock", (), "nox -s lock -- --update"),
    Rule("disk-images", (Exclusion.NO_ROOM,),
         "free disk space, run fewer versions (--trt), or remove images after their last cell (--keep none)",
         what="disk for images"),
    Rule("disk", (), "free 5 GB there, or name another folder by --cache or --results"),
    Rule("memory-limit", (Exclusion.NO_MEMORY,), "give containers more: --memory 4g", "all cells in images",
         "memory limit"),
)}  # fmt: skip
"""All rules, in the order in which they are told."""


def rule_of(why: Exclusion) -> Rule | None:
    """Return the first rule that excludes for a reason, or None: not all that goes wrong is known before."""
    return next((rule for rule in RULES.values() if why in rule.excludes), None)


# --- What is still to be pulled or built, its layers counted once, and the disk that it takes

GB = 10**9
LOW = 5 * GB  # free bytes below which the cache or the results may not take what a run writes
USUAL_FACTOR = 2
"""Unpacked by compressed size, rounded up: 1.76 of TensorRT 8.6 with CUDA's libraries, by gzip."""
USUAL_UNLOCKED = 10 * GB
"""Compressed bytes of an image that is not locked, for want of better: NGC's are 5 to 20 GB."""
USUAL_BUILT = 8 * GB
"""What an image built from wheels takes beside its base: they are fetched, copied and installed."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """An image that is not here. ``layers``: those to be pulled, None where it is not locked.

    ``image``: its name in matrix.yaml; ``reference``: what is pulled, nothing where it is built on what is
    here; ``versions``: those that want it; ``built``: it is a base that wheels are put on. ``added``: bytes
    that it adds to those before it, as a layer is pulled once; None where that is not known.
    """

    image: str
    reference: str
    versions: tuple[str, ...]
    layers: tuple[LockedLayer, ...] | None
    built: bool = False
    added: int | None = None


@dataclass(frozen=True, kw_only=True)
class Room:
    """A folder and the bytes that are free on its disk."""

    path: str
    free: int

    @property
    def told(self) -> str:
        """How much is free, in words."""
        return f"{self.path}: {write_size(self.free)} free"


def find_downloads(launches: Iterable[Launch], lock: Lock, engine: Engine) -> tuple[Download, ...]:
    """Return the images that launches want and that are not here, each once, in their order."""
    locked = {name: own for name, each in lock.images.items() if (own := each.platforms.get(engine.platform))}
    seen = {
        layer.digest for name, own in locked.items() for layer in own.layers
        if engine.held(ImageOrigin(image=name, pin=pin_of(lock, name, engine.platform))) is not None
    }  # fmt: skip
    found: dict[tuple[str, bool], Download] = {}
    for launch in launches:
        origin, name = launch.image, launch.version.name
        if origin is None or not launch.lacks_image:
            continue
        key = (origin.image, launch.build)
        if before := found.get(key):
            found[key] = replace(before, versions=tuple(dict.fromkeys((*before.versions, name))))
            continue
        asked = asked_for(origin, engine)
        whole = locked.get(asked.image) if asked else None
        fresh = {each.digest: each for each in whole.layers if each.digest not in seen} if whole else {}
        seen |= fresh.keys()
        layers = tuple(fresh.values()) if whole or not asked else None
        found[key] = Download(
            image=origin.image, reference=asked.reference if asked else "", versions=(name,), layers=layers,
            built=origin.build is not None,
            added=None if layers is None else sum(each.size for each in layers),
        )  # fmt: skip
    return tuple(found.values())


def asked_for(origin: ImageOrigin, engine: Engine) -> ImageOrigin | None:
    """Return what a registry is asked for to have an image: the image, or the base that it is built on.

    None where that is made here too, or is here.
    """
    wanted = origin.base or origin
    return None if is_own(wanted.image) or engine.held(wanted) is not None else wanted


def need_here(downloads: Sequence[Download], keep: Keep) -> tuple[int, int]:
    """Return the disk in bytes that downloads take, pulled one after another: at the least, and usually.

    Those that stay add up; of those that go after their last cell two are here at a time: one runs, the next
    is pulled. At the least an image takes its compressed bytes, and the largest layer lies beside them while
    it is unpacked; usually twice its compressed bytes (bench/unpacking.py measures it).
    """
    stay, go = list[tuple[int, int]](), list[tuple[int, int]]()
    for download in downloads:
        packed = USUAL_UNLOCKED if download.added is None else download.added
        usual = packed * USUAL_FACTOR + (USUAL_BUILT if download.built else 0)
        (stay if keep is Keep.ALL or download.built else go).append((usual, download.added or 0))
    together = [*stay, *sorted(go)[-2:]]
    largest = max((layer.size for download in downloads for layer in download.layers or ()), default=0)
    return largest + sum(least for _, least in together), sum(usual for usual, _ in together)


def image_words(launches: Iterable[Launch], lock: Lock, engine: Engine) -> str:
    """Return how many images launches lack, their GB and how long that takes; nothing where none."""
    sizes = [each.added for each in find_downloads(launches, lock, engine)]
    images, known = counted(len(sizes), "image"), [size for size in sizes if size is not None]
    if not sizes:
        return ""
    if len(known) < len(sizes):
        each = " each" * (len(sizes) > 1)
        return f"{images}, 10 to 34 GB{each}, downloaded in 1 to 5 min{each} at 1 Gbit/s"
    if not (size := sum(known)):  # made of wheels on a base that is here, or is made here too
        return f"{images} to build"
    return f"{images}, {write_size(size)}, downloaded in {max(1, round(8 * size / 1e9 / 60))} min at 1 Gbit/s"


# --- What keeps launches from running

PROBE_LEAST_MEMORY = 48 << 20
"""A limit below which the probe does not even start, in bytes. Measured with Python 3.11 and ONNX Runtime:
it never starts with 47 MiB, mostly with 48 MiB, and a small cell passes from 64 MiB on."""
REFUSING = frozenset({Trouble.UNREACHABLE, Trouble.NEEDS_LOGIN, Trouble.WRONG_LOGIN, Trouble.MISSING})
"""Answers with which a pull cannot come out well either; of others the pull itself tells."""
NOWHERE = Room(path="", free=0)
BY_WHOLE_GPU = (GpuAccess.CDI, GpuAccess.NODES, GpuAccess.RUNTIME)
"""Ways in which a container is given a GPU, and none of its MIG instances."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """A host as it was found.

    ``images``: where the engine keeps images, None where that is not on this host. ``answers``: by
    reference, the digest that a registry has for it, or what is wrong.
    """

    engine: Engine
    gpus: tuple[Gpu, ...] = ()
    scan_reason: str = ""
    images: Room | None = None
    cache: Room = NOWHERE
    results: Room = NOWHERE
    answers: Mapping[str, str | RegistryError] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a run wants: launches in the order in which they start, with only the cells that are to be run.

    ``memory``: a container's limit in bytes.
    """

    launches: tuple[Launch, ...] = ()
    lock: Lock = field(default_factory=Lock)
    keep: Keep = Keep.ALL
    memory: int = 32 << 30


def check(facts: HostFacts, wants: Wants) -> tuple[list[Excluded], list[Finding]]:
    """Hold every wanted launch against every rule; room on the disk goes to those that start first.

    Returns what is not attempted, and what is told of it.
    """
    fitting: list[Launch] = []
    lacking: dict[Finding, list[Launch]] = {}
    for launch in wants.launches:
        if (lack := next(find_lacks(launch, fitting, facts, wants), None)) is None:
            fitting.append(launch)
        else:
            lacking.setdefault(lack, []).append(launch)
    excluded, told = list[Excluded](), list[Finding]()
    for lack, launches in lacking.items():
        cells = [cell for launch in launches for cell in launch.cells]
        excluded += [Excluded(cell=c, why=RULES[lack.rule].excludes[0], detail=lack.found) for c in cells]
        names = ", ".join(dict.fromkeys(launch.version.name for launch in launches))
        told.append(replace(lack, prevents=f"{counted(len(cells), 'cell')} of {names}"))
    # What may not fit is tried all the same.
    _, usual = need_here(find_downloads(fitting, wants.lock, facts.engine), wants.keep)
    if facts.images is not None and usual > facts.images.free:
        takes = f"usually takes about {write_size(usual)}, unpacked: tried all the same"
        found = f"{facts.images.told}; what is to be pulled and built {takes}"
        told.append(_trouble("disk-images", found, prevents=""))
    return excluded, told


def find_lacks(launch: Launch, before: Sequence[Launch], facts: HostFacts, wants: Wants) -> Iterator[Finding]:
    """Yield what keeps a launch from running, the most certain first; ``before``: whose images have room."""
    origin, engine, gpu = launch.image, facts.engine, launch.gpu
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
    # Its image may not be there to be pulled or built on.
    name = (origin.base or origin).image
    locked = wants.lock.images.get(name)
    if locked is not None and engine.platform not in locked.platforms:
        published = ", ".join(locked.platforms) or "none"
        yield _trouble("platform", f"{name} is published for {published}; this engine runs {engine.platform}")
    asked = asked_for(origin, engine)
    answer = facts.answers.get(asked.reference) if asked is not None else None
    # The engine may reach what this process does not: by its own proxy, or from another host.
    own_way = {Trouble.UNREACHABLE} if engine.proxied or facts.images is None else set()
    if isinstance(answer, RegistryError) and answer.trouble in REFUSING - own_way:
        words, _, remedy = str(answer).partition("\n")
        yield _trouble("registry", words, remedy=remedy.strip())
    if facts.images is not None:
        downloads = find_downloads([*before, launch], wants.lock, engine)
        if (needs := need_here(downloads, wants.keep)[0]) > facts.images.free:
            free = f"{write_size(facts.images.free)} free at {facts.images.path}"
            needed = f"at least {write_size(needs)} needed with {downloads[-1].image}"
            yield _trouble("disk-images", f"{free}, {needed}")


def _trouble(rule: str, found: str, **others: str) -> Finding:
    return RULES[rule].finding(found, Level.TROUBLE, **others)


def restrict(plan: Plan, excluded: Sequence[Excluded]) -> Plan:
    """Return a plan without the cells that are not attempted, and with why."""
    left = plan.without({item.cell.id for item in excluded})
    return replace(left, excluded=(*plan.excluded, *excluded))
