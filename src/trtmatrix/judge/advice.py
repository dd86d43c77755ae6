"""What to do about a surprise, in one sentence. Pure."""

from __future__ import annotations

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Basis, Control, Evidence, Outcome, Product, Verdict
from trtmatrix.suite.repros import Repro

CONFIRMED = CONFIRMING_BUILDS + 1
"""Engines after which a verdict is no luck: the first, and those of a fresh process."""

OWN_MODEL = "your model"
"""What the user's own model has for an issue upstream."""

RATE = "--rebuilds 10 shows the rate"


def file_of(repro: Repro) -> str:
    """Return where a repro's expectations stand."""
    return f"repros/{repro.id.replace('-', '_')}.py"


def advise(entry: Entry) -> str:
    """Return what to do about an entry's surprise; nothing where it is none."""
    outcome, repro, product = entry.outcome, entry.cell.repro, entry.cell.version.product
    if not entry.surprise or outcome is None:
        return ""
    verdict, file = outcome.verdict, file_of(repro)
    if entry.evidence is Evidence.RECORDED:
        return "run it here, with the present repro and driver, before you believe it"
    if repro.upstream == OWN_MODEL:
        return "look at the reason; upgrade --model compares two versions, --explain names the layer"
    if product is not Product.TENSORRT and verdict is Verdict.PASS:
        return f"the graph is right here: change the expectation in {file}"
    if product is not Product.TENSORRT:
        return f"no TensorRT is involved: the graph or the reference of {file} is wrong, mend it first"
    if words := _about_control(entry, outcome):
        return words
    match verdict, entry.expected:
        case Verdict.FLAKY, Verdict.FAIL:
            return f"it hangs on the kernels that the builder chooses: a single PASS means nothing, {RATE}"
        case Verdict.FLAKY, _:
            return f"take it for a FAIL; {RATE}{_workarounds(entry)}, file it upstream"
        case Verdict.FAIL, Verdict.PASS:
            return f"{_weight(outcome)}; look at the reason{_workarounds(entry)}, file it upstream"
        case Verdict.PASS, Verdict.FAIL:
            return f"{_doubt(entry)}: {_passed(outcome)}, change the expectation in {file}"
        case ((Verdict.PASS | Verdict.FAIL), Verdict.FLAKY):
            every = f"{verdict.value} in all of {_builds(outcome)}"
            return f"{every}: if --rebuilds 10 says so too, change {file}"
        case ((Verdict.PASS | Verdict.FAIL), Verdict.INVALID):
            return (
                f"it was to say nothing and says {verdict.value}: look at its noise floor, then change {file}"
            )
        case ((Verdict.PASS | Verdict.FAIL), _):
            return f"it was not expected to run and says {verdict.value}: change the expectation in {file}"
        case _:
            return f"if it stays so, change the expectation in {file}"


def _about_control(entry: Entry, outcome: Outcome) -> str:
    """Say what a control's failure takes away; nothing where it did what a control must."""
    cell, verdict = entry.cell, outcome.verdict
    version, precision = cell.version.name, cell.case.precision
    if cell.case.control is Control.POSITIVE and verdict is not Verdict.PASS:
        return (
            f"what must be right is not: nothing at {version} can be believed; ask doctor, look at the driver"
        )
    if cell.case.control is Control.NEGATIVE and verdict is not Verdict.FAIL:
        some = f"seen in {outcome.failed} of {outcome.builds} builds only"
        seen = some if verdict is Verdict.FLAKY else "not seen"
        all_of = f"the repro {cell.repro.id} at {version}" + (f" in {precision}" if precision else "")
        return f"the defect that was put in was {seen}: nothing of {all_of} can be believed"
    return ""


def _builds(outcome: Outcome) -> str:
    return f"{outcome.builds} build" + ("" if outcome.builds == 1 else "s")


def _weight(outcome: Outcome) -> str:
    """Say how many engines a verdict rests on, and what that is worth."""
    if outcome.builds >= CONFIRMED:
        return f"confirmed by {_builds(outcome)}"
    if not outcome.builds:
        return "not confirmed: run it again (--rerun)"
    return f"{_builds(outcome)} only: confirm it (--rebuilds {CONFIRMED})"


def _passed(outcome: Outcome) -> str:
    """Return what it takes to give an expectation up."""
    missing = CONFIRMED - outcome.builds
    if missing <= 0:
        return f"{_builds(outcome)} pass"
    more = "1 more build passes" if missing == 1 else f"{missing} more builds pass"
    return f"if {more} (--rebuilds {CONFIRMED})"


def _doubt(entry: Entry) -> str:
    """Say what a claim that was not met may rest on."""
    said = entry.expectation
    if said is None or said.basis is Basis.ASSUMED:
        return "it was only assumed to fail"
    if said.basis is Basis.MEASURED:
        return "it failed once: look at what has changed, driver and repro"
    return "the report may be of another GPU or driver" + (f" ({said.on})" if said.on else "")


def _workarounds(entry: Entry) -> str:
    """Return the cases that try the repro's work-arounds, as a part of a list."""
    cases = [w.case for w in entry.cell.repro.workarounds if w.case and w.case != entry.cell.case.id]
    more = ", …" if len(cases) > 3 else ""
    return f", try its work-arounds ({', '.join(cases[:3])}{more})" if cases else ""
