"""The user's own model in an upgrade report: facts, cases, samples, acceptance, the wrong layer."""

from __future__ import annotations

from collections.abc import Iterator

from trtmatrix.common.short import short
from trtmatrix.judge.differences import Difference
from trtmatrix.tables.html_pieces import Row, Words, chip, code, count, facts, fold, items, table, text
from trtmatrix.upgrade.html_findings import render_cases
from trtmatrix.upgrade.report import CheckOutcome, ModelSection, SampleFigure, WrongLayer


def render_model(model: ModelSection, before: str, after: str) -> Iterator[str]:
    """Yield the parts that there are."""
    known = [("model", f"{text(model.name)} {code(model.repro)}")]
    known += [(name, text(value)) for name, value in model.facts]
    known += [("reference", text(model.reference))] if model.reference else []
    known += [("noise floor", text(model.floor))] if model.floor else []
    yield facts(known)
    if model.check is not None:
        yield f"<h3>Your own acceptance</h3>\n<p>{check(model.check)}</p>"
    if model.troubles:
        yield "<h3>Troubles</h3>" + items(map(text, model.troubles))
    if model.cases:
        yield "<h3>Cases</h3>" + render_cases(model.cases, before, after, f"Cases of {model.name}")
    if model.samples:
        yield "<h3>Errors over the samples</h3>" + _samples(model)
    if model.differences:
        yield f"<h3>How far {text(before)} and {text(after)} are apart</h3>" + _differences(model)
    for layer in model.wrong_layers:
        yield wrong_layer(layer)


def check(outcome: CheckOutcome) -> str:
    """Return what the deployer's own script said."""
    kind, said = {
        True: ("good", "accepted"),
        False: ("bad", "not accepted"),
        None: ("unsure", "the script raised"),
    }[outcome.passed]
    figure = f"{outcome.label or 'figure'} = {short(outcome.figure)}" if outcome.figure is not None else ""
    more = "; ".join(part for part in (figure, outcome.error) if part)
    return f"{chip(kind, said)} {code(outcome.script)}{': ' + text(more) if more else ''}"


def _samples(model: ModelSection) -> str:
    heads = ["output", "version", "median", "90% below", "worst", "worst sample", "in"]
    return table("Errors over the samples", heads, map(_sample, model.samples), numbers=True)


def _sample(found: SampleFigure) -> Row:
    unit = "noise floors" if found.unit == "floors" else found.unit
    return (
        code(found.output), text(found.version), *(short(v) for v in (found.median, found.p90)),
        f"<strong>{short(found.worst)}</strong>", f"{found.worst_sample} of {found.samples}", text(unit),
    )  # fmt: skip


def _differences(model: ModelSection) -> str:
    heads = [
        "output", "largest |a − b|", "mean |a − b|", "‖a − b‖ / ‖a‖", "worst sample",
        "at one version only", "note",
    ]  # fmt: skip
    return table("Differences", heads, map(_difference, model.differences), numbers=True)


def _difference(found: Difference) -> Row:
    figures = (short(value) for value in (found.max_abs, found.mean_abs, found.rel_l2))
    worst = f"{found.worst_sample} of {found.samples}" if found.samples else str(found.worst_sample)
    lone = f"{found.nan} NaN or infinite" if found.nan else ""
    return (code(found.output), *figures, worst, lone, Words(text(found.note)))


def wrong_layer(layer: WrongLayer) -> str:
    """Return the first layer that goes wrong at a version, or why it was not found, with each step."""
    title = f"<h3>The first layer that goes wrong at {text(layer.version)}</h3>"
    pairs = (
        ("tensor", layer.tensor),
        ("node", layer.node),
        ("operator", layer.operator),
        ("error", layer.error),
    )
    found = facts((name, code(value)) for name, value in pairs if value)
    why = f"<p>{chip('unsure', 'not found')} {text(layer.why_not)}</p>" if layer.why_not else ""
    steps = "\n".join(f"<li>{text(step)}</li>" for step in layer.steps)
    told = fold(count(len(layer.steps), "step"), f"<ol>\n{steps}\n</ol>") if layer.steps else ""
    return "\n".join(part for part in (title, found, why, told) if part)
