"""``repro.py``: the template, filled with what one failing case asks of the build and how it is judged.

The limits are the judge's own (:mod:`trtmatrix.judge.numbers`): four and eight noise floors for an output's
relative L2 error, one and two bounds for c, the share of a known defect in the error.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtmatrix.bugs.manner import Kind, Manner
from trtmatrix.bugs.recipe import TYPED, Limits, Recipe
from trtmatrix.judge.factors import ALLOWED, CLOSER_BOUND, FAIL_FACTOR, FIT, PASS_FACTOR, POSSIBLE
from trtmatrix.judge.noise import precision_of
from trtmatrix.judge.numbers import Subject, read_signs, says_nothing
from trtmatrix.judge.record import Measured
from trtmatrix.suite.model import Product

TEMPLATE = Path(__file__).parent / "templates" / "repro.py"
FLAGS: Mapping[str, tuple[str, ...]] = {
    "tf32": ("TF32",), "fp32": (), "fp16": ("TF32", "FP16"), "fp16-flag": ("TF32", "FP16"),
    "bf16": ("TF32", "BF16"),
}  # fmt: skip
"""The probe's precision → flags of the builder."""

_NEVER_RIGHT, _ONLY_EXACT = (-1.0, math.inf), (0.0, math.inf)
"""Limits of an output of which nothing can be said, and of one without a noise floor."""


def why_no_script(recipe: Recipe | None, manner: Manner) -> str:
    """Return why one graph, built once, cannot show a failure; nothing where it can."""
    if recipe is None:
        return "the run needs more than one engine of one graph"
    if manner.kind in {Kind.LIMIT, Kind.REMARK}:
        return f"what fails is measured by the run itself: {manner.what}"
    if recipe.keep_fp32:
        return "layers are kept in float32 one by one"
    if recipe.marked and recipe.precision == "fp16-flag":
        return "inner tensors are made outputs in float16"
    return "" if recipe.has_reference else "there is no reference to compare with"


def limits_of(subject: Subject, outputs: Mapping[str, str]) -> Limits:
    """Return for each output the relative L2 error that is right at most and that is wrong at least.

    ``outputs``: array of the case's files → the graph's name for it. Known defects stand beside them, with
    their c. With the user's own tolerance an output is right up to 1 times it.
    """
    if subject.case.tolerance:
        return dict.fromkeys(outputs.values(), (1.0, 1.0))
    if subject.noise is None:
        return dict.fromkeys(outputs.values(), _ONLY_EXACT)
    signs = read_signs(Measured(outputs={}, scalars={}), subject)
    if says_nothing(subject, signs):
        return dict.fromkeys(outputs.values(), _NEVER_RIGHT)
    found = {graph: _by_floor(subject, name) for name, graph in outputs.items()}
    for sign in signs:
        if sign.usable and sign.output in outputs:
            found[f"{sign.name} in {outputs[sign.output]}"] = (sign.bound, CLOSER_BOUND * sign.bound)
    return found


def _by_floor(subject: Subject, name: str) -> tuple[float, float]:
    """Return an output's limits; an error that a member which no GPU has shown yet would explain is right."""
    noise = subject.noise
    floor = noise.floor(name, subject.precision) if noise else None
    if noise is None or floor is None:
        return _ONLY_EXACT
    explained = [
        FIT * float(error) for member, error in noise.outputs[name].items()
        if member in POSSIBLE and precision_of(member) in ALLOWED[subject.precision]
        and float(error) / FIT <= PASS_FACTOR * floor
    ]  # fmt: skip
    wrong = FAIL_FACTOR * floor
    return min(max([PASS_FACTOR * floor, *explained]), wrong), wrong


def script_values(
    recipe: Recipe, subject: Subject, limits: Limits, *, recorded: Mapping[str, Any], builds: int
) -> dict[str, Any]:
    """Return the template's constants by name."""
    case = subject.case
    flags = [*FLAGS[recipe.precision], *(word.upper() for word in recipe.quantized)]
    return {
        "RECORDED": recorded, "FLAGS": flags, "TYPED": recipe.precision in TYPED, "LEVEL": recipe.level,
        "PROFILE": {name: [list(shape) for shape in shapes] for name, shapes in recipe.profile.items()},
        "LIMITS": limits,
        "TOLERANCE": (case.tolerance["atol"], case.tolerance["rtol"]) if case.tolerance else None,
        "BUG_IS": sorted(c.value for c in case.bug_is) if subject.product is Product.TENSORRT else [],
        "BUILDS, SECONDS": (builds, case.seconds),
    }  # fmt: skip


def fill_template(values: Mapping[str, Any]) -> str:
    """Return the template with its constants replaced, comments and all else as they are.

    ``KeyError`` where it has no constant of a name.
    """
    wanted, lines = dict(values), []
    for line in TEMPLATE.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"([A-Z][A-Z0-9_, ]*)(: [^=]+)? = (.*?)(  # .*)?", line)
        if found is not None and found[1] in wanted:
            value = wanted.pop(found[1])
            code = ", ".join(map(as_code, value)) if ", " in found[1] else as_code(value)
            line = f"{found[1]}{found[2] or ''} = {code}{found[4] or ''}"  # noqa: PLW2901 - it is replaced
        lines.append(line)
    if wanted:
        raise KeyError(f"the template has no constant {', '.join(wanted)}")
    return "\n".join(lines) + "\n"


def as_code(value: Any) -> str:  # noqa: ANN401 - any literal
    """Return a value as a literal; numbers to six digits, infinity as one that is too large, NaN as text."""
    match value:
        case bool() | int() | None:
            return repr(value)
        case float() if math.isnan(value):
            return '"nan"'  # which float() reads; Python has no literal for it
        case float():
            return "1e999" if value == math.inf else f"{value:.6g}" if value != int(value) else repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)  # a literal of Python, too
        case Mapping():
            return "{" + ", ".join(f"{as_code(k)}: {as_code(v)}" for k, v in value.items()) + "}"
        case tuple():
            return "(" + ", ".join(map(as_code, value)) + ("," if len(value) == 1 else "") + ")"
    return "[" + ", ".join(map(as_code, value)) + "]"


def read_recorded(script: str) -> dict[str, Any]:
    """Return what a script says was recorded; ``ValueError`` where it was not made of the template."""
    found = re.search(r"^RECORDED: [^=]+ = (\{.*?\})  # ", script, re.MULTILINE)
    if found is None:
        raise ValueError("it has no RECORDED")
    recorded: dict[str, Any] = ast.literal_eval(found[1])
    return recorded
