"""Hosts, made up: one on which all runs, and every one that lacks something, for the tests of preflight."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from builders import make_case, make_cell, make_repro, make_version
from locks import IMAGE, make_image, make_platform

from trtmatrix.images.checks import Finding, HostFacts, Level, Room, Wants, check, restrict, rule_of
from trtmatrix.images.preflight import host_findings
from trtmatrix.launchers.references import RegistryError
from trtmatrix.plan.lockfile import Lock, LockedLayer, pin_of
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Plan, Pull, make_plan
from trtmatrix.suite.repros import Case

GB = 10**9
NAMED = Selection(versions=("10.7.0",))
BASE = "nvcr.io/nvidia/pytorch:23.11-py3"
DRIVER = {"least": "560", "datacenter": ["470.57", "535.86"], "known": "read", "source": "notes"}
COMPUTE = {"min": "7.5", "max": "9.0", "known": "read", "source": "notes"}
L4 = Gpu(
    slug="nvidia-l4", name="NVIDIA L4", compute="8.9", datacenter=True, driver="565.57", variant="23 GiB",
    index=0, minor=0,
)  # fmt: skip
VERSION = replace(
    make_version("10.7.0", library="10.7.0.23", driver=DRIVER, compute=COMPUTE),
    origin=ImageOrigin(image=IMAGE),
)
ENGINE = Engine(available=True, version="28.1.0", gpu_access=GpuAccess.TOOLKIT, root="/var/lib/docker")
FACTS = HostFacts(
    engine=ENGINE, gpus=(L4,), images=Room(path="/var/lib/docker", free=500 * GB),
    cache=Room(path="cache", free=50 * GB), results=Room(path="results", free=50 * GB),
)  # fmt: skip


def manifest_of(image: str) -> str:
    """The digest that an image is pulled by."""
    return f"sha256:{sha256(image.encode()).hexdigest()}"


def layer(name: str, gigabytes: float) -> LockedLayer:
    """A layer by a digest that is its name."""
    return LockedLayer(digest=f"sha256:{name}", size=round(gigabytes * GB))


def lock_of(*images: tuple[str, tuple[LockedLayer, ...]], platform: str = "linux/amd64") -> Lock:
    """A lock that has these images for one platform; the ID of each is its name's."""
    found = {
        name: make_platform(manifest=manifest_of(name), image_id=f"sha256:id-{name}", layers=layers, says={})
        for name, layers in images
    }
    return Lock(images={name: make_image(platforms={platform: one}) for name, one in found.items()})


LOCK = lock_of((IMAGE, (layer("ubuntu", 0.03), layer("cuda", 4), layer("torch", 5.37))))


@dataclass(frozen=True, kw_only=True)
class Case_:  # noqa: N801 - a case of these tests, not one of a repro
    """A host, and one version's cell on one GPU of it."""

    version: Version = VERSION
    gpu: Gpu = L4
    gpus: tuple[Gpu, ...] = (L4,)
    engine: Engine = ENGINE
    facts: HostFacts = FACTS
    lock: Lock = field(default_factory=Lock)
    wants: Wants = field(default_factory=Wants)
    selection: Selection = NAMED
    pull: Pull = Pull.NAMED
    builds: bool = True
    offline: bool = False
    case: Case | None = None

    def but(self, **changes: Any) -> Case_:
        """The same host but for this; what is no field of it is one of the facts or of the engine."""
        of_engine = Engine.__dataclass_fields__.keys() - {"images"}
        mine = {name: changes.pop(name) for name in self.__dataclass_fields__ if name in changes}
        engine = {name: changes.pop(name) for name in of_engine if name in changes}
        mine.setdefault("engine", replace(self.engine, **engine))
        return replace(self, **mine, facts=replace(self.facts, **changes))

    @property
    def pinned(self) -> Version:
        """The version with its image as the lock has it."""
        origin = self.version.origin
        if isinstance(origin, ImageOrigin):
            name = origin.build.base if origin.build else origin.image
            known = ImageOrigin(image=name, pin=pin_of(self.lock, name, self.engine.platform))
            origin = replace(origin, base=known) if origin.build else replace(origin, pin=known.pin)
        return replace(self.version, origin=origin)

    def plan(self) -> Plan:
        """What the plan alone says."""
        case = self.case or make_case()
        cell = make_cell(make_repro(case), case, self.pinned, self.gpu)
        host = Host(engine=self.engine, gpus=self.gpus, builds_images=self.builds, offline=self.offline)
        return make_plan([cell], host, self.selection, self.pull)

    def check(self) -> tuple[Plan, list[Finding], set[str]]:
        """What is left of the plan, what preflight says, and the rules that do not hold."""
        plan = self.plan()
        facts = replace(self.facts, engine=self.engine, gpus=self.gpus)
        wants = replace(self.wants, launches=plan.launches, lock=self.lock)
        excluded, findings = check(facts, wants)
        told = [*host_findings(facts, [self.pinned]), *findings]
        broken = {finding.rule for finding in told if finding.level is not Level.GOOD}
        planned = {rule.id for item in plan.excluded if (rule := rule_of(item.why)) is not None}
        return restrict(plan, excluded), findings, broken | planned


HERE = Case_(engine=replace(ENGINE, images={IMAGE: "sha256:1"}))
"""All is here, but no lock."""
TO_PULL = Case_(lock=LOCK)
TO_BUILD = Case_(
    version=replace(
        VERSION,
        origin=ImageOrigin(
            image="trtmatrix/tensorrt:10.7.0",
            build=Build(base=BASE, wheels=("tensorrt-libs==10.7.0",), index="https://pypi.nvidia.com"),
        ),
    )
)


def bad(trouble: Any) -> RegistryError:
    """A registry's bad answer."""
    return RegistryError(trouble, "nvcr.io", IMAGE)
