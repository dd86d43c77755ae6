"""A report as a gate: against the last one that was accepted, and as JUnit XML for continuous integration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtmatrix.api.types import MUST_CHANGE, PINS
from trtmatrix.common.errors import UsageError
from trtmatrix.common.text import counted
from trtmatrix.upgrade.decide import APART, CODE, MODEL
from trtmatrix.upgrade.report import SCHEMA, Baseline, Decision, Upgrade, Weight, plain

AGAINST = {Weight.AGAINST.value, Weight.LACKING.value}
"""Weights that keep a model from moving."""
STOPPED = {Decision.DONT.value, Decision.NOT_ENOUGH.value}


def compare_with(upgrade: Upgrade, file: Path) -> Baseline:
    """Return what is worse, better and the same since an accepted report.

    :class:`UsageError` where the file is no report of this product and GPU, or of another schema.
    """
    now, new = {"schema": SCHEMA, **plain(upgrade)}, dict[tuple[str, ...], str]()
    try:
        accepted = json.loads(file.read_text(encoding="utf-8"))
        for name in ("schema", "product", "gpu"):
            if accepted[name] != now[name]:
                told = f"its {name} is {accepted[name]}, here it is {now[name]}: make it again"
                raise UsageError(f"--baseline {file}: {told}")
        old = dict(find_problems(accepted))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"--baseline {file}: no report of upgrade -o report.json: {why}") from error
    for key, words in find_problems(now):  # what seems slower by too few engines is no worse than what was
        harder = (*key[:-1], Weight.AGAINST.value)
        new[harder if key[-1] == Weight.LACKING.value and harder in old else key] = words
    return Baseline(
        file=str(file), new=tuple(new[key] for key in new if key not in old),
        gone=tuple(old[key] for key in old if key not in new),
        same=tuple(new[key] for key in new if key in old),
    )  # fmt: skip


def find_problems(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each problem of a report's data: what it is known by from report to report, and its words."""
    for model in report["models"]:
        name, changes, silent = model["name"], {c["case"]: c["change"] for c in model["cases"]}, True
        if model["mistake"]:
            yield (name, "mistake"), f"{name}: mistake: {model['mistake']}"
        for reason in model["reasons"]:
            if reason["weight"] in AGAINST:
                # The id of a case is made from the model's file and inputs: how it changed is what stays.
                what = reason["text"].partition(": ")[0].removesuffix(APART)
                what = changes.get(what, what) if reason["topic"] == MODEL else reason["topic"]
                silent = False
                yield (name, what, reason["weight"]), f"{name}: {reason['text']}"
        if silent and model["decision"] in STOPPED:  # it is wrong at both versions, say
            yield (name, model["decision"]), f"{name}: {model['decision']}"
    for finding in report["findings"]:
        if finding["weight"] in {Weight.AGAINST.value, Weight.WORKAROUND.value}:
            yield (finding["repro"], finding["weight"]), f"{finding['repro']}: {finding['why']}"
    for fact in report["gpu_and_driver"]:
        if fact["weight"] == Weight.AGAINST.value:
            yield (fact["topic"],), f"{fact['topic']}: {fact['text']}"
    for reason in report["reasons"]:
        if (reason["topic"], reason["weight"]) == (CODE, Weight.LACKING.value):
            yield ("code",), f"{CODE}: {reason['text']}"
    for use in report["api"]["uses"]:
        kind, change = use["change"]["kind"], use["change"]["name"]
        if not use["why"] and kind in MUST_CHANGE and not change.startswith(PINS):
            yield ("code", use["file"], change), f"{CODE}: {use['file']}: {change}"


def render_junit(upgrade: Upgrade) -> str:
    """Return JUnit XML: a test case a model, or, where no model was named, a finding.

    What counts against the move is a failure, a mistake an error, what is lacking is skipped; so are findings
    beside a model, what speaks against it of GPU and driver, and code that must change or cannot be checked.
    """
    from trtmatrix.tables.page import templates

    kinds: Mapping[Decision | Weight | None, str] = {
        None: "error", Decision.DONT: "failure", Decision.NOT_ENOUGH: "skipped", Weight.AGAINST: "failure",
        Weight.LACKING: "skipped",
    }  # fmt: skip
    # Of each case its class, its name, facts, and what it ended in unless all was well.
    cases: list[tuple[str, str, Sequence[tuple[str, str]], tuple[str, str, str] | None]] = []
    for model in upgrade.models:
        why = model.mistake or "; ".join(r.text for r in model.reasons if r.weight.value in AGAINST)
        kind, known = kinds.get(model.decision), model.decision.value if model.decision else "mistake"
        facts = [("verdict", known), *(("record", line.after.cell) for line in model.cases)]
        cases.append(("model", model.name, facts, (kind, why or known, known) if kind else None))
    for finding in upgrade.findings:
        kind, known = kinds.get(finding.weight), finding.change.value
        if kind or not upgrade.models:
            ended = (kind, finding.why, known) if kind else None
            cases.append(("finding", finding.repro, [("verdict", known)], ended))
    stops = [fact for fact in upgrade.gpu_and_driver if fact.weight is Weight.AGAINST]
    cases += [("host", fact.topic, [], ("failure", fact.text, fact.weight.value)) for fact in stops]
    if upgrade.api.code:
        unseen = (r.text for r in upgrade.reasons if r.topic == CODE and r.weight is Weight.LACKING)
        why = next(unseen, "")
        ended = ("skipped", why, "code") if why else None
        if uses := len(upgrade.api.must_change):
            ended = ("failure", f"{counted(uses, 'use')} must change", "code")
        cases.append(("code", "code", [], ended))
    title = f"upgrade {upgrade.before} to {upgrade.after} on {upgrade.gpu}"
    return templates().get_template("junit.xml").render(suites=[(title, cases)])
