"""Builds questions about an upgrade from small entries: name what matters, the rest has a default."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from builders import (
    H200,
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)

from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.entry import Entry
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.suite.matrix import Matrix, Source
from trtmatrix.suite.model import Exclusion, Gpu, Verdict
from trtmatrix.suite.repros import Repro, Workaround
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.question import Own, Question, UpgradeOptions
from trtmatrix.upgrade.report import ModelSection, Upgrade

OLD, NEW = "10.7.0", "10.8.0"
GOOD, WRONG = 175.0, 1373.0
"""A sum of errors that passes the case's limit of 690, and one that does not."""

PLAIN = make_repro(
    make_case("sdpa"), make_case("explicit"), make_control("control"),
    workarounds=(Workaround(what="write it out", case="explicit"), Workaround(what="stay", case=None)),
)  # fmt: skip


def entry(repro: Repro, case: str, version: str, what: str, gpu: Gpu = H200) -> Entry:
    """An entry: ``good3``, ``bad1``, ``flaky``, ``said good``, ``missing``, ``void``, or a cause."""
    found = next(c for c in repro.cases if c.id == case)
    cell = make_cell(repro, found, version, gpu)
    match what.split():
        case ["unknown"]:
            return make_unknown(cell)
        case ["missing"]:
            return make_unknown(cell, Exclusion.COMPONENT_MISSING, "no torch in the image")
        case ["said", word]:
            return make_reported(cell, Verdict.PASS if word == "good" else Verdict.FAIL)
        case ["flaky"]:
            return make_entry(cell, GOOD, others=(WRONG, GOOD))
        case ["void"]:
            made = make_entry(cell, GOOD)
            assert made.outcome is not None
            return replace(made, outcome=replace(made.outcome, verdict=Verdict.INVALID, reason="too coarse"))
        case _ if what.startswith(("good", "bad")):
            value = GOOD if what.startswith("good") else WRONG
            return make_entry(cell, value, others=(value,) * (int(what[-1]) - 1))
        case _:
            return make_entry(cell, ended=what, detail="as the test says")


def entries_for(
    before: Mapping[str, str], after: Mapping[str, str], repro: Repro = PLAIN, old: str = OLD, new: str = NEW
) -> list[Entry]:
    """Entries of a repro's cases at both versions; a case that is not named is unknown."""
    return [
        entry(repro, case.id, version, states.get(case.id, "unknown"))
        for case in repro.cases
        for version, states in ((old, before), (new, after))
        if case.control is None or case.id in states
    ]


def ask(entries: Sequence[Entry], old: str = OLD, new: str = NEW, **fields: Any) -> Question:
    """A question about entries; versions are made up as the entries have them."""
    versions = {e.cell.version.name: e.cell.version for e in entries}
    before, after = (versions.get(name) or make_version(name) for name in (old, new))
    matrix = Matrix(
        schema=1,
        sources={"notes": Source(title="release notes: what they say", url="https://example.org/notes")},
        versions=tuple({**versions, before.name: before, after.name: after}.values()),
    )  # fmt: skip
    asked = UpgradeOptions.__dataclass_fields__.keys() - {"before", "after", "api"}
    mine = {name: fields.pop(name) for name in asked & fields.keys()}
    defaults: dict[str, Any] = {
        "before": before, "after": after, "gpu": H200, "matrix": matrix, "gpu_word": "H200",
        "entries": Entries(apply_controls(entries)),
        "options": UpgradeOptions(**{"before": before.name, "after": after.name, **mine}),
    }  # fmt: skip
    return Question(**{**defaults, **fields})


FLOOR = "reduced precision on the CPU"


def own(
    before: str, after: str, floor: str = FLOOR, check: CheckOutcome | None = None,
    differences: tuple[Difference, ...] = (),
) -> Own:  # fmt: skip
    """The user's own model, as its one case stands at both versions."""
    entries = Entries(entries_for({"sdpa": before}, {"sdpa": after}))
    line = make_case_line(PLAIN.id, PLAIN.cases[0], entries, OLD, NEW, own=True)
    section = ModelSection(
        name="my.onnx", repro="my-model", facts=(("opset", "17"),), reference="float32", floor=floor,
        cases=(line,), check=check, differences=differences,
    )  # fmt: skip
    return Own(section=section, entries=entries)


def answer(mine: Own, finding: str = "unknown") -> Upgrade:
    """The report on a move with a model of one's own."""
    return decide(ask(entries_for({"sdpa": "good3"}, {"sdpa": finding}), owns=(mine,)))
