"""What NVIDIA's pages and matrix.yaml say of a move: GPU, driver, image, what must be built again. Pure."""

from __future__ import annotations

from packaging.version import Version as Release

from trtmatrix.suite.matrix import Compute, Driver, Fact, Matrix, Version
from trtmatrix.suite.model import Gpu, Known, Product
from trtmatrix.suite.plan import driver_suffices, is_driver_enough
from trtmatrix.upgrade.report import FactLine, Source, Weight

ASK = "nvidia-smi --query-gpu={} --format=csv,noheader"
_TITLES = {
    "TensorRT 10.16.1, Version Compatibility": "/10.16.1/inference-library/version-compatibility",
    "TensorRT 11.4.1 support matrix, Engine Portability": "/11.4.1/getting-started/support-matrix",
    "TensorRT 10.16.1, Optimizing Builder Performance": "/10.16.1/performance/builder-performance",
    "TensorRT 11.0.0, Component Versioning": "/11.0.0/reference/component-versioning",
    "TensorRT-RTX, Engine Compatibility": "-rtx/latest/inference-library/engine-compatibility",
}
COMPATIBILITY, PORTABILITY, TIMING, COMPONENTS, RTX = (
    Source(title=title, url=f"https://docs.nvidia.com/deeplearning/tensorrt{path}.html")
    for title, path in _TITLES.items()
)
FIRST_COMPATIBLE = Release("8.6")
"""The first release that builds and loads version-compatible plans; 8.6.0 is its early access."""
_BEST_KNOWN = (Known.MEASURED, Known.READ, Known.THIRD_PARTY, Known.INFERRED, Known.RECALLED)
_IMAGE = {"cuda": "CUDA", "python": "Python", "torch": "torch", "torch_tensorrt": "Torch-TensorRT"}


def make_hardware(before: Version, after: Version, gpu: Gpu, matrix: Matrix) -> tuple[FactLine, ...]:
    """Return what changes about GPU, driver, CUDA and the image's software; what stops the move first."""
    lines, span = [], after.compute
    if after.product is Product.TENSORRT and span is not None:
        takes, bad = f"compute capability {span.min} to {span.max}", False
        if not gpu.compute:
            text = f"{after.name} supports {takes}; your GPU's: {ASK.format('compute_cap')}"
        elif _supports(span, gpu.compute):
            text = f"{after.name} supports this GPU ({gpu.compute}): {takes}"
        else:
            dropped = "no longer supports" if _supports(before.compute, gpu.compute) else "does not support"
            text, bad = f"{after.name} {dropped} this GPU ({gpu.compute}): it takes {takes}", True
        lines.append(_fact_line("GPU", text, matrix, span, against=bad))
    if (rule := after.driver) is not None:
        text = f"{after.name} needs driver {rule.least} or later"
        if before.driver and before.driver.least != rule.least:
            text += f" ({before.name}: {before.driver.least})"
        # Branches that are late enough anyway are not named.
        branches = ", ".join(f"{b}+" for b in rule.datacenter if Release(b) < Release(rule.least))
        older = f"; on a data-centre GPU also {branches} of the same branch" if rule.datacenter else ""
        known = gpu.present and gpu.driver
        bad = bool(known) and not driver_suffices(rule, gpu)
        if not known:
            made = f" The records here were made with {gpu.driver}." if gpu.driver else ""
            text += f"{older}. Yours is not known here: {ASK.format('driver_version')}.{made}"
        elif bad:
            text += f"{older}; here is {gpu.driver}: update the driver first, then ask again"
        else:
            through = ", which does on a data-centre GPU, through the image's own library"
            text += f"; here is {gpu.driver}" + through * (not is_driver_enough(rule, gpu))
        lines.append(_fact_line("driver", text, matrix, rule, against=bad))
    for key, name in _IMAGE.items():
        was, will = before.facts().get(key), after.facts().get(key)
        if (was and was.value) == (will and will.value):
            continue
        text = f"{name} {was.value if was else 'none'} → {will.value if will else 'none'}"
        if key == "cuda" and was and will and was.value.split(".")[0] != will.value.split(".")[0]:
            text += ": what links against the old CUDA (plugins, your own kernels) must be rebuilt"
        if key == "python" and was and will:
            text += ": wheels and compiled extensions are per Python version"
        lines.append(_fact_line("image", text, matrix, *filter(None, (was, will))))
    note = f"{after.name}: {after.note}"
    lines += [FactLine(topic="release", text=note, known="matrix.yaml")] if after.note else []
    return tuple(sorted(lines, key=lambda line: line.weight is not Weight.AGAINST))


def _supports(compute: Compute | None, capability: str) -> bool:
    """Whether a version is known to support a compute capability such as ``"9.0"``."""
    return compute is not None and Release(compute.min) <= Release(capability) <= Release(compute.max)


def _fact_line(
    topic: str, text: str, matrix: Matrix, *facts: Fact | Compute | Driver, against: bool = False
) -> FactLine:
    """Return a line with the sources of its facts, which is known as well as the worst of them."""
    found = [matrix.sources[fact.source] for fact in facts if fact.source in matrix.sources]
    sources = dict.fromkeys(Source(title=source.title, url=source.url) for source in found)
    worst = max((fact.known for fact in facts), key=_BEST_KNOWN.index)
    weight = Weight.AGAINST if against else Weight.NOTE
    return FactLine(topic=topic, text=text, weight=weight, known=worst.value, sources=tuple(sources))


def make_engines(before: Version, after: Version) -> tuple[FactLine, ...]:
    """Return what was built with the old version and must be made again: plans, caches, plugins."""
    if before.name == after.name or after.product is Product.ONNXRUNTIME:
        return ()
    if after.product is Product.TENSORRT_RTX:
        text = "engines must be built again: TensorRT-RTX loads those of its own release only"
        return (_read_line("plans", text, RTX),)
    old, new = before.release, after.release
    plugins = f"libraries built against {before.name} should load: within a major version the ABI is kept"
    if old.major != new.major:
        plugins = (
            f"plugin libraries and programs linked against {old.major}.x must be built again: a new major "
            "version changes the ABI"
        )
    elif new < old:
        plugins = f"build again: the ABI is kept upwards only, and {before.name} is newer"
    pages = [COMPATIBILITY, *([PORTABILITY] if FIRST_COMPATIBLE <= old <= new else [])]
    return (
        _read_line(
            "plans", f"plan files of {before.name} must be built again: by default a plan is loaded only by "
            "the version that built it", COMPATIBILITY,
        ),
        _read_line("version-compatible plans", _tell_compatible(before, after), *pages),
        _read_line(
            "timing caches", "begin with an empty one: what it holds is specific to TensorRT's version, CUDA "
            "and the device", TIMING,
        ),
        FactLine(
            topic="INT8 calibration caches", known="recalled",
            text="calibrate again, or compare the scales: no page was found that lets a cache cross versions",
        ),
        _read_line("plugin libraries", plugins, COMPONENTS),
    )  # fmt: skip


def _tell_compatible(before: Version, after: Version) -> str:
    """Say whether plans that were built version-compatible need not be built again."""
    old, new = before.release, after.release
    if min(old, new) < FIRST_COMPATIBLE:
        older = before.name if old < FIRST_COMPATIBLE else after.name
        return f"there is no way around it: version-compatible plans need 8.6 on both sides, {older} is older"
    if new < old:
        return "do not help on the way down: a plan does not load in an older runtime"
    if old.major == new.major or (old.major, new.major) == (8, 10):
        return "built with VERSION_COMPATIBLE they load (engine_host_code_allowed must be set; maybe slower)"
    return (
        f"NVIDIA's pages disagree on {old.major} → {new.major}: the guide of 10.16 has plans of 8 load in 9 "
        "and 10, the matrix of 11.4 allows of older ones only 8 → 10. Build again"
    )


def _read_line(topic: str, text: str, *sources: Source) -> FactLine:
    return FactLine(topic=topic, text=text, known="read", sources=sources)
