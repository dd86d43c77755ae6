"""``repro.py`` of an archive: what a repro asks of the build, and the template filled with it and the limits.

The repro's ``run`` is called with a stand-in that notes what it asks for, and runs nothing. Limits are the
judge's own (:mod:`trtmatrix.judge.judge`): four and eight noise floors for an output's relative L2 error,
one and two bounds for c, the share of a known defect in the error.
"""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.manner import Kind, Manner
from trtmatrix.common.text import fill_constants
from trtmatrix.judge.factors import CLOSER_BOUND, FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import Subject, judge_build, nan_last, read_floors, read_signs, says_nothing
from trtmatrix.judge.record import RAN, Measured
from trtmatrix.suite.model import Product, Verdict, release_of

Shape = tuple[int, ...]
Limits = dict[str, tuple[float, float]]
"""Output (``"<defect> in <output>"``) → relative L2 error (c) that is right at most and wrong at least."""

TYPED = "fp16"
"""The precision that is the graph's own."""


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

    def renamed(self, names: Mapping[str, str]) -> Recipe:
        """Return it for a graph some of whose tensors have new names."""
        inputs, outputs = (
            {array: names.get(graph, graph) for array, graph in each.items()}
            for each in (self.inputs, self.outputs)
        )
        profile = {names.get(graph, graph): ranges for graph, ranges in self.profile.items()}
        shapes = {names.get(graph, graph): shape for graph, shape in self.shapes.items()}
        return replace(self, inputs=inputs, outputs=outputs, profile=profile, shapes=shapes)


def read_recipe(repro: Path, params: Mapping[str, Any], files: Path, product: Product) -> Recipe | None:
    """Return how the case's own graph was last built before it was first run.

    ``files``: the case's folder. None where that is not what the repro looks at: it enqueues the engine by
    itself, or its graph is made inside the container.
    """
    import numpy as np

    from trtprobe.cell import load_repro
    from trtprobe.files import CaseFiles

    module, case = load_repro(repro), CaseFiles(files)

    def build(model: Path, **options: Any) -> SimpleNamespace:  # noqa: ANN401 - as the probe's
        def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
            if model == case.model:
                raise _Seen(options, feeds)
            return defaultdict(lambda: np.zeros(()))  # of another graph any output will do

        return SimpleNamespace(run=run, fusion=lambda _: "?")

    stand_in = SimpleNamespace(  # it has no streams to enqueue on, whatever it says; it notes nothing
        build=build, has_streams=product is Product.TENSORRT,
        **dict.fromkeys(("remark", "measure", "count"), lambda *_: None),
    )  # fmt: skip
    try:
        module.run(dict(params), case, stand_in)
    except _Seen as seen:
        options, feeds = seen.args
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
    """The case's own graph is run: the options of its build, and what it is fed with."""


def worst_sample(found: Found, recipe: Recipe) -> tuple[int, dict[str, tuple[float, float]]]:
    """Return the number of the sample that is furthest off, and the ends of each wrong output's errors."""
    failing = [
        build for record in found.entry.records if record.ended == RAN for build in record.builds
        if judge_build(build, found.subject).verdict is Verdict.FAIL
    ]  # fmt: skip
    errors: dict[str, list[float]] = {}
    for build in failing:
        floors = read_floors(build, found.subject)
        for name, values in build.outputs.items():
            if "rel_l2" in values and (not floors.get(name, math.inf) < 8 or values.get("nan_unexpected")):
                bad = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
                errors.setdefault(name, []).append(bad)
    worst = max(errors, key=lambda name: max(map(nan_last, errors[name])), default="")
    sample = next((n for n in range(recipe.samples) if recipe.samples > 1 and worst.endswith(f".s{n}")), 0)
    return sample, {name: (min(sizes), max(sizes)) for name, sizes in errors.items()}


SCRIPT = "repro.py"
TEMPLATE = Path(__file__).parent / "templates" / "repro.py"
_NEVER_RIGHT, _ONLY_EXACT = (-1.0, 1e300), (0.0, 1e300)
"""Limits of an output of which nothing can be said, and of one without a noise floor."""


def why_no_script(recipe: Recipe | None, manner: Manner) -> str:
    """Return why one graph, built once, cannot show a failure; nothing where it can."""
    if recipe is None:
        return "the run needs more than one engine of one graph"
    if manner.kind is Kind.OWN:
        return f"what fails is measured by the run itself: {manner.what}"
    if recipe.keep_fp32 or (recipe.marked and recipe.precision == "fp16-flag"):
        return "single layers are kept in float32, or inner tensors are made outputs in float16"
    return "" if recipe.has_reference else "there is no reference to compare with"


def limits_of(subject: Subject, outputs: Mapping[str, str]) -> Limits:
    """Return for each output the relative L2 error that is right at most and that is wrong at least.

    ``outputs``: array of the case's files → the graph's name for it. Known defects stand beside them, with
    their c. With the user's own tolerance an output is right up to 1 times it.
    """
    if subject.case.tolerance:
        return dict.fromkeys(outputs.values(), (1.0, 1.0))
    signs = read_signs(Measured(outputs={}, scalars={}), subject)
    if says_nothing(subject, signs):
        return dict.fromkeys(outputs.values(), _NEVER_RIGHT)
    found = Limits()
    for name, graph in outputs.items():
        floor = subject.floor(name)
        found[graph] = _ONLY_EXACT if floor is None else (PASS_FACTOR * floor, FAIL_FACTOR * floor)
    for sign in signs:
        if sign.usable and sign.output in outputs:
            found[f"{sign.name} in {outputs[sign.output]}"] = (sign.bound, CLOSER_BOUND * sign.bound)
    return found


def script_values(
    recipe: Recipe, subject: Subject, limits: Limits, *, recorded: Mapping[str, Any], builds: int
) -> dict[str, Any]:
    """Return the template's constants by name."""
    case = subject.case
    flags = ["TF32"] if recipe.precision != "fp32" else []
    flags += ["FP16"] if recipe.precision.startswith("fp16") else []
    flags += [word.upper() for word in recipe.quantized]
    return {
        "RECORDED": recorded, "FLAGS": flags, "TYPED": recipe.precision == TYPED, "LEVEL": recipe.level,
        "PROFILE": {name: [list(shape) for shape in shapes] for name, shapes in recipe.profile.items()},
        "LIMITS": {key: six_digits(ends) for key, ends in limits.items()},
        "TOLERANCE": six_digits(case.tolerance[n] for n in ("atol", "rtol")) if case.tolerance else None,
        "BUG_IS": sorted(c.value for c in case.bug_is) if subject.product is Product.TENSORRT else [],
        "BUILDS, SECONDS": (builds, case.seconds),
    }  # fmt: skip


def fill_template(values: Mapping[str, Any]) -> str:
    """Return the template with its constants replaced, comments and all else as they are."""
    codes = {
        name: ", ".join(map(repr, value)) if ", " in name else repr(value) for name, value in values.items()
    }
    return fill_constants(TEMPLATE.read_text(encoding="utf-8"), codes)


def six_digits(numbers: Iterable[float]) -> tuple[float | str, ...]:
    """Return numbers to six digits, NaN and infinity as texts, which float() reads."""
    return tuple(float(f"{x:.6g}") if math.isfinite(x) else f"{x:g}" for x in numbers)


def read_recorded(script: str) -> dict[str, Any]:
    """Return what a script says was recorded; ``ValueError`` where it was not made of the template."""
    found = re.search(r"^RECORDED: [^=]+ = (\{.*?\})  # ", script, re.MULTILINE)
    if found is None:
        raise ValueError("it has no RECORDED")
    return dict(ast.literal_eval(found[1]))


def trtexec_lines(recipe: Recipe, library: str) -> list[str]:
    """Return the shell lines that build and run the engine by ``trtexec``, with the archive's inputs.

    ``library``: TensorRT's version. Options:
    https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/command-line-programs.html
    """
    cast = "(a.astype('i4') if a.dtype == 'i8' else a)" if _before(library, "10") else "a"
    binaries = (
        f"import numpy as np; [{cast}.tofile('input-%d.bin' % i) "
        "for i, (_, a) in enumerate(sorted(np.load('inputs.npz').items()))]"
    )
    words = ["--onnx=model.onnx", *(["--noTF32"] if recipe.precision == "fp32" else [])]
    if recipe.precision != TYPED or _before(library, "9"):
        words += ["--fp16"] if recipe.precision.startswith("fp16") else []
        words += [f"--{word}" for word in recipe.quantized]
    elif _before(library, "11"):
        words.append("--stronglyTyped")
    if recipe.level is not None and not _before(library, "8.6"):
        words.append(f"--builderOptimizationLevel={recipe.level}")
    for which, option in enumerate(("minShapes", "optShapes", "maxShapes", "shapes")):
        shapes = {n: (*ranges, recipe.shapes[n])[which] for n, ranges in recipe.profile.items()}
        given = ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
        words += [f"--{option}={given}"] if given else []
    files = [f"{name}:input-{number}.bin" for number, name in enumerate(sorted(recipe.shapes))]
    words += [f"--loadInputs={','.join(files)}"] if files else []
    words += ["--iterations=1", "--warmUp=0", "--duration=0", "--exportOutput=outputs.json"]
    return [f'python3 -c "{binaries}"', shlex.join(["trtexec", *words])]


def _before(library: str, other: str) -> bool:
    """Whether a version is older; a pre-release of another counts as that one."""
    return release_of(library or "10").release < release_of(other).release
