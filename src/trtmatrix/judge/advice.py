"""What to do about a surprise, in one sentence. Pure."""

from __future__ import annotations

from trtmatrix.common.text import counted
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Basis, Control, Evidence, Product, Verdict

CONFIRMED = CONFIRMING_BUILDS + 1
"""Engines after which a verdict is no luck: the first, and those of a fresh process."""
OWN_MODEL = "your model"
"""What the user's own model has for an issue upstream."""
_DOUBTS = {
    Basis.ASSUMED: "it was only assumed to fail",
    Basis.MEASURED: "it failed once: look at what has changed, driver and repro",
    Basis.REPORTED: "the report may be of another GPU or driver",
}


def advise(entry: Entry) -> str:
    """Return what to do about an entry's surprise; nothing where it is none."""
    outcome, repro, product = entry.outcome, entry.cell.repro, entry.cell.version.product
    if not entry.surprise or outcome is None:
        return ""
    file = f"repros/{repro.id.replace('-', '_')}.py"
    if entry.evidence is Evidence.RECORDED:
        return "run it here, with the present repro and driver, before you believe it"
    if repro.upstream == OWN_MODEL:
        return "look at the reason; upgrade --model compares two versions, --explain names the layer"
    cell, verdict = entry.cell, outcome.verdict
    if product is not Product.TENSORRT:
        if verdict is Verdict.PASS and cell.case.control is not Control.NEGATIVE:
            return f"the graph is right here: change the expectation in {file}"
        return f"no TensorRT is involved: the graph or the reference of {file} is wrong, mend it first"
    if cell.case.control is Control.POSITIVE and verdict is not Verdict.PASS:
        doubt = f"nothing at {cell.version.name} can be believed"
        return f"what must be right is not: {doubt}; ask doctor, look at the driver"
    if cell.case.control is Control.NEGATIVE and verdict is not Verdict.FAIL:
        seen = "seen in some builds only" if verdict is Verdict.FLAKY else "not seen"
        precision = f" in {cell.case.precision}" if cell.case.precision else ""
        doubt = f"nothing of the repro {repro.id} at {cell.version.name}{precision} can be believed"
        return f"the defect that was put in was {seen}: {doubt}"
    cases = [w.case for w in repro.workarounds if w.case and w.case != cell.case.id]
    more = ", …" if len(cases) > 3 else ""
    others = f", try its work-arounds ({', '.join(cases[:3])}{more})" if cases else ""
    sure, confirm = outcome.builds >= CONFIRMED, f"confirm it (--rebuilds {CONFIRMED})"
    match verdict, entry.expected:
        case Verdict.FLAKY, _:
            return f"--rebuilds 10 shows the rate; take it for a FAIL{others}, file it upstream"
        case Verdict.FAIL, Verdict.PASS:
            weight = f"confirmed by {counted(outcome.builds, 'build')}" if sure else confirm
            return f"{weight}; look at the reason{others}, file it upstream"
        case Verdict.PASS, Verdict.FAIL:
            said = entry.expectation
            doubt = _DOUBTS[said.basis if said else Basis.ASSUMED]
            on = f" ({said.on})" if said and said.on else ""
            return f"{doubt}{on}; {'' if sure else confirm + ', then '}change the expectation in {file}"
        case _:
            return f"if it stays so, change the expectation in {file}"
