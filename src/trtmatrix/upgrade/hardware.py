"""GPU and driver: what matrix.yaml says that the version moved to needs, against what is known here. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion
from packaging.version import Version as Release

from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.matrix import Compute, Driver, Fact, Matrix, Version
from trtmatrix.suite.model import Known, Product
from trtmatrix.suite.plan import driver_suffices, is_driver_enough
from trtmatrix.upgrade.report import FactLine, Source, Weight

ASK_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
ASK_COMPUTE = "nvidia-smi --query-gpu=compute_cap --format=csv,noheader"


def make_hardware(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> tuple[FactLine, ...]:
    """Return what changes about GPU, driver, CUDA and the image's software; what stops the move first."""
    lines = [
        *_compute(before, after, gpu, matrix), *_driver(before, after, gpu, matrix),
        *_changes(before, after, matrix), *_notes(after),
    ]  # fmt: skip
    return tuple(sorted(lines, key=lambda line: line.weight is not Weight.AGAINST))


def supports(compute: Compute | None, capability: str | None) -> bool | None:
    """Whether a version supports a compute capability; None where either is not known."""
    if compute is None or not capability:
        return None
    try:
        return Release(compute.min) <= Release(capability) <= Release(compute.max)
    except InvalidVersion:
        return None


def source_of(matrix: Matrix, key: str) -> tuple[Source, ...]:
    """Return a source of matrix.yaml as the report shows it."""
    found = matrix.sources.get(key)
    return (Source(title=found.title, url=found.url),) if found else ()


def _compute(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> Iterator[FactLine]:
    if after.product is not Product.TENSORRT:
        return
    if after.compute is None:
        yield _note("GPU", f"which compute capabilities {after.name} supports is not in matrix.yaml")
        return
    span = f"compute capability {after.compute.min} to {after.compute.max}"
    if not gpu.compute:
        text = f"{after.name} supports {span}; that of this GPU is not known here: {ASK_COMPUTE}"
        yield _fact("GPU", text, Weight.NOTE, after.compute, matrix)
    elif supports(after.compute, gpu.compute):
        text = f"{after.name} supports this GPU ({gpu.compute}): {span}"
        yield _fact("GPU", text, Weight.NOTE, after.compute, matrix)
    else:
        dropped = "no longer supports" if supports(before.compute, gpu.compute) else "does not support"
        text = f"{after.name} {dropped} this GPU ({gpu.compute}): it takes {span}"
        yield _fact("GPU", text, Weight.AGAINST, after.compute, matrix)


def _driver(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> Iterator[FactLine]:
    rule = after.driver
    if rule is None:
        return
    least = f"{after.name} needs driver {rule.least} or later"
    if before.driver and before.driver.least != rule.least:
        least += f" ({before.name}: {before.driver.least})"
    older = f"; on a data-centre GPU also {_branches(rule)}" if rule.datacenter else ""
    if not gpu.present or not gpu.driver:
        made = f" The records here were made with {gpu.driver}." if gpu.driver else ""
        text = f"{least}{older}. Yours is not known here: {ASK_DRIVER}.{made}"
        yield _fact("driver", text, Weight.NOTE, rule, matrix)
    elif is_driver_enough(rule, gpu):
        yield _fact("driver", f"{least}; here is {gpu.driver}", Weight.NOTE, rule, matrix)
    elif driver_suffices(rule, gpu):
        text = (
            f"{least}; here is {gpu.driver}, which does on a data-centre GPU, through the image's own library"
        )
        yield _fact("driver", text, Weight.NOTE, rule, matrix)
    else:
        text = f"{least}{older}; here is {gpu.driver}: update the driver first, then ask again"
        yield _fact("driver", text, Weight.AGAINST, rule, matrix)


def _branches(rule: Driver) -> str:
    """Return the older branches that do on a data-centre GPU, without those that are late enough anyway."""
    older = [branch for branch in rule.datacenter if Release(branch) < Release(rule.least)]
    return ", ".join(f"{branch}+" for branch in older) + " of the same branch"


def _changes(before: Version, after: Version, matrix: Matrix) -> Iterator[FactLine]:
    """Yield what else the two images differ in; what links against CUDA feels a new major release."""
    names = {"cuda": "CUDA", "python": "Python", "torch": "torch", "torch_tensorrt": "Torch-TensorRT"}
    for key, name in names.items():
        was, will = before.facts().get(key), after.facts().get(key)
        if was is None and will is None:
            continue
        if was and will and was.value == will.value:
            continue
        text = f"{name} {was.value if was else 'none'} → {will.value if will else 'none'}"
        if key == "cuda" and was and will and _major(was) != _major(will):
            text += ": what links against the old CUDA (plugins, your own kernels) must be rebuilt"
        if key == "python" and was and will:
            text += ": wheels and compiled extensions are per Python version"
        known = [fact for fact in (was, will) if fact]
        sources = [source for fact in known for source in source_of(matrix, fact.source)]
        yield FactLine(
            topic="image", text=text, weight=Weight.NOTE, known=_least_known(known),
            sources=tuple(dict.fromkeys(sources)),
        )  # fmt: skip


def _major(fact: Fact) -> str:
    return fact.value.split(".")[0]


_BEST_FIRST = (Known.MEASURED, Known.READ, Known.THIRD_PARTY, Known.INFERRED, Known.RECALLED)


def _least_known(facts: list[Fact]) -> str:
    """Return how the worse known of some facts is known."""
    return max((fact.known for fact in facts), key=_BEST_FIRST.index).value


def _notes(after: Version) -> Iterator[FactLine]:
    if after.note:
        yield FactLine(
            topic="release", text=f"{after.name}: {after.note}", weight=Weight.NOTE, known="matrix.yaml"
        )


def _note(topic: str, text: str) -> FactLine:
    return FactLine(topic=topic, text=text, weight=Weight.NOTE, known="matrix.yaml")


def _fact(topic: str, text: str, weight: Weight, fact: Compute | Driver, matrix: Matrix) -> FactLine:
    return FactLine(
        topic=topic, text=text, weight=weight, known=fact.known.value, sources=source_of(matrix, fact.source)
    )
