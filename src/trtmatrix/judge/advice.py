"""What to do about a surprise, in one sentence. Pure."""

from __future__ import annotations

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Basis, Control, Product, Verdict
from trtmatrix.suite.outcome import Evidence, Outcome
from trtmatrix.suite.repros import Repro

CONFIRMED = CONFIRMING_BUILDS + 1
"""Engines after which a verdict is no luck: the first, and those of a fresh process."""

OWN_MODEL = "your model"
"""What the user's own model has for an issue upstream."""


def advise(entry: Entry) -> str:
    """Return what to do about an entry's surprise; nothing where it is none."""
    outcome = entry.outcome
    if not entry.surprise or outcome is None:
        return ""
    if entry.evidence is Evidence.RECORDED:
        return "run it here, with the present repro and driver, before you believe it"
    if entry.cell.repro.upstream == OWN_MODEL:
        return "look at the reason; upgrade --model compares two versions, --explain names the layer"
    if entry.cell.version.product is not Product.TENSORRT:
        return _about_graph(entry.cell.repro, outcome)
    if entry.cell.case.control is not None and (words := _about_control(entry, outcome)):
        return words
    match outcome.verdict:
        case Verdict.FLAKY:
            return _about_flaky(entry)
        case Verdict.FAIL if entry.expected is Verdict.PASS:
            return f"{_weight(outcome)}; look at the reason{_workarounds(entry)}, file it upstream"
        case Verdict.PASS if entry.expected is Verdict.FAIL:
            return (
                f"{_doubt(entry)}: {_passed(outcome)}, change the expectation in {file_of(entry.cell.repro)}"
            )
        case Verdict.PASS | Verdict.FAIL:
            return _about_change(entry, outcome)
        case Verdict.INVALID | Verdict.BUILT | Verdict.NO_VERDICT:
            return f"if it stays so, change the expectation in {file_of(entry.cell.repro)}"


def file_of(repro: Repro) -> str:
    """Return where a repro's expectations stand."""
    return f"repros/{repro.id.replace('-', '_')}.py"


def _about_graph(repro: Repro, outcome: Outcome) -> str:
    if outcome.verdict is Verdict.PASS:
        return f"the graph is right here: change the expectation in {file_of(repro)}"
    return f"no TensorRT is involved: the graph or the reference of {file_of(repro)} is wrong, mend it first"


def _about_control(entry: Entry, outcome: Outcome) -> str:
    """Say what a control's failure takes away; nothing where it did what a control must."""
    version, precision = entry.cell.version.name, entry.cell.case.precision
    all_of = f"the repro {entry.cell.repro.id} at {version}" + (f" in {precision}" if precision else "")
    if entry.cell.case.control is Control.POSITIVE:
        if outcome.verdict is Verdict.PASS:
            return ""
        return (
            f"what must be right is not: nothing at {version} can be believed; ask doctor, look at the driver"
        )
    if outcome.verdict is Verdict.FAIL:
        return ""
    seen = "not seen"
    if outcome.verdict is Verdict.FLAKY:
        seen = f"seen in {outcome.failed} of {outcome.builds} builds only"
    return f"the defect that was put in was {seen}: nothing of {all_of} can be believed"


def _about_flaky(entry: Entry) -> str:
    rate = "--rebuilds 10 shows the rate"
    if entry.expected is Verdict.FAIL:
        return f"it hangs on the kernels that the builder chooses: a single PASS means nothing, {rate}"
    return f"take it for a FAIL; {rate}{_workarounds(entry)}, file it upstream"


def _about_change(entry: Entry, outcome: Outcome) -> str:
    """Say what to do where neither PASS nor FAIL was expected, and one of them came."""
    file, verdict = file_of(entry.cell.repro), outcome.verdict.value
    match entry.expected:
        case Verdict.FLAKY:
            return f"{verdict} in all of {_builds(outcome)}: if --rebuilds 10 says so too, change {file}"
        case Verdict.INVALID:
            return f"it was to say nothing and says {verdict}: look at its noise floor, then change {file}"
        case Verdict.BUILT | Verdict.NO_VERDICT:
            return f"it was not expected to run and says {verdict}: change the expectation in {file}"
        case Verdict.PASS | Verdict.FAIL:
            return f"{_weight(outcome)}: change the expectation in {file}"


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
    expectation = entry.expectation
    if expectation is None or expectation.basis is Basis.ASSUMED:
        return "it was only assumed to fail"
    if expectation.basis is Basis.MEASURED:
        return "it failed once: look at what has changed, driver and repro"
    on = f" ({expectation.on})" if expectation.on else ""
    return f"the report may be of another GPU or driver{on}"


def _workarounds(entry: Entry) -> str:
    """Return the cases that try the repro's work-arounds, as a part of a list."""
    cases = [w.case for w in entry.cell.repro.workarounds if w.case and w.case != entry.cell.case.id]
    if not cases:
        return ""
    more = ", …" if len(cases) > 3 else ""
    return f", try its work-arounds ({', '.join(cases[:3])}{more})"
