"""What was built with the old version and may not be used with the new one: plans, caches, plugins. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version as Release

from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Product
from trtmatrix.upgrade.report import FactLine, Source, Weight

_DOCS = "https://docs.nvidia.com/deeplearning/"
COMPATIBILITY = Source(
    title="TensorRT 10.16.1, Version Compatibility",
    url=f"{_DOCS}tensorrt/10.16.1/inference-library/version-compatibility.html",
)
PORTABILITY = Source(
    title="TensorRT 11.4.1 support matrix, Engine Portability",
    url=f"{_DOCS}tensorrt/11.4.1/getting-started/support-matrix.html",
)
TIMING = Source(
    title="TensorRT 10.16.1, Optimizing Builder Performance",
    url=f"{_DOCS}tensorrt/10.16.1/performance/builder-performance.html",
)
CALIBRATOR = Source(
    title="TensorRT Python API, IInt8Calibrator",
    url=f"{_DOCS}tensorrt/latest/_static/python-api/infer/Int8/Calibrator.html",
)
COMPONENTS = Source(
    title="TensorRT 11.0.0, Component Versioning",
    url=f"{_DOCS}tensorrt/11.0.0/reference/component-versioning.html",
)
RTX = Source(
    title="TensorRT-RTX, Engine Compatibility",
    url=f"{_DOCS}tensorrt-rtx/latest/inference-library/engine-compatibility.html",
)
FIRST_COMPATIBLE = Release("8.6")
"""The first release that builds and loads version-compatible plans; 8.6.0 is its early access."""


def make_engines(before: Version, after: Version) -> tuple[FactLine, ...]:
    """Return what of the old version's products must be made again."""
    match after.product:
        case Product.TENSORRT:
            return tuple(_tensorrt(before, after))
        case Product.TENSORRT_RTX:
            text = "engines must be built again: TensorRT-RTX loads those of its own release only"
            return (_line("plans", text, RTX),)
        case Product.ONNXRUNTIME:
            return ()


def _tensorrt(before: Version, after: Version) -> Iterator[FactLine]:
    yield _line(
        "plans",
        f"plan files of {before.name} must be built again: by default a plan is loaded only by the version "
        "that built it",
        COMPATIBILITY,
    )
    yield _compatible(before, after)
    yield _line(
        "timing caches",
        "begin with an empty one: what it holds is specific to TensorRT's version, CUDA and the device",
        TIMING,
    )
    yield from _calibration(after)
    yield _plugins(before.release, after.release, before.name)


def _compatible(before: Version, after: Version) -> FactLine:
    """Return what becomes of plans that were built with BuilderFlag.VERSION_COMPATIBLE."""
    old, new = before.release, after.release
    if old < FIRST_COMPATIBLE or new < FIRST_COMPATIBLE:
        older = before.name if old < FIRST_COMPATIBLE else after.name
        text = f"there is no way around it: version-compatible plans need 8.6 on both sides, {older} is older"
        return _line("version-compatible plans", text, COMPATIBILITY)
    if new < old:
        text = "do not help on the way down: a plan does not load in an older runtime"
        return _line("version-compatible plans", text, COMPATIBILITY)
    way = "built with VERSION_COMPATIBLE they load (engine_host_code_allowed must be set; maybe slower)"
    if old.major == new.major or (old.major, new.major) == (8, 10):
        return _line("version-compatible plans", way, COMPATIBILITY, PORTABILITY)
    text = (
        f"NVIDIA's pages disagree on {old.major} → {new.major}: the guide of 10.16 has plans of 8 load in 9 "
        "and 10, the matrix of 11.4 allows of older ones only 8 → 10. Build again"
    )
    return _line("version-compatible plans", text, COMPATIBILITY, PORTABILITY)


def _calibration(after: Version) -> Iterator[FactLine]:
    yield FactLine(
        topic="INT8 calibration caches",
        text="calibrate again, or compare the scales: no page was found that lets a cache cross versions",
        weight=Weight.NOTE, known="recalled",
    )  # fmt: skip
    if after.release >= Release("10.1"):
        text = "calibrators are deprecated since 10.1: quantize in the graph (Q/DQ nodes) instead"
        yield _line("INT8 calibration", text, CALIBRATOR)


def _plugins(old: Release, new: Release, before: str) -> FactLine:
    if old.major == new.major:
        text = f"libraries built against {before} should load: within a major version the ABI is kept"
        if new < old:
            text = f"build again: the ABI is kept upwards only, and {before} is newer"
    else:
        text = (
            f"plugin libraries and programs linked against {old.major}.x must be built again: a new major "
            "version changes the ABI"
        )
    return _line("plugin libraries", text, COMPONENTS)


def _line(topic: str, text: str, *sources: Source) -> FactLine:
    return FactLine(topic=topic, text=text, weight=Weight.NOTE, known="read", sources=sources)
