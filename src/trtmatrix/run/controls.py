"""Runs the controls alone, for doctor: whether measuring and judging work on each version that is here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from trtmatrix.images.rules import Finding, Level
from trtmatrix.judge.compare import Entry
from trtmatrix.judge.words import full_words
from trtmatrix.launchers.wheels import is_installed
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey, take_survey
from trtmatrix.run.perform import Options, perform
from trtmatrix.suite.cells import CONTROLS
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.model import Exclusion, Outcome, Product, Verdict
from trtmatrix.suite.plan import Excluded, Launch, Pull

SAID = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.FLAKY, Verdict.INVALID})


def run_controls(context: Context) -> tuple[Finding, ...]:
    """Run the controls on all that is here, or take their current records; one finding a version and GPU.

    Nothing is pulled, and no wheels are installed but those of ONNX Runtime, which are small.
    """
    if CONTROLS not in context.repros:
        found = f"no {CONTROLS}.py in {context.project.repros}: nothing shows that a verdict can be believed"
        return (Finding(level=Level.LACKING, what="controls", found=found),)
    alone = replace(
        context, selection=replace(context.selection, repros=(CONTROLS,), cases=()), controls=False
    )
    survey = take_survey(alone, Pull.NEVER)
    absent = [launch for launch in survey.plan.launches if _must_be_installed(launch, context)]
    launches = tuple(launch for launch in survey.plan.launches if launch not in absent)
    if not launches and not absent:
        return (Finding(level=Level.LACKING, what="controls", found="no version can be run here"),)
    result = perform(alone, replace(survey, plan=replace(survey.plan, launches=launches)), Options())
    findings = [_not_installed(launch) for launch in absent]
    findings += _not_ready(result.not_ready)
    return (*findings, *_came_out(result.entries, survey))


def _must_be_installed(launch: Launch, context: Context) -> bool:
    origin = launch.version.origin
    large = launch.version.product is not Product.ONNXRUNTIME
    if launch.python or not isinstance(origin, WheelsOrigin) or not large:
        return False
    return not is_installed(context.project.cache, launch.version.name, origin.wheels)


def _not_installed(launch: Launch) -> Finding:
    name = launch.version.name
    return Finding(
        level=Level.LACKING, what=f"controls of {name}", found="not run: its wheels are not installed yet",
        remedy=f"install and run: nox -s matrix -- --trt {name}",
    )  # fmt: skip


def _not_ready(excluded: Sequence[Excluded]) -> Iterator[Finding]:
    """Say once for each version why it could not be made ready."""
    for item in {item.cell.version.name: item for item in excluded}.values():
        version = item.cell.version
        index = "check network, proxy and PIP_INDEX_URL, then type doctor again"
        yield Finding(
            level=Level.LACKING, what=f"controls of {version.name}",
            found=f"{Exclusion.NOT_READY.value}: {item.detail}",
            remedy=index if isinstance(version.origin, WheelsOrigin) else "",
        )  # fmt: skip


def _came_out(entries: Sequence[Entry], survey: Survey) -> Iterator[Finding]:
    """Say how the controls of each version came out on each GPU where they could be run."""
    ran = {cell.id for launch in survey.plan.launches for cell in launch.cells}
    shown = [e for e in entries if e.cell.id in ran and e.record is not None and e.cell.case.control]
    shown.sort(key=_place)
    for (name, gpu), group in groupby(shown, key=_place):
        yield _finding(f"controls of {name} on {gpu}", list(group))


def _place(entry: Entry) -> tuple[str, str]:
    return entry.cell.version.name, entry.cell.gpu.name


def _finding(what: str, entries: Sequence[Entry]) -> Finding:
    outcomes = [(entry, entry.outcome) for entry in entries if entry.outcome is not None]
    said = [(entry, outcome) for entry, outcome in outcomes if outcome.verdict in SAID]
    wrong = [(entry, outcome) for entry, outcome in said if outcome.verdict is not entry.expected]
    right = f"{len(said) - len(wrong)} of {len(said)} as they must" if said else "none could be judged"
    others = _others([outcome for _, outcome in outcomes if outcome.verdict not in SAID])
    if not wrong:
        built = any(outcome.verdict is Verdict.BUILT for _, outcome in outcomes)
        level = Level.GOOD if said or built else Level.LACKING
        return Finding(level=level, what=what, found=right + others)
    told = "; ".join(
        f"{entry.cell.case.id} came out {full_words(outcome)} instead of {entry.expected.value}"
        + (f" ({outcome.reason})" if outcome.reason else "")
        for entry, outcome in wrong
    )
    return Finding(
        level=Level.TROUBLE, what=what, found=f"{right}: {told}{others}",
        remedy="believe no verdict of this version here until its controls come out as they must",
    )  # fmt: skip


def _others(outcomes: Sequence[Outcome]) -> str:
    """Count what says nothing about numbers, by its words."""
    words = [full_words(outcome) for outcome in outcomes]
    return "".join(f"; {words.count(word)} {word}" for word in dict.fromkeys(words))
