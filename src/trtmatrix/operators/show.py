"""What versions make of ONNX's tests: counts, operators, what changed; as text, Markdown, page and JSON."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import pairwise

from tabulate import tabulate

from trtmatrix.common.text import counted, duration, join_some, to_json
from trtmatrix.records.operators import BAD, GOOD, REFUSED, OperatorRecord, Row, Verdict
from trtmatrix.suite.model import Product, release_of
from trtmatrix.tables.markdown import plain, table
from trtmatrix.tables.page import make_style, render_page, templates

SCHEMA = 2
TITLE = "ONNX's tests of its operators"
HEIGHT, NAMED = 40, 4
"""Lines of a screen, and how many cases of a change are named on it."""
TURNED_DOWN = (
    "Refused by the parser, by the builder, at run time, or not fed: the engine takes no such inputs."
)
ALIKE = 120
"""Letters by which messages are told apart on a page."""
MODELS = "(models of several nodes)"
"""What stands for an operator where a test has several."""
HEADS = {
    Verdict.RIGHT: "right", Verdict.BUILT: "built", Verdict.WRONG: "WRONG", Verdict.CRASHED: "crashed",
    Verdict.HUNG: "hung", Verdict.PARSER: "parser", Verdict.BUILDER: "builder",
    Verdict.AT_RUN_TIME: "run time", Verdict.NOT_FED: "not fed", Verdict.NOTHING: "no result",
}  # fmt: skip
"""The heads of the columns of counts; from ``parser`` to ``not fed`` a case is refused there."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a version makes of an operator: its cases."""

    rows: Sequence[Row]

    @property
    def tone(self) -> str:
        """How bad it is: ``bad``, ``warn`` (something is refused), ``good``; nothing where none is known."""
        if any(row.verdict in BAD for row in self.rows):
            return "bad"
        return "warn" if any(row.verdict not in GOOD for row in self.rows) else "good" if self.rows else ""

    @property
    def text(self) -> str:
        """Counts, the worst first, and the opsets that are right: ``WRONG 2, right 9 (opset 9-20)``."""
        words = Counter("refused" if row.verdict in REFUSED else HEADS[row.verdict] for row in self.rows)
        order = ("WRONG", "crashed", "hung", "refused", "no result", "right", "built")
        good = sorted(row.opset for row in self.rows if row.operator and row.verdict in GOOD)
        span = f" (opset {good[0]}{f'-{good[-1]}' if good[-1] > good[0] else ''})" if good else ""
        return ", ".join(f"{word} {words[word]}" for word in order if words[word]) + span or "·"

    @property
    def reasons(self) -> list[tuple[Row, list[str]]]:
        """The cases that are not right by verdict and message, whose numbers, such as a node's, do not count.

        The first of each, and the names of all.
        """
        found: dict[tuple[Verdict, str], tuple[Row, list[str]]] = {}
        for row in self.rows:
            if row.verdict not in GOOD:
                key = (row.verdict, re.sub(r"\d+", "", row.detail)[:ALIKE])
                found.setdefault(key, (row, []))[1].append(row.name)
        return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Change:
    """Cases that came out otherwise at the later of two versions of one product, on one GPU."""

    before: str
    after: str
    gpu: str
    kind: str
    cases: tuple[str, ...]

    @property
    def words(self) -> tuple[str, str]:
        """The versions, and the number and kind of cases."""
        return f"{self.before} to {self.after}", f"{counted(len(self.cases), 'case')} {self.kind}"


class Overview:
    """The records that are shown, by product and release."""

    def __init__(self, records: Iterable[OperatorRecord]) -> None:
        """Put them in order."""
        self.records = sorted(records, key=lambda r: (r.product.value, r.gpu, release_of(r.version)))

    @cached_property
    def operators(self) -> list[tuple[str, list[Mark]]]:
        """Each operator with its mark at each version; those with something wrong first."""
        rows: dict[str, list[list[Row]]] = {}
        for place, record in enumerate(self.records):
            for row in record.rows.values():
                rows.setdefault(row.operator or MODELS, [[] for _ in self.records])[place].append(row)
        found = [(name, [Mark(rows=cell) for cell in cells]) for name, cells in rows.items()]
        worst = {"bad": 0, "warn": 1, "good": 2, "": 3}
        return sorted(found, key=lambda pair: (min(worst[mark.tone] for mark in pair[1]), pair[0]))

    @cached_property
    def changes(self) -> list[Change]:
        """What changed from each release to the next that has a record of the same suite and GPU."""
        alike: dict[object, list[OperatorRecord]] = {}
        for record in self.records:
            alike.setdefault((record.product, record.gpu, record.suite), []).append(record)
        pairs = [pair for records in alike.values() for pair in pairwise(records)]
        return [change for before, after in pairs for change in find_changes(before, after)]

    @property
    def names(self) -> list[str]:
        """The heads of the columns: versions, with the GPU where there are several."""
        several = len({r.gpu for r in self.records if r.product is Product.TENSORRT}) > 1
        return [r.version + (f" ({r.gpu})" if several else "") for r in self.records]

    @cached_property
    def bad_rows(self) -> list[tuple[Row, list[str]]]:
        """Each case that is wrong, crashes or hangs, with the versions; forms of one test once."""
        found: dict[tuple[str, Verdict], tuple[Row, list[str]]] = {}
        for record in self.records:
            for row in record.rows.values():
                if row.verdict in BAD:
                    places = found.setdefault((row.base, row.verdict), (row, []))[1]
                    places += [record.version] if record.version not in places else []
        return sorted(found.values(), key=lambda pair: (pair[0].verdict is not Verdict.WRONG, pair[0].name))

    @property
    def about(self) -> str:
        """Which suite it is."""
        onnx = ", ".join(sorted({f"onnx {record.onnx}" for record in self.records}))
        rows = max((record.rows for record in self.records), key=len, default={})
        tests = len({row.base for row in rows.values()})
        return f"{TITLE} · {onnx} · {tests:,} tests as {len(rows):,} models (docs/operators.md)"

    def tables(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        """Yield the title, heads and rows of each table: counts, what is wrong, what changed."""
        shown = [v for v in HEADS if any(record.counts[v] for record in self.records)]
        rows = []
        for name, record in zip(self.names, self.records, strict=True):
            counts = [record.counts[v] for v in shown] + [len(record.flaky)]
            took = duration(record.facts["seconds"]["wall"])
            rows.append([name, *(str(count or "·") for count in counts), took])
        yield "Versions", ["", *(HEADS[v] for v in shown), "flaky", "took"], rows
        if self.bad_rows:
            rows = [[r.words, r.verdict.value, ", ".join(places), r.detail] for r, places in self.bad_rows]
            yield "Wrong, crashed or hung", ["case", "verdict", "versions", "what"], rows
        if self.changes:
            rows = [[*change.words, ", ".join(change.cases)] for change in self.changes]
            yield "What changed", ["versions", "change", "cases"], rows


def find_changes(before: OperatorRecord, after: OperatorRecord) -> list[Change]:
    """Return the cases whose verdict is of another kind, by kind; flaky and missing ones say nothing."""
    found: dict[str, list[str]] = {}
    words = {Verdict.CRASHED: "crashing", Verdict.HUNG: "hanging"}
    for name, row in after.rows.items():
        earlier, now = before.rows.get(name, row), row.verdict
        was, kind = earlier.verdict, ""
        if was is now or Verdict.NOTHING in {was, now} or earlier.before or row.before:
            continue
        if now in BAD:
            kind = f"newly {words.get(now, now.value)}"
        elif now in GOOD:
            kind = "fixed" if was in BAD else "" if was in GOOD else "newly accepted"
        elif was not in REFUSED:
            kind = "newly refused"
        if kind:
            found.setdefault(kind, []).append(name)
    ends = {"before": before.version, "after": after.version, "gpu": after.gpu}
    return [Change(**ends, kind=kind, cases=tuple(cases)) for kind, cases in found.items()]


def render_text(overview: Overview, width: int) -> str:
    """Return counts, what is wrong, and what changed, on one screen."""
    wrap = partial(textwrap.wrap, width=width, subsequent_indent="    ", break_on_hyphens=False)
    _, heads, rows = next(overview.tables())
    lines = [overview.about]
    lines += [TURNED_DOWN] if any(r.counts[v] for r in overview.records for v in REFUSED) else []
    lines += tabulate(rows, heads, tablefmt="plain").splitlines()
    bad: dict[tuple[str, str], Counter[str]] = {}
    for row, places in overview.bad_rows:
        key = (row.verdict.value, ", ".join(places))
        bad.setdefault(key, Counter())[row.operator or MODELS] += 1
    more = []
    for (verdict, at), operators in bad.items():
        words = [f"{name} ({counted(number, 'test')})" for name, number in operators.most_common()]
        more.append(f"{verdict} at {at}: {', '.join(words)}")
    more += [f"{', '.join(c.words)}: {join_some(c.cases, NAMED)}" for c in overview.changes]
    for number, text in enumerate(more):
        block = wrap(f"  {text}")
        if len(lines) + len(block) > HEIGHT - 2:
            lines.append(f"  … {counted(len(more) - number, 'more line')}")
            break
        lines += block
    return "\n".join([*lines, "Details: --full, or -o operators.html", ""])


def render_markdown(overview: Overview) -> str:
    """Return counts, what is wrong, what changed, and every operator, as GitHub's Markdown."""
    operators = [[name, *(mark.text for mark in marks)] for name, marks in overview.operators]
    found = [*overview.tables(), ("Operators", ["operator", *overview.names], operators)]
    parts = [f"# {TITLE}", plain(overview.about), TURNED_DOWN]
    for title, heads, rows in found:
        parts += [f"## {title}", table(heads, [[plain(cell) for cell in row] for row in rows])]
    return "\n\n".join(parts) + "\n"


def render_html(overview: Overview) -> str:
    """Return the page: a table of operators and versions, whose cells unfold to their cases."""
    body = templates().get_template("operators.html").render(
        title=TITLE, about=f"{overview.about} {TURNED_DOWN}", tables=list(overview.tables()),
        names=overview.names, operators=overview.operators,
    )  # fmt: skip
    return render_page(TITLE, [body], style=make_style())


def render_json(overview: Overview) -> str:
    """Return all that is known as JSON."""
    records, changes = ([asdict(one) for one in part] for part in (overview.records, overview.changes))
    return to_json({"schema": SCHEMA, "records": records, "changes": changes})
