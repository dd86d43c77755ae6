"""The answer that fits one screen: a mark for each finding and version, what must be known, what was run.

The terminal and the page show the same answer; both only lay it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from trtmatrix.common.text import counted, duration, join_some, name_source, one_line
from trtmatrix.judge.controls import ControlCounts, count_controls
from trtmatrix.judge.entry import PRODUCT_NAMES, Entry, has_evidence
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Control, Evidence, Exclusion, Product, Verdict
from trtmatrix.suite.repros import Repro
from trtmatrix.tables.table import DOCTOR, Table, find_contradicted, make_tables, reason_words


class State(str, Enum):
    """What a finding's cases do at a version; the first that any of them is in stands for all."""

    BAD = "BAD"
    FLAKY = "flaky"
    SLOW = "slow"
    ERROR = "err"
    OK = "ok"
    BUILT = "built"
    UNCLEAR = "?"
    UNKNOWN = "·"


MEANINGS = {
    State.BAD: "wrong", State.FLAKY: "some builds wrong", State.SLOW: "not fused",
    State.ERROR: "ended without a result", State.BUILT: "built, not run", State.UNCLEAR: "inconclusive",
    State.UNKNOWN: "not tested, not reported",
}  # fmt: skip
MUST_KNOW = {
    State.BAD: "wrong", State.FLAKY: "wrong in some builds", State.SLOW: "right, but not fused",
    State.ERROR: "without a result",
}  # fmt: skip
_VERDICTS = {
    Verdict.FAIL: State.BAD, Verdict.FLAKY: State.FLAKY, Verdict.PASS: State.OK, Verdict.BUILT: State.BUILT,
    Verdict.INVALID: State.UNCLEAR, Verdict.NO_VERDICT: State.ERROR,
}  # fmt: skip
_SAYS_NOTHING = {Cause.UNSUPPORTED_BY_VERSION, Cause.UNSUPPORTED_GPU, Cause.COMPONENT_MISSING}
_NO_SUCH_GPU = {Exclusion.NO_GPU, Exclusion.OTHER_GPU}
_CANNOT_RUN = {Exclusion.UNSUPPORTED_GPU, Exclusion.COMPONENT_MISSING}
_SIGNS = {Evidence.RECORDED: "*", Evidence.REPORTED: "r"}


def state_of(entry: Entry) -> State:
    """Return what one case does at one version."""
    outcome = entry.outcome
    if outcome is None or not has_evidence(entry) or outcome.cause in _SAYS_NOTHING:
        return State.UNKNOWN
    right = entry.evidence is Evidence.REPORTED or outcome.reason.startswith("right, but")
    if outcome.verdict is Verdict.FAIL and entry.cell.case.remarks and right:
        return State.SLOW
    return _VERDICTS[outcome.verdict]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A finding at a version: its state, how that is known, the cases in that state, how many are known.

    ``sign`` follows the state: unexpected, another board, not all cases tested, measured earlier or reported.
    """

    state: State
    evidence: Evidence
    sign: str
    cases: tuple[Entry, ...]
    known: int
    unexpected: int

    @property
    def reported(self) -> bool:
        """Whether only others vouch for it."""
        return self.evidence is Evidence.REPORTED


def _mark(cells: Iterable[Entry | None]) -> Mark:
    """Return what a finding's cases come to; what was measured outranks what was reported."""
    entries = [entry for entry in cells if entry is not None]
    known = [(state, e) for e in entries if (state := state_of(e)) is not State.UNKNOWN]
    known = [item for item in known if item[1].evidence.is_record] or known
    worst = min((state for state, _ in known), key=list(State).index, default=State.UNKNOWN)
    mine = tuple(entry for state, entry in known if state is worst)
    evidence = min((entry.evidence for entry in mine), key=list(Evidence).index, default=Evidence.NONE)
    unexpected = sum(entry.surprise for _, entry in known)
    board = "§" if any(entry.board for _, entry in known) else ""
    left = [e for e in entries if not e.record and not (e.excluded and e.excluded.why in _CANNOT_RUN)]
    part = "…" if left and worst is State.OK and evidence.is_record else ""
    return Mark(
        state=worst, evidence=evidence, cases=mine, known=len(known), unexpected=unexpected,
        sign=("!" if unexpected else "") + board + part + _SIGNS.get(evidence, ""),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The findings on one GPU: a row each, with a mark for each version.

    ``measured``: anything was, here or elsewhere, if only controls. ``earlier`` says which versions were
    measured, where all of that was earlier; then its marks need no sign.
    """

    title: str
    columns: tuple[Version, ...]
    rows: tuple[tuple[Repro, tuple[Mark, ...]], ...]
    measured: bool
    earlier: str

    def text(self, mark: Mark) -> str:
        """Return a mark as it is shown in this grid: ``ok``, ``BAD!``, ``ok *``, ``BAD r``."""
        sign = mark.sign.removesuffix("*") if self.earlier else mark.sign
        stuck = sign.rstrip("*r")
        return " ".join(part for part in (mark.state.value + stuck, sign.removeprefix(stuck)) if part)

    def legend(self, marks: Iterable[Mark]) -> Iterator[str]:
        """Yield what some marks of this grid mean."""
        shown = list(marks)
        states, signs = {mark.state for mark in shown}, "".join(mark.sign for mark in shown)
        if self.earlier:
            yield self.earlier
        elif "*" in signs:
            yield "*: measured earlier or elsewhere"
        if "r" in signs:
            yield "r: reported, maybe of another GPU"
        yield from (f"{state.value}: {meaning}" for state, meaning in MEANINGS.items() if state in states)
        if "!" in signs:
            yield "!: unexpected"
        if "§" in signs:
            yield "§: another driver or GPU memory than most"
        if "…" in signs:
            yield "…: partly tested"


def _make_grid(table: Table) -> Grid:
    """Return a table's grid; its title names a GPU only where something was measured on it."""
    rows, entries = [], list(table.entries())
    for section in table.sections:  # what has controls alone is part of the self-check
        cases = [row.entries for row in (*section.rows, *section.folded) if row.case.control is None]
        if cases:
            rows.append((section.repro, tuple(map(_mark, zip(*cases, strict=True)))))
    marks = [marks for _, marks in rows]
    known = {mark.evidence for row in marks for mark in row}
    title = "TensorRT: not measured" + (", only reported" if Evidence.REPORTED in known else "")
    measured, earlier = any(entry.evidence.is_record for entry in entries), ""
    if measured:
        absent = any(e.excluded is not None and e.excluded.why in _NO_SUCH_GPU for e in entries)
        title = one_line(table.title.replace("TensorRT: ", "TensorRT on ")) + " · not in this host" * absent
    if Evidence.RECORDED in known and Evidence.MEASURED not in known:
        columns = zip(table.columns, zip(*marks, strict=True), strict=True)
        names = [version.name for version, at in columns if any(mark.evidence.is_record for mark in at)]
        earlier = f"measured earlier or elsewhere: {join_some(names, 6)}"
    return Grid(title=title, columns=table.columns, rows=tuple(rows), measured=measured, earlier=earlier)


@dataclass(frozen=True, kw_only=True)
class News:
    """What a person must know: a word for its kind, and a sentence; the most urgent has the lowest rank."""

    rank: int
    word: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All that one screen says.

    ``kind``: good, bad, warn or unsure; ``sentence`` says it in a few words, ``tiles`` in numbers.
    """

    kind: str
    sentence: str
    tiles: tuple[tuple[str, str], ...]
    grids: tuple[Grid, ...]
    products: tuple[str, ...]
    news: tuple[News, ...]
    ran: str
    not_run: str
    next: str


def make_answer(
    entries: Sequence[Entry], *, again: str = "nox -s matrix", seconds: float | None = None, cost: str = ""
) -> Answer:
    """Return the answer that cells give.

    ``again``: the command that runs these cells; ``seconds``: how long the run took, None where nothing was
    to be run; ``cost``: what it takes to have images that are not here.
    """
    tables = make_tables(entries)
    grids = [_make_grid(table) for table in tables if table.columns[0].product is Product.TENSORRT]
    controls, not_run = count_controls(entries), _not_run(entries)
    news = tuple(sorted(_news(entries, grids, not_run, controls), key=lambda item: item.rank))
    not_run = "" if any(item.word == "NOT RUN" for item in news) else not_run
    older = [e for e in entries if e.evidence is Evidence.RECORDED and e.excluded and not e.cell.companion]
    if older and seconds is not None:  # a run was to run them
        shown = f"{counted(len(older), 'earlier result')} shown instead: {reason_words(older)}"
        not_run = "; ".join(filter(None, (not_run, shown)))
    kind, sentence, tiles = _sum_up(entries, grids, controls)
    return Answer(
        kind=kind, sentence=sentence, tiles=tiles, grids=tuple(grids), products=tuple(_products(entries)),
        news=news, ran=_what_ran(entries, seconds), next=_next(entries, controls, again, cost),
        not_run=not_run,
    )  # fmt: skip


def _news(
    entries: Sequence[Entry], grids: Sequence[Grid], not_run: str, controls: ControlCounts
) -> Iterator[News]:
    """Yield what must be known: wrong controls, what was not run, findings, graphs and wrong facts."""
    for control in controls.wrong[:1]:
        seen = control.verdict.value if control.verdict else ""
        more = f" ({len(controls.wrong) - 1} more)" if len(controls.wrong) > 1 else ""
        text = f"{control.cell.id} is {seen}, must be {control.expected.value}{more}: rely on no result"
        yield News(rank=0, word="CHECK", text=text)
    if not_run and not any(grid.measured for grid in grids):
        marked = any(mark.reported for grid in grids for _, row in grid.rows for mark in row)
        every = "" if not_run.startswith("1 ") else "all "
        text = every + not_run + "; marks with r are others' reports" * marked
        yield News(rank=0, word="NOT RUN", text=text)
    for grid in grids:
        for repro, marks in grid.rows:
            yield from _finding_news(repro, marks, grid.columns)
    graphs = (e for e in entries if e.cell.version.product is not Product.TENSORRT)
    if bad := [e for e in graphs if not e.cell.case.control and state_of(e) in {State.BAD, State.FLAKY}]:
        text = f"{counted(len(bad), 'graph')} wrong on the CPU, such as {bad[0].cell.id}"
        yield News(rank=1, word="BAD", text=text)
    for line in find_contradicted(entries):
        yield News(rank=6, word="note", text=line)


def _finding_news(repro: Repro, marks: Sequence[Mark], columns: Sequence[Version]) -> Iterator[News]:
    """Yield for each bad state of a finding where it is, in how many cases, since when, and until when.

    What different issues tell of is told apart.
    """
    names = [v.name + (" r" if m.reported else "") for v, m in zip(columns, marks, strict=True)]
    places: dict[tuple[State, str], list[int]] = {}
    for n, mark in enumerate(marks):
        places.setdefault((mark.state, _issue_of(repro, mark)), []).append(n)
    ranks = {state: rank for rank, state in enumerate(MUST_KNOW, start=3)}
    bad = (item for item in places.items() if item[0][0] in ranks)
    for (state, issue), at in sorted(bad, key=lambda item: ranks[item[0][0]]):
        rank = ranks[state]
        measured = [n for n in at if not marks[n].reported]
        most = max((marks[n] for n in measured or at), key=lambda mark: len(mark.cases))
        what = MUST_KNOW[state]
        if state is State.ERROR:
            causes = Counter(e.outcome.cause.value for e in most.cases if e.outcome and e.outcome.cause)
            what += f": {', '.join(cause for cause, _ in causes.most_common(2))}"
        upto = "up to " if len({(len(marks[n].cases), marks[n].known) for n in measured}) > 1 else ""
        parts = [f"{upto}{len(most.cases)} of {counted(most.known, 'case')} {what}"]
        if most.reported:
            on = sorted({e.expectation.on for n in at for e in marks[n].cases if e.expectation} - {""})
            where = f" on {', '.join(on)}" if on else ""
            parts = [f"{counted(len(most.cases), 'case')} reported {what}{where}"]
        if unexpected := sum(marks[n].unexpected for n in at):
            parts.append(f"{unexpected} unexpected")
        before = next((n for n in reversed(range(at[0])) if marks[n].state is not State.UNKNOWN), None)
        was_ok = before is not None and marks[before].state is State.OK
        parts += [f"was ok in {names[before]}"] if before is not None and was_ok else []
        after = next((n for n in range(at[-1] + 1, len(marks)) if marks[n].state is State.OK), None)
        if after is not None:
            worse = [n for n in range(after, len(marks)) if marks[n].state in MUST_KNOW]
            later = f", {marks[worse[0]].state.value} in {names[worse[0]]}" if worse else ""
            parts.append(f"ok in {names[after]}{later}")
        regressed = state is State.BAD and was_ok
        urgency = 1 if unexpected else 7 if not measured else 2 if regressed else rank
        word = f"{state.value}{'!' if unexpected else ''}{'' if measured else ' r'}"
        versions = join_some([names[n].removesuffix("" if measured else " r") for n in at])
        text = one_line(f"{repro.id} {versions}: {'; '.join(parts)} ({issue})")
        yield News(rank=urgency, word=word, text=text)
    for name, mark in zip(names, marks, strict=True):
        if mark.unexpected and mark.state not in MUST_KNOW:
            text = f"{repro.id} {name}: {counted(mark.unexpected, 'case')} not as expected ({repro.upstream})"
            yield News(rank=1, word=f"{mark.state.value}!", text=one_line(text))


def _issue_of(repro: Repro, mark: Mark) -> str:
    """Return the issue that all expectations of a mark's cases cite, else the repro's."""
    cited = {name_source(e.expectation.source) if e.expectation else "" for e in mark.cases}
    issue = cited.pop() if len(cited) == 1 else ""
    return issue if "#" in issue else repro.upstream


def _products(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a line for each product that runs on the CPU; graphs that are broken on purpose are left out."""
    right_ones = [entry for entry in entries if entry.cell.case.control is not Control.NEGATIVE]
    for product in (Product.ONNXRUNTIME, Product.TENSORRT_RTX):
        mine = [e for e in right_ones if e.cell.version.product is product]
        names = dict.fromkeys(e.cell.version.name.removeprefix(f"{product.value}-") for e in mine)
        known = [e for e in mine if e.evidence.is_record and e.outcome is not None]
        head, left = f"{PRODUCT_NAMES[product]} {join_some(list(names))}", len(mine) - len(known)
        right = sum(state_of(e) in {State.OK, State.BUILT} for e in known)
        done = "build" if product is Product.TENSORRT_RTX else "agree with their float64 reference"
        if known:
            more = f", {left} not tried yet" if left else ""
            yield f"{head}: {right} of {counted(len(known), 'graph')} {done}{more}"
        elif mine:
            yield f"{head}: {counted(left, 'graph')} not tried yet"


def count_all(entries: Sequence[Entry]) -> list[str]:
    """Return lines that count all cells: those of each product, what was run, and what was not, and why."""
    left = _not_run(entries)
    return [*_products(entries), _what_ran(entries), *([f"Not run: {left}"] if left else [])]


def _not_run(entries: Iterable[Entry]) -> str:
    trt = (entry for entry in entries if entry.cell.version.product is Product.TENSORRT)
    left = [entry for entry in trt if not entry.evidence.is_record]
    return f"{counted(len(left), 'TensorRT test')}: {reason_words(left)}" if left else ""


def _what_ran(entries: Sequence[Entry], seconds: float | None = None) -> str:
    """Return what was run, how that came out, and how the self-check did."""
    controls = count_controls(entries)
    tests = [e for e in entries if e.cell.case.control is None and e.evidence.is_record]
    executed = sum(entry.executed for entry in tests)
    stored = len(tests) - executed
    time = f" in {duration(seconds)}" if seconds is not None and executed else ""
    parts = [f"{counted(executed, 'test')} run{time}"] if executed or not stored else []
    parts += [counted(stored, "stored result")] if stored else []
    unexpected = f", {sum(entry.surprise for entry in tests) or 'none'} unexpected" if tests else ""
    unclear = sum(state_of(entry) is State.UNCLEAR for entry in tests)
    told = (
        " + ".join(parts) + unexpected,
        f"{unclear} inconclusive" if unclear else "",
        f"self-check: {controls.share} controls as expected" if controls.ran else "no self-check was run",
        f"{counted(controls.uncontrolled, 'test')} without a control" if controls.uncontrolled else "",
    )
    return " · ".join(filter(None, told))


def _next(entries: Sequence[Entry], controls: ControlCounts, again: str, cost: str) -> str:
    if controls.wrong:
        return "nox -s doctor"
    wrong = [entry for entry in entries if entry.surprise and state_of(entry) in {State.BAD, State.FLAKY}]
    if wrong:
        worst = min(wrong, key=lambda entry: list(State).index(state_of(entry)))
        return f"nox -s bundle -- make {worst.cell.id}"
    left = [e for e in entries if not e.evidence.is_record]
    excluded = [item for entry in left if (item := entry.excluded)]
    why, absent = {item.why for item in excluded}, {Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT}
    if names := dict.fromkeys(item.cell.version.name for item in excluded if item.why in absent):
        command = again if " --trt " in again else f"nox -s matrix -- --trt {','.join(names)}"
        return f"{command}  ({cost})" if cost else command
    measured = [e for e in entries if e.cell.version.product is Product.TENSORRT and e.evidence.is_record]
    elsewhere = not any(entry.evidence is Evidence.MEASURED for entry in measured) and why & _NO_SUCH_GPU
    some_here = any(entry.excluded is None for entry in left)
    if elsewhere and not (some_here and measured):
        return f"on a host with {'an NVIDIA' if Exclusion.NO_GPU in why else 'that'} GPU: {again}"
    if some_here:
        return again + ("  (here: what needs no GPU)" if elsewhere else "")
    return "nox -s doctor" if why & DOCTOR else "nox -s report"


def _sum_up(
    entries: Sequence[Entry], grids: Sequence[Grid], controls: ControlCounts
) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    rows = [[mark for mark in row if mark.evidence.is_record] for grid in grids for _, row in grid.rows]
    tested = [{mark.state for mark in row} for row in rows if row]
    unexpected = sum(entry.surprise for entry in entries)
    words = {**MUST_KNOW, State.FLAKY: "flaky", State.SLOW: "not fused"}
    found = {word: sum(state in seen for seen in tested) for state, word in words.items()}
    tiles = [(str(len(tested)), "findings tested")]
    tiles += [(str(number), f"{word} at some version") for word, number in found.items()]
    tiles += [(str(unexpected), "unexpected results"), (controls.share, "controls as expected")]
    wrong = found["wrong"] or found["flaky"]
    kind = "bad" if wrong else "warn" if unexpected or any(found.values()) else "good"
    told = ", ".join(f"{count} {word}" for word, count in found.items() if count)
    told = f"{told} at some version" if told else "none wrong"
    sentence = f"{counted(len(tested), 'finding')} tested: {told}; {unexpected or 'none'} unexpected."
    if not tested:
        measured = any(grid.measured for grid in grids)
        kind, sentence = "unsure", "No finding was tested." if measured else "TensorRT was not measured."
    if controls.wrong:
        kind, sentence = "bad", "The self-check failed: do not rely on these results."
    return kind, sentence, tuple(tiles)


def short_names(versions: Sequence[Version]) -> list[str]:
    """Return names with as few numbers as tell the versions apart, two at least: ``8.5``, ``10.0.1``."""
    parts = [version.name.split(".") for version in versions]
    found = []
    for mine in parts:
        shared = (sum(other[:size] == mine[:size] for other in parts) for size in range(2, len(mine)))
        size = next((size for size, count in enumerate(shared, start=2) if count == 1), len(mine))
        found.append(".".join(mine[:size]))
    return found
