"""What NVIDIA's pages and matrix.yaml say of a move: GPU, driver, image, what must be built again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion
from packaging.version import Version as Release

from trtmatrix.suite.matrix import Compute, Driver, Fact, Matrix, Version
from trtmatrix.suite.model import Gpu, Known, Product
from trtmatrix.suite.plan import driver_suffices, is_driver_enough
from trtmatrix.upgrade.report import FactLine, Source, Weight

ASK_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
ASK_COMPUTE = "nvidia-smi --query-gpu=compute_cap --format=csv,noheader"


def _page(title: str, path: str) -> Source:
    return Source(title=title, url=f"https://docs.nvidia.com/deeplearning/{path}.html")


_GUIDE, _MATRIX = "tensorrt/10.16.1", "tensorrt/11.4.1/getting-started/support-matrix"
COMPATIBILITY = _page(
    "TensorRT 10.16.1, Version Compatibility", f"{_GUIDE}/inference-library/version-compatibility"
)
PORTABILITY = _page("TensorRT 11.4.1 support matrix, Engine Portability", _MATRIX)
TIMING = _page(
    "TensorRT 10.16.1, Optimizing Builder Performance", f"{_GUIDE}/performance/builder-performance"
)
CALIBRATOR = _page(
    "TensorRT Python API, IInt8Calibrator", "tensorrt/latest/_static/python-api/infer/Int8/Calibrator"
)
COMPONENTS = _page("TensorRT 11.0.0, Component Versioning", "tensorrt/11.0.0/reference/component-versioning")
RTX = _page(
    "TensorRT-RTX, Engine Compatibility", "tensorrt-rtx/latest/inference-library/engine-compatibility"
)
FIRST_COMPATIBLE = Release("8.6")
"""The first release that builds and loads version-compatible plans; 8.6.0 is its early access."""

_BEST_KNOWN = (Known.MEASURED, Known.READ, Known.THIRD_PARTY, Known.INFERRED, Known.RECALLED)


def make_hardware(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> tuple[FactLine, ...]:
    """Return what changes about GPU, driver, CUDA and the image's software; what stops the move first."""
    lines = [
        *_tell_compute(before, after, gpu, matrix), *_tell_driver(before, after, gpu, matrix),
        *_tell_image(before, after, matrix),
    ]  # fmt: skip
    if after.note:
        lines.append(_matrix_line("release", f"{after.name}: {after.note}"))
    return tuple(sorted(lines, key=lambda line: line.weight is not Weight.AGAINST))


def _supports(compute: Compute | None, capability: str) -> bool:
    """Whether a version is known to support a compute capability."""
    try:
        return compute is not None and Release(compute.min) <= Release(capability) <= Release(compute.max)
    except InvalidVersion:
        return False


def _tell_compute(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> Iterator[FactLine]:
    if after.product is not Product.TENSORRT:
        return
    if after.compute is None:
        text = f"which compute capabilities {after.name} supports is not in matrix.yaml"
        yield _matrix_line("GPU", text)
        return
    span, weight = f"compute capability {after.compute.min} to {after.compute.max}", Weight.NOTE
    if not gpu.compute:
        text = f"{after.name} supports {span}; that of this GPU is not known here: {ASK_COMPUTE}"
    elif _supports(after.compute, gpu.compute):
        text = f"{after.name} supports this GPU ({gpu.compute}): {span}"
    else:
        dropped = "no longer supports" if _supports(before.compute, gpu.compute) else "does not support"
        text, weight = f"{after.name} {dropped} this GPU ({gpu.compute}): it takes {span}", Weight.AGAINST
    yield _fact_line("GPU", text, after.compute, matrix, weight)


def _tell_driver(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> Iterator[FactLine]:
    rule = after.driver
    if rule is None:
        return
    least = f"{after.name} needs driver {rule.least} or later"
    if before.driver and before.driver.least != rule.least:
        least += f" ({before.name}: {before.driver.least})"
    # Branches that are late enough anyway are not named.
    branches = ", ".join(f"{b}+" for b in rule.datacenter if Release(b) < Release(rule.least))
    older = f"; on a data-centre GPU also {branches} of the same branch" if rule.datacenter else ""
    weight = Weight.NOTE
    if not gpu.present or not gpu.driver:
        made = f" The records here were made with {gpu.driver}." if gpu.driver else ""
        text = f"{least}{older}. Yours is not known here: {ASK_DRIVER}.{made}"
    elif is_driver_enough(rule, gpu):
        text = f"{least}; here is {gpu.driver}"
    elif driver_suffices(rule, gpu):
        does = "which does on a data-centre GPU, through the image's own library"
        text = f"{least}; here is {gpu.driver}, {does}"
    else:
        text = f"{least}{older}; here is {gpu.driver}: update the driver first, then ask again"
        weight = Weight.AGAINST
    yield _fact_line("driver", text, rule, matrix, weight)


def _tell_image(before: Version, after: Version, matrix: Matrix) -> Iterator[FactLine]:
    """Yield what else the two images differ in; what links against CUDA feels a new major release."""
    names = {"cuda": "CUDA", "python": "Python", "torch": "torch", "torch_tensorrt": "Torch-TensorRT"}
    for key, name in names.items():
        was, will = before.facts().get(key), after.facts().get(key)
        known = [fact for fact in (was, will) if fact]
        if not known or (was and will and was.value == will.value):
            continue
        text = f"{name} {was.value if was else 'none'} → {will.value if will else 'none'}"
        if key == "cuda" and was and will and was.value.split(".")[0] != will.value.split(".")[0]:
            text += ": what links against the old CUDA (plugins, your own kernels) must be rebuilt"
        if key == "python" and was and will:
            text += ": wheels and compiled extensions are per Python version"
        sources = dict.fromkeys(source for fact in known for source in _sources_of(matrix, fact))
        worst = max((fact.known for fact in known), key=_BEST_KNOWN.index)
        yield FactLine(
            topic="image", text=text, weight=Weight.NOTE, known=worst.value, sources=tuple(sources)
        )


def _sources_of(matrix: Matrix, fact: Fact | Compute | Driver) -> tuple[Source, ...]:
    found = matrix.sources.get(fact.source)
    return (Source(title=found.title, url=found.url),) if found else ()


def _fact_line(
    topic: str, text: str, fact: Compute | Driver, matrix: Matrix, weight: Weight
) -> FactLine:  # fmt: skip
    sources = _sources_of(matrix, fact)
    return FactLine(topic=topic, text=text, weight=weight, known=fact.known.value, sources=sources)


def _matrix_line(topic: str, text: str) -> FactLine:
    return FactLine(topic=topic, text=text, weight=Weight.NOTE, known="matrix.yaml")


def make_engines(before: Version, after: Version) -> tuple[FactLine, ...]:
    """Return what was built with the old version and must be made again: plans, caches, plugins."""
    match after.product:
        case _ if before.name == after.name:
            return ()
        case Product.TENSORRT:
            return tuple(_tell_rebuilds(before.name, before.release, after.name, after.release))
        case Product.TENSORRT_RTX:
            text = "engines must be built again: TensorRT-RTX loads those of its own release only"
            return (_read_line("plans", text, RTX),)
        case Product.ONNXRUNTIME:
            return ()


def _tell_rebuilds(before: str, old: Release, after: str, new: Release) -> Iterator[FactLine]:
    yield _read_line(
        "plans",
        f"plan files of {before} must be built again: by default a plan is loaded only by the version that "
        "built it",
        COMPATIBILITY,
    )
    sources: tuple[Source, ...] = (COMPATIBILITY,)
    if old < FIRST_COMPATIBLE or new < FIRST_COMPATIBLE:
        older = before if old < FIRST_COMPATIBLE else after
        text = f"there is no way around it: version-compatible plans need 8.6 on both sides, {older} is older"
    elif new < old:
        text = "do not help on the way down: a plan does not load in an older runtime"
    elif old.major == new.major or (old.major, new.major) == (8, 10):
        text = "built with VERSION_COMPATIBLE they load (engine_host_code_allowed must be set; maybe slower)"
        sources = (COMPATIBILITY, PORTABILITY)
    else:
        text = (
            f"NVIDIA's pages disagree on {old.major} → {new.major}: the guide of 10.16 has plans of 8 load "
            "in 9 and 10, the matrix of 11.4 allows of older ones only 8 → 10. Build again"
        )
        sources = (COMPATIBILITY, PORTABILITY)
    yield _read_line("version-compatible plans", text, *sources)
    yield _read_line(
        "timing caches",
        "begin with an empty one: what it holds is specific to TensorRT's version, CUDA and the device",
        TIMING,
    )
    yield FactLine(
        topic="INT8 calibration caches",
        text="calibrate again, or compare the scales: no page was found that lets a cache cross versions",
        weight=Weight.NOTE, known="recalled",
    )  # fmt: skip
    if new >= Release("10.1"):
        text = "calibrators are deprecated since 10.1: quantize in the graph (Q/DQ nodes) instead"
        yield _read_line("INT8 calibration", text, CALIBRATOR)
    if old.major != new.major:
        text = (
            f"plugin libraries and programs linked against {old.major}.x must be built again: a new major "
            "version changes the ABI"
        )
    elif new < old:
        text = f"build again: the ABI is kept upwards only, and {before} is newer"
    else:
        text = f"libraries built against {before} should load: within a major version the ABI is kept"
    yield _read_line("plugin libraries", text, COMPONENTS)


def _read_line(topic: str, text: str, *sources: Source) -> FactLine:
    return FactLine(topic=topic, text=text, weight=Weight.NOTE, known="read", sources=sources)
