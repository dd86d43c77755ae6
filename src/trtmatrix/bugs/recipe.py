"""What a repro asks of the build, and the same engine by NVIDIA's own tool, trtexec.

The repro's ``run`` is called with a stand-in that notes what it asks for, and runs nothing. Options:
https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/command-line-programs.html.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtmatrix.suite.model import Product, release_of

Shape = tuple[int, ...]
Limits = dict[str, tuple[float, float]]
"""Output (``"<defect> in <output>"``) → relative L2 error (c) that is right at most and wrong at least."""

TYPED = frozenset({"fp16", "bf16"})
"""Precisions that are those of the graph itself."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is asked of the build and the run of a case's own graph.

    The first fields are those of the probe's ``Backend.build``; ``marked``: inner tensors, made outputs.
    ``inputs``: the name of an array in the case's files, without the mark of its sample, → the graph's name;
    ``outputs`` likewise of the reference. ``samples``: of several the arrays' names end in ``.s0`` and so on.
    ``shapes``: of the first sample, by the graph's names. ``has_reference``: whether there is one.
    """

    precision: str
    level: int | None = None
    plugins: bool = False
    keep_fp32: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    profile: Mapping[str, tuple[Shape, ...]] = field(default_factory=dict)
    quantized: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    has_reference: bool = True


def read_recipe(repro: Path, params: Mapping[str, Any], files: Path, product: Product) -> Recipe | None:
    """Return how the case's own graph was last built before it was first run.

    ``files``: the case's folder. None where that is not what the repro looks at: it enqueues the engine by
    itself, or its graph is made inside the container.
    """
    from trtprobe.cell import load_repro
    from trtprobe.files import CaseFiles

    module, case = load_repro(repro), CaseFiles(files)
    try:
        module.run(dict(params), case, _StandIn(case, has_streams=product is Product.TENSORRT))
    except _Seen as seen:
        options, feeds = seen.options, seen.feeds
    except Exception:  # noqa: BLE001 - a repro that needs more than a build and a run, whatever it raises
        return None
    else:
        return None
    profile = {
        name: tuple(tuple(map(int, shape)) for shape in shapes)
        for name, shapes in (options.get("profile") or {}).items()
    }
    return Recipe(
        precision=options.get("precision", "tf32"), level=options.get("level"),
        plugins=bool(options.get("plugins")), keep_fp32=tuple(options.get("keep_fp32", ())),
        marked=tuple(options.get("outputs", ())), quantized=tuple(options.get("quantized", ())),
        profile=profile, samples=int(getattr(module, "SAMPLES", 1)), has_reference=bool(case.reference),
        inputs=dict(getattr(module, "INPUTS", None) or {name: name for name in feeds}),
        outputs=dict(getattr(module, "OUTPUTS", None) or {name: name for name in case.reference}),
        shapes={name: tuple(array.shape) for name, array in feeds.items()},
    )  # fmt: skip


class _Seen(Exception):
    """The case's own graph is run."""

    def __init__(self, options: Mapping[str, Any], feeds: Mapping[str, Any]) -> None:
        super().__init__()
        self.options, self.feeds = options, feeds


class _Anything(dict[str, Any]):
    """Outputs of another graph: any name has a zero."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - an array
        import numpy as np

        return np.zeros(())


class _StandInEngine:
    """An engine that is not there."""

    def __init__(self, options: Mapping[str, Any], *, is_own: bool) -> None:
        self.options, self.is_own = options, is_own

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_own:
            raise _Seen(self.options, inputs)
        return _Anything()

    def fusion(self, _: Mapping[str, Any]) -> str:
        return "?"


class _StandIn:
    """What a repro is handed as the product; it has no streams to enqueue on, whatever it says."""

    def __init__(self, case: Any, *, has_streams: bool) -> None:  # noqa: ANN401 - the probe's
        self.case, self.has_streams = case, has_streams

    def build(self, model: Path, **options: Any) -> _StandInEngine:  # noqa: ANN401 - as the probe's
        return _StandInEngine(options, is_own=model == self.case.model)

    def remark(self, *told: object) -> None:
        """Note nothing."""

    measure = count = remark


def trtexec_lines(recipe: Recipe, library: str) -> list[str]:
    """Return the shell lines that build and run the engine by ``trtexec``, with the archive's inputs.

    ``recipe``: its inputs by the graph's names. ``library``: TensorRT's version.
    """
    cast = "(a.astype('i4') if a.dtype == 'i8' else a)" if _before(library, "10") else "a"
    binaries = (
        f"import numpy as np; [{cast}.tofile('input-%d.bin' % i) "
        "for i, (_, a) in enumerate(sorted(np.load('inputs.npz').items()))]"
    )
    words = ["--onnx=model.onnx", *([] if recipe.precision != "fp32" else ["--noTF32"])]
    words += _types(recipe, library)
    if recipe.level is not None and not _before(library, "8.6"):
        words.append(f"--builderOptimizationLevel={recipe.level}")
    for which, option in enumerate(
        ("minShapes", "optShapes", "maxShapes", "shapes") if recipe.profile else ()
    ):
        shapes = {n: (*ranges, recipe.shapes[n])[which] for n, ranges in recipe.profile.items()}
        words.append(f"--{option}=" + ",".join(f"{n}:{'x'.join(map(str, s))}" for n, s in shapes.items()))
    files = [f"{name}:input-{number}.bin" for number, name in enumerate(sorted(recipe.shapes))]
    words += [f"--loadInputs={','.join(files)}"] if files else []
    words += ["--iterations=1", "--warmUp=0", "--duration=0", "--exportOutput=outputs.json"]
    return [f'python3 -c "{binaries}"', shlex.join(["trtexec", *words])]


def _types(recipe: Recipe, library: str) -> list[str]:
    """Return the options about the types that the builder may use."""
    if not _before(library, "11") and recipe.precision in TYPED:
        return []
    if recipe.precision in TYPED and not _before(library, "9"):
        return ["--stronglyTyped"]
    half = ["--fp16"] if recipe.precision.startswith("fp16") else []
    return half + [f"--{word}" for word in recipe.quantized]


def _before(library: str, other: str) -> bool:
    """Whether a version is older; a pre-release of another counts as that one."""
    return release_of(library or "10").release < release_of(other).release
