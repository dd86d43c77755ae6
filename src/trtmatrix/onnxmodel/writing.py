"""Writes the repro of a user's own model: a page that a bug report can carry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trtmatrix.common.tensors import Range
from trtmatrix.judge.advice import OWN_MODEL

TEMPLATE = '''\
"""{title}, with inputs of its own: one engine, run once for each sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {facts}

SAMPLES = {samples}
"""How often the engine is run; files of several samples end in .s0, .s1 and so on."""

INPUTS = {inputs}
"""A file's name → the input's name in the graph."""

OUTPUTS = {outputs}

PROFILE: Dict[str, Any] = {profile}
"""The least, the usual and the largest shape of each dynamic input (values, where it decides a shape)."""

REFERENCE = {reference}
"""Who computes it: ONNX Runtime, or ONNX's own evaluator where ONNX Runtime is what is judged."""

QUANTIZED = {quantized}
"""What the graph's QuantizeLinear nodes round to."""


def cases() -> Iterator[Dict[str, Any]]:
    yield {case}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """The model, its inputs, and what the CPU computes of them, in float64 where it can."""
    from trtmatrix.onnxmodel import preparing

    return preparing.prepare(Path(__file__), INPUTS, OUTPUTS, SAMPLES, {floor!r}, REFERENCE)


def noise(params: Dict[str, Any]) -> Dict[str, Any]:
    """The errors of the same graph in less precision."""
    from trtmatrix.onnxmodel import preparing

    return preparing.noise(Path(__file__), INPUTS, OUTPUTS, SAMPLES, {floor!r}, REFERENCE)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    options: Dict[str, Any] = {{"profile": PROFILE}} if PROFILE else {{}}
    if QUANTIZED:
        options["quantized"] = QUANTIZED
{asked}    engine = trt.build(files.model, precision=params["precision"], **options)
    inputs, found = files.inputs, {{}}
    for sample in range(SAMPLES):
        mark = ".s%d" % sample if SAMPLES > 1 else ""
        outputs = engine.run({{name: inputs[file + mark] for file, name in INPUTS.items()}})
        found.update({{file + mark: outputs[name] for file, name in OUTPUTS.items()}})
    if "atol" in params and files.reference:
        trt.measure("beyond", sum(beyond(found[name], files.reference[name], params) for name in found))
    return found


def beyond(y: Any, r: Any, params: Dict[str, Any]) -> int:
    """How many elements are further off than |y - r| <= atol + rtol·|r|; NaN always is."""
    y, r = y.astype(np.float64), r.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(y - r) <= params["atol"] + params["rtol"] * np.abs(r)
    return int(np.count_nonzero(~(near | (y == r))))


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
'''


@dataclass(frozen=True, kw_only=True)
class Page:
    """What differs from repro to repro. ``precision`` is the probe's, ``floor`` what the floor is of.

    ``reference``: who computes it. ``tolerance``: ``atol`` and ``rtol``, or nothing. ``options``: what else
    is asked of the build, such as ``level``; ``bug_is``: the causes that are the bug itself; both where the
    model stands for another case.
    """

    title: str
    summary: str
    case: str
    precision: str
    floor: str
    digests: Mapping[str, str]
    samples: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    profile: Mapping[str, Range]
    quantized: Sequence[str]
    tolerance: Mapping[str, float]
    reference: str
    options: Mapping[str, object] = field(default_factory=dict)
    bug_is: Sequence[str] = ()


SECONDS = 1800.0
"""The time limit of a build and its runs: a model of one's own may be large."""

BUILDS = 3
"""A single build is never enough to say that a model is well."""


def write_page(page: Page) -> str:
    """Return the repro's text."""
    facts = {
        "title": page.title, "upstream": OWN_MODEL, "url": "docs/upgrade.md", "summary": page.summary,
        "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
        "expectations": [], "workarounds": [],
    }  # fmt: skip
    case = {
        "id": page.case, "params": {"precision": page.precision, **page.digests}, "keep": True,
        "builds": BUILDS, "seconds": SECONDS,
    }  # fmt: skip
    if page.tolerance:
        case["tolerance"] = dict(page.tolerance)
    if page.bug_is:
        case["bug_is"] = list(page.bug_is)
    asked = "".join(
        f"    options[{_scalar(name)}] = {_scalar(value)}\n" for name, value in page.options.items()
    )
    profile = {name: tuple(tuple(shape) for shape in shapes) for name, shapes in page.profile.items()}
    return TEMPLATE.format(
        title=page.title.replace("\\", "/").replace('"', "'"), facts=literal(facts), samples=page.samples,
        inputs=literal(dict(page.inputs)), outputs=literal(dict(page.outputs)), profile=literal(profile),
        quantized=literal(tuple(page.quantized)), reference=literal(page.reference),
        case=literal(case, depth=1), floor=page.floor, asked=asked,
    )  # fmt: skip


WIDTH = 100


def literal(value: object, depth: int = 0) -> str:
    """Write a value as Python does, a line an item where it is long."""
    plain = _scalar(value)
    if len(plain) <= WIDTH - 4 * depth or not isinstance(value, (dict, list, tuple)) or not value:
        return plain
    pad, end = "    " * (depth + 1), "    " * depth
    if isinstance(value, dict):
        lines = [f"{pad}{_scalar(name)}: {literal(item, depth + 1)},\n" for name, item in value.items()]
        return "{\n" + "".join(lines) + end + "}"
    lines = [f"{pad}{literal(item, depth + 1)},\n" for item in value]
    opening, closing = "()" if isinstance(value, tuple) else "[]"
    return opening + "\n" + "".join(lines) + end + closing


def _scalar(value: object) -> str:
    """Write a value in one line, texts with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_scalar(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(map(_scalar, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return repr(value)
