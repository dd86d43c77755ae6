"""What doctor says of a host beside what it lacks: engine, GPUs, images, registries, disk, memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.image_names import is_own
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import Engine
from trtmatrix.core.preflight.checks import BY_WHOLE_GPU, gigabytes
from trtmatrix.core.preflight.facts import Facts, Room, Wants
from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.core.preflight.rules import RULES

LOW = 5 * 10**9
"""Free bytes below which the cache or the results may not take what a run writes."""


def host_findings(facts: Facts, wants: Wants, versions: Sequence[Version]) -> Iterator[Finding]:
    """Yield how everything stands that a run needs of a host."""
    yield _engine(facts)
    if facts.engine.unlimited:
        yield limits_finding(facts.engine)
    yield from _gpus(facts)
    for version in versions:
        yield from image_finding(version, facts.engine)
    yield from _registries(facts)
    yield from disk_findings(facts)
    yield memory_finding(facts, wants)


def _engine(facts: Facts) -> Finding:
    engine = facts.engine
    if not engine.available:
        rule = RULES["engine"]
        return Finding(
            level=Level.LACKING, what="container engine", found=engine.reason,
            remedy=engine.remedy or rule.mends, prevents=rule.prevents, rule="engine",
        )  # fmt: skip
    access = engine.gpu_access.value if engine.gpu_access else "none"
    api = f" (API {engine.api})" if engine.api else ""
    found = f"{engine.name} {engine.version}{api}; containers get GPUs by: {access}"
    if not facts.gpus or engine.gpu_access is not None:
        return Finding(level=Level.GOOD, what="container engine", found=found, rule="engine")
    rule = RULES["gpu-access"]
    return Finding(
        level=Level.TROUBLE, what="container engine", found=found, remedy=rule.mends, prevents=rule.prevents,
        rule="gpu-access",
    )  # fmt: skip


def limits_finding(engine: Engine) -> Finding:
    """Return what an engine cannot limit: a cell that takes all of it may end others."""
    return Finding(
        level=Level.LACKING, what="limits of containers", rule="engine-limits",
        found=f"{engine.name} cannot limit {', '.join(engine.unlimited)} here",
        remedy=RULES["engine-limits"].mends,
    )  # fmt: skip


def _gpus(facts: Facts) -> Iterator[Finding]:
    if not facts.gpus:
        rule = RULES["gpu"]
        yield Finding(
            level=Level.LACKING, what="GPU", found=facts.scan_reason, remedy=rule.mends,
            prevents=rule.prevents, rule="gpu",
        )  # fmt: skip
    for gpu in facts.gpus:
        found = f"{gpu.name}, {gpu.variant}, compute capability {gpu.compute}, driver {gpu.driver}"
        instances = facts.mig.get(-1 if gpu.index is None else gpu.index)
        if instances and facts.engine.gpu_access not in BY_WHOLE_GPU:
            found += f"; its first MIG instance of {instances} is what cells run on"
        yield Finding(level=Level.GOOD, what=f"GPU {gpu.index}", found=found, rule="gpu")


def image_finding(version: Version, engine: Engine) -> Iterator[Finding]:
    """Yield whether the image of a version is here, and whether it is pinned."""
    origin = version.origin
    if not isinstance(origin, ImageOrigin):
        return
    held = engine.held(origin)
    made = origin.build is not None or is_own(origin.image)
    why = Exclusion.IMAGE_NOT_BUILT if made else Exclusion.IMAGE_NOT_PULLED
    absent = why.value if engine.available else "unknown: no container engine"
    pinned = origin.pin is not None or origin.build is not None or "@sha256:" in origin.image
    loose = "" if pinned else " (not locked)"
    remedies = [] if held is not None or not engine.available else [how_to_have(version, origin, engine)]
    if loose and not remedies and not made:
        remedies = [f"pin it: {RULES['lock'].mends}"]
    good = held is not None and not loose
    found = f"{origin.image}: {absent if held is None else held[:19]}{loose}"
    yield Finding(
        level=Level.GOOD if good else Level.LACKING, what=f"image of {version.name}", found=found,
        remedy="; ".join(remedies), rule="image" if held is None else "lock",
    )  # fmt: skip


def how_to_have(version: Version, origin: ImageOrigin, engine: Engine) -> str:
    """Return how an image that is not here is had."""
    if not engine.is_daemon:
        made = origin.build is not None or is_own(origin.image)
        file = f"name a file by --image {version.name}=FILE (docs/engines.md)"
        return file if made else f"name the versions by --trt, or --pull all; or {file}"
    if origin.build is not None:
        return f"name the version by --trt: a run makes it; by hand: nox -s image -- {version.name}"
    if is_own(origin.image):
        return "make it on this host (docker/README.md): no registry has it"
    return "name the versions by --trt, or --pull all, or docker pull by hand"


def _registries(facts: Facts) -> Iterator[Finding]:
    """Yield the registries that have all that they were asked for; others are told by what they prevent."""
    hosts: dict[str, list[bool]] = {}
    for answer in facts.answers.values():
        hosts.setdefault(answer.host, []).append(answer.trouble is None)
    for host, good in hosts.items():
        if all(good):
            images = "1 image" if len(good) == 1 else f"{len(good)} images"
            found = f"{host} answers, and has the {images} to be pulled"
            yield Finding(level=Level.GOOD, what="registry", found=found, rule="registry")


def disk_findings(facts: Facts) -> Iterator[Finding]:
    """Yield how much is free for cache, results and images."""
    yield _room("cache", facts.cache)
    yield _room("results", facts.results)
    if facts.images is not None:
        found = f"{facts.images.path}: {gigabytes(facts.images.free)} free"
        yield Finding(level=Level.GOOD, what="disk for images", found=found, rule="disk-images")
    elif facts.engine.snapshots:
        found = "where containerd keeps them is not known here: no image is refused for want of room"
        yield Finding(level=Level.LACKING, what="disk for images", found=found, rule="disk-images")


def _room(what: str, room: Room) -> Finding:
    low, rule = room.free < LOW, f"disk-{what}"
    return Finding(
        level=Level.TROUBLE if low else Level.GOOD, what=f"disk for {what}",
        found=f"{room.path}: {gigabytes(room.free)} free", remedy=RULES[rule].mends if low else "", rule=rule,
    )  # fmt: skip


def memory_finding(facts: Facts, wants: Wants) -> Finding:
    """Return how a container's limit stands to the host's memory."""
    whole = facts.engine.memory or facts.memory
    found = f"{gigabytes(facts.available)} of {gigabytes(facts.memory)} available"
    if not whole or wants.memory <= whole:
        return Finding(level=Level.GOOD, what="memory", found=found, rule="memory")
    return Finding(
        level=Level.LACKING, what="memory", remedy=RULES["memory"].mends, rule="memory",
        found=f"{found}; a container's limit is {gigabytes(wants.memory)}, more than there is",
    )  # fmt: skip
