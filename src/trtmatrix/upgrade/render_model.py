"""The user's own model in an upgrade report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from trtmatrix.common.short import short
from trtmatrix.upgrade.lines import case_lines, hanging
from trtmatrix.upgrade.report import ModelSection


def render_model_lines(model: ModelSection | None) -> Iterator[str]:
    """Yield what is known of the model; nothing where none was named."""
    if model is None:
        return
    yield f"Your model: {model.name}"
    for name, value in (*model.facts, ("reference", model.reference), ("noise floor", model.floor)):
        yield from hanging(name, value)
    for line in model.cases:
        yield from case_lines(line)
    for word, text in _model_lines(model):
        yield from hanging(word, text)


def _model_lines(model: ModelSection) -> Iterator[tuple[str, str]]:
    """Yield what is known of a model beside its cases: samples, differences, acceptance, layers, trouble."""
    for sample in model.samples:
        worst = f"worst {short(sample.worst)} (sample {sample.worst_sample} of {sample.samples})"
        middle = f"median {short(sample.median)}, 90% {short(sample.p90)}"
        yield sample.version, f"{sample.output}: {middle}, {worst}, {sample.unit}"
    for difference in model.differences:
        most, mean = short(difference.max_abs), short(difference.mean_abs)
        text = f"the two versions differ by at most {most}, on average {mean}, relative"
        yield "difference", f"{difference.output}: {text} {short(difference.rel_l2)}"
    if check := model.check:
        word = {True: "accepts", False: "refuses", None: "did not answer"}[check.passed]
        figure = f", {check.label or 'figure'} {short(check.figure)}" if check.figure is not None else ""
        yield "acceptance", f"{check.script} {word}{figure}{f': {check.error}' if check.error else ''}"
    for layer in model.wrong_layers:
        where = f"{layer.node or '?'} ({layer.operator or '?'}) → {layer.tensor}"
        why = layer.error or layer.why_not
        found = where if layer.tensor else "not found"
        yield "first wrong", f"{layer.version}: {found}{f': {why}' if why else ''}"
    for trouble in model.troubles:
        yield "trouble", trouble
