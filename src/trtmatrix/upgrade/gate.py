"""A report as a gate: against the last one that was accepted, and as JUnit XML for continuous integration."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtmatrix.api.types import MUST_CHANGE, PINS
from trtmatrix.common.errors import UsageError
from trtmatrix.common.text import counted, join_some
from trtmatrix.suite.model import Verdict
from trtmatrix.upgrade.decide import APART, CODE, FLOORS, MODEL
from trtmatrix.upgrade.performance import BUILD, LEAST_CHANGE
from trtmatrix.upgrade.question import Own, UpgradeOptions
from trtmatrix.upgrade.report import (
    SCHEMA,
    Baseline,
    Change,
    Decision,
    Upgrade,
    Weight,
    mistake_words,
    plain,
)

AGAINST = {Weight.AGAINST.value, Weight.LACKING.value}
"""Weights that keep a model from moving."""
WORSE = {Weight.AGAINST.value, Weight.WORKAROUND.value}
"""Weights of findings, and of their cases, that got worse."""
STOPPED = {Decision.DONT.value, Decision.NOT_ENOUGH.value}
WRONG = {Verdict.FAIL.value, Verdict.FLAKY.value}
RATIO, ELEMENTS = "ratio", "wrong elements"
"""Units of a slowdown or growth, and of an output of integers; an error's is :data:`FLOORS` or its own."""
ERROR_GROWTH = 2.0
"""How many times as large as the accepted one an error may be."""
NAMED = 3
"""Cases of a finding that a sentence names."""

Key = tuple[str, str, str]
"""What a problem is known by from report to report: the class and name of its test case, and what it is."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a problem rests on: its weight, its verdict, its sizes by unit, and the same in a word."""

    weight: str
    verdict: str = ""
    sizes: Mapping[str, float] = field(default_factory=dict)
    word: str = ""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem in words, and what it rests on: the cases of a finding by name, else one without a name."""

    words: str
    results: Mapping[str, Result]


def compare_with(upgrade: Upgrade, file: Path, owns: Sequence[Own] = ()) -> Baseline:
    """Return what is worse, better and the same since an accepted report; ``owns``: the models' limits.

    :class:`UsageError` where the file is no report of this product and GPU, or of another schema.
    """
    now, limits = {"schema": SCHEMA, **plain(upgrade)}, {own.section.name: own for own in owns}
    try:
        accepted = json.loads(file.read_text(encoding="utf-8"))
        for name in ("schema", "product", "gpu"):
            if accepted[name] != now[name]:
                told = f"its {name} is {accepted[name]}, here it is {now[name]}: make it again"
                raise UsageError(f"--baseline {file}: {told}")
        old = _by_key(accepted)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"--baseline {file}: no report of upgrade -o report.json: {why}") from error
    problems, new, same = _by_key(now), list[str](), list[str]()
    for key, problem in problems.items():
        (_, name, what), _ = key
        own = limits.get(name)
        limit = (own.build if what == BUILD else 0.0) or own.limit if own else UpgradeOptions.max_slowdown
        was = old[key].results if key in old else {}
        grown = [
            (case, result, was.get(case)) for case, result in problem.results.items()
            if is_worse(result, was.get(case), max(limit, LEAST_CHANGE))
        ]  # fmt: skip
        if grown:
            told = _tell_growth(problem, grown) if key in old else ""
            new.append(f"{problem.words} ({told})" if told else problem.words)
        else:
            same.append(problem.words)
    gone = tuple(old[key].words for key in old if key not in problems)
    return Baseline(file=str(file), new=tuple(new), gone=gone, same=tuple(same))


def _by_key(report: Mapping[str, Any]) -> dict[tuple[Key, int], Problem]:
    """Return a report's problems by key and number: two rules may speak of the same nodes."""
    found, seen = dict[tuple[Key, int], Problem](), Counter[Key]()
    for key, problem in find_problems(report):
        found[key, seen[key]] = problem
        seen[key] += 1
    return found


def is_worse(now: Result, accepted: Result | None, limit: float) -> bool:
    """Return whether a result is worse than the accepted one: weightier, of another verdict, or larger.

    Larger: a ratio more than ``limit`` times, any error more than :data:`ERROR_GROWTH` times as large, or NaN
    or infinity where all was finite. A size that the accepted result has not is compared with nothing.
    """
    if accepted is None or (now.verdict and accepted.verdict and now.verdict != accepted.verdict):
        return True
    weights = [weight.value for weight in Weight]
    if weights.index(now.weight) < weights.index(accepted.weight):
        return True
    if not all(map(math.isfinite, now.sizes.values())):
        return all(map(math.isfinite, accepted.sizes.values()))
    rooms = {unit: limit if unit == RATIO else ERROR_GROWTH for unit in now.sizes if unit in accepted.sizes}
    return any(now.sizes[unit] > room * accepted.sizes[unit] for unit, room in rooms.items())


def _tell_growth(problem: Problem, grown: Sequence[tuple[str, Result, Result | None]]) -> str:
    """Say of results that are worse now what they are, unless the problem does, and what was accepted."""
    found = []
    for case, result, accepted in grown:
        is_now = f"{case} {result.word}".strip() if case or result.word not in problem.words else ""
        was = f"accepted: {accepted.word}" if accepted and accepted.word else ""
        found.append(", ".join(filter(None, (is_now, was))))
    return join_some([text for text in found if text], NAMED)


def find_problems(report: Mapping[str, Any]) -> Iterator[tuple[Key, Problem]]:
    """Yield each problem of a report's data with what it is known by."""
    ratios = dict[tuple[str, str], float]()  # by repro and measure, of what is or seems beyond a limit
    for line in report["performance"]:
        if (line["beyond_limit"] or line["more_engines"]) and line["ratio"] is not None:
            at = line["repro"], line["measure"]
            ratios[at] = max(float(line["ratio"]), ratios.get(at, 0.0))
    for model in report["models"]:
        yield from _find_problems_of_model(model, ratios)
    for finding in report["findings"]:
        if finding["weight"] in WORSE:
            results = {"": Result(weight=finding["weight"])}
            worse = (case for case in finding["cases"] if case["weight"] in WORSE)
            results |= {case["case"]: _result_of(case, case["weight"]) for case in worse}
            words = f"{finding['repro']}: {finding['why']}"
            yield ("finding", finding["repro"], ""), Problem(words=words, results=results)
    for fact in report["gpu_and_driver"]:
        if fact["weight"] == Weight.AGAINST.value:
            yield ("host", fact["topic"], ""), _problem(f"{fact['topic']}: {fact['text']}", fact["weight"])
    for reason in report["reasons"]:
        if (reason["topic"], reason["weight"]) == (CODE, Weight.LACKING.value):
            yield ("code", "code", ""), _problem(f"{CODE}: {reason['text']}", reason["weight"])
    for use in report["api"]["uses"]:
        kind, change = use["change"]["kind"], use["change"]["name"]
        if not use["why"] and kind in MUST_CHANGE and not change.startswith(PINS):
            where = f"{use['file']}: {change}"
            yield ("code", "code", where), _problem(f"{CODE}: {where}", Weight.AGAINST.value)


def _find_problems_of_model(
    model: Mapping[str, Any], ratios: Mapping[tuple[str, str], float]
) -> Iterator[tuple[Key, Problem]]:
    name, cases, silent = model["name"], {case["case"]: case for case in model["cases"]}, True
    if model["mistake"]:
        words = mistake_words(name, model["mistake"])
        yield ("model", name, "mistake"), _problem(words, Weight.AGAINST.value)
    for reason in model["reasons"]:
        if (weight := reason["weight"]) in AGAINST:
            what, silent = reason["text"].partition(": ")[0].removesuffix(APART), False
            result = Result(weight=weight)
            if reason["topic"] != MODEL:
                what = reason["topic"]
            elif what in cases:  # an id hangs on the model's file and inputs: how it changed is what stays
                result, what = _result_of(cases[what], weight, model), cases[what]["change"]
            elif ratio := ratios.get((model["repro"], what)):
                result = Result(weight=weight, sizes={RATIO: ratio}, word=f"{ratio:.2f}×")
            words = f"{name}: {reason['text']}"
            yield ("model", name, what), Problem(words=words, results={"": result})
    if model["decision"] not in STOPPED:
        return
    bad = [case for case in cases.values() if case["change"] == Change.UNCHANGED_BAD.value]
    for case in bad:
        if case["after"]["verdict"] in WRONG:  # at both versions, which is no reason, but may get worse
            words = f"{case['case']}: {case['change']}, {case['before']['word']} → {case['after']['word']}"
            words = f"{name}: {model['decision'] if silent else words}"
            result, silent = _result_of(case, Weight.NOTE.value, model), False
            yield ("model", name, case["change"]), Problem(words=words, results={"": result})
    if silent:
        yield ("model", name, model["decision"]), _problem(f"{name}: {model['decision']}", Weight.NOTE.value)


def _problem(words: str, weight: str) -> Problem:
    return Problem(words=words, results={"": Result(weight=weight)})


def _result_of(case: Mapping[str, Any], weight: str, model: Mapping[str, Any] | None = None) -> Result:
    """Return a case's result after the move: how large the error is of a wrong one.

    That is in noise floors; of a ``model`` without any, as relative L2 error, and of integers, how many
    elements no noise explains.
    """
    after, sizes = case["after"], dict[str, float]()
    verdict, word = after["verdict"] or "", after["word"]
    mine = {part: [item for item in model[part] if item["version"] == after["version"]]
            for part in ("samples", "integers")} if model else {}  # fmt: skip
    if verdict in WRONG and after["floors"] is not None:
        sizes[FLOORS] = float(after["floors"])
    elif verdict in WRONG:
        for item in mine.get("samples", ()):
            sizes[item["unit"]] = max(float(item["worst"]), sizes.get(item["unit"], 0.0))
    if beyond := max((item["beyond"] for item in mine.get("integers", ())), default=0):
        sizes[ELEMENTS], word = float(beyond), f"{word}, {counted(beyond, 'wrong element')}"
    known = "" if weight == Weight.LACKING.value else Verdict.FAIL.value if verdict in WRONG else verdict
    return Result(weight=weight, verdict=known, sizes=sizes, word=word)


def _tell_new(upgrade: Upgrade) -> Mapping[tuple[str, str], str] | None:
    """Return the test cases with something new since the accepted report, and what; None without one."""
    if upgrade.baseline is None:
        return None
    found = dict[tuple[str, str], list[str]]()
    for (kind, name, _), problem in find_problems(plain(upgrade)):
        for text in upgrade.baseline.new:
            if text == problem.words or text.startswith(f"{problem.words} ("):
                found.setdefault((kind, name), []).append(text.removeprefix(f"{name}: "))
    return {case: "; ".join(texts) for case, texts in found.items()}


def render_junit(upgrade: Upgrade) -> str:
    """Return JUnit XML: a test case a model, or, where no model was named, a finding.

    What counts against the move is a failure, a mistake an error, what is lacking is skipped; so are findings
    beside a model, what speaks against it of GPU and driver, and code that must change or cannot be checked.
    What an accepted report has as well is skipped.
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
    if (new := _tell_new(upgrade)) is not None:
        for place, (group, name, told, result) in enumerate(cases):
            if (group, name) in new:
                kind, _, known = result or ("failure", "", "worse than accepted")
                cases[place] = group, name, told, (kind, new[group, name], known)
            elif result and result[0] != "skipped":
                cases[place] = group, name, told, ("skipped", f"accepted: {result[1]}", result[2])
    title = f"upgrade {upgrade.before} to {upgrade.after} on {upgrade.gpu}"
    return templates().get_template("junit.xml").render(suites=[(title, cases)])
