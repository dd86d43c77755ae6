"""What versions make of ONNX's tests: counts, operators, what changed; as text, Markdown, page and JSON."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from tabulate import tabulate

from trtmatrix.common.jsontext import to_json
from trtmatrix.common.words import counted, duration
from trtmatrix.operators.records import OperatorRecord, Row
from trtmatrix.operators.verdicts import Verdict
from trtmatrix.suite.model import Product, release_of
from trtmatrix.tables.html_page import make_style, render_page, templates
from trtmatrix.tables.markdown import plain, table

SCHEMA = 1
TITLE = "ONNX's tests of its operators"
HEIGHT, NAMED = 40, 4
"""Lines of a screen, and how many cases of a change are named on it."""
REFUSED = "Refused by the parser, by the builder, at run time, or not fed: the engine takes no such inputs."
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
    """What a version makes of an operator's cases. ``opsets``: the lowest and highest that is right."""

    counts: Mapping[Verdict, int]
    opsets: tuple[int, int] | None

    @property
    def tone(self) -> str:
        """How bad it is: ``bad``, ``warn`` (something is refused), ``good``; nothing where none is known."""
        if any(verdict.is_bad for verdict in self.counts):
            return "bad"
        if any(not verdict.is_good for verdict in self.counts):
            return "warn"
        return "good" if self.counts else ""

    @property
    def text(self) -> str:
        """Counts in words, the worst first: ``WRONG 2, refused 1, right 9 (opset 9-20)``."""
        words = [f"{HEADS[v]} {self.counts[v]}" for v in Verdict if v.is_bad and v in self.counts]
        words += [f"refused {n}"] if (n := sum(c for v, c in self.counts.items() if v.is_refused)) else []
        words += [f"no result {self.counts[Verdict.NOTHING]}"] if Verdict.NOTHING in self.counts else []
        words += [f"{HEADS[v]} {self.counts[v]}" for v in Verdict if v.is_good and v in self.counts]
        low, high = self.opsets or (0, 0)
        span = f" (opset {low}{f'-{high}' if high > low else ''})" if self.opsets else ""
        return ", ".join(words) + span or "·"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A case that came out otherwise at the later of two versions of one product, on one GPU."""

    before: OperatorRecord
    after: OperatorRecord
    kind: str
    row: Row
    was: Row


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The records that are shown, by product and release."""

    records: tuple[OperatorRecord, ...]

    @cached_property
    def operators(self) -> list[tuple[str, list[Mark]]]:
        """Each operator with its mark at each version; those with something wrong first."""
        names = {row.operator or MODELS for record in self.records for row in record.rows.values()}
        found = [(name, [make_mark(record, name) for record in self.records]) for name in names]
        worst = {"bad": 0, "warn": 1, "good": 2, "": 3}
        return sorted(found, key=lambda pair: (min(worst[mark.tone] for mark in pair[1]), pair[0]))

    @cached_property
    def changes(self) -> list[Change]:
        """What changed from each release to the next that has a record of the same suite and GPU."""
        return [
            change for before, after in pairwise(self.records)
            if (before.product, before.gpu, before.suite) == (after.product, after.gpu, after.suite)
            for change in find_changes(before, after)
        ]  # fmt: skip

    @property
    def names(self) -> list[str]:
        """The heads of the columns: versions, with the GPU where there are several."""
        several = len({r.gpu for r in self.records if r.product is Product.TENSORRT}) > 1
        return [r.version + (f" ({r.gpu})" if several else "") for r in self.records]

    def bad_rows(self) -> Iterator[tuple[Row, list[str]]]:
        """Yield each case that is wrong, crashes or hangs, with the versions; forms of one test once."""
        found: dict[tuple[str, Verdict], tuple[Row, list[str]]] = {}
        for record in self.records:
            for row in record.rows.values():
                if row.result.verdict.is_bad:
                    places = found.setdefault((row.base, row.result.verdict), (row, []))[1]
                    places += [record.version] if record.version not in places else []
        yield from sorted(
            found.values(), key=lambda pair: (pair[0].result.verdict.value != "wrong", pair[0].name)
        )


def make_overview(records: Sequence[OperatorRecord]) -> Overview:
    """Return what is to be shown of records."""
    order = sorted(records, key=lambda r: (r.product.value, r.gpu, release_of(r.version)))
    return Overview(records=tuple(order))


def make_mark(record: OperatorRecord, operator: str) -> Mark:
    """Return what a version makes of an operator."""
    rows = [row for row in record.rows.values() if (row.operator or MODELS) == operator]
    good = [row.opset for row in rows if row.result.verdict.is_good]
    counts = Counter(row.result.verdict for row in rows)
    return Mark(counts=counts, opsets=(min(good), max(good)) if good and operator != MODELS else None)


def find_changes(before: OperatorRecord, after: OperatorRecord) -> Iterator[Change]:
    """Yield the cases whose verdict is of another kind; flaky ones say nothing."""
    for name, row in after.rows.items():
        was = before.rows.get(name)
        if was is None or was.result.before or row.result.before:
            continue
        if kind := _kind_of_change(was.result.verdict, row.result.verdict):
            yield Change(before=before, after=after, kind=kind, row=row, was=was)


def _kind_of_change(was: Verdict, now: Verdict) -> str:
    """Return what a change is called; nothing where it is none, or a result is missing."""
    if Verdict.NOTHING in {was, now} or _group(was) == _group(now):
        return ""
    if now.is_bad:
        return f"newly {WORDS.get(now, now.value)}"
    if was.is_bad:
        return "fixed" if now.is_good else "newly refused"
    return "newly refused" if now.is_refused else "newly accepted"


WORDS = {Verdict.CRASHED: "crashing", Verdict.HUNG: "hanging"}


def _group(verdict: Verdict) -> str:
    return "good" if verdict.is_good else "refused" if verdict.is_refused else verdict.value


# --- Text, for a screen


def render_text(overview: Overview, width: int, *, full: bool = False) -> str:
    """Return counts, what is wrong, and what changed, on one screen; ``full``: every operator and case."""
    wrap = partial(textwrap.wrap, width=width, subsequent_indent="    ", break_on_hyphens=False)
    lines = [
        *_suites(overview),
        *tabulate(_counts(overview), headers="firstrow", tablefmt="plain").splitlines(),
    ]
    more = [wrap(f"  {verdict} at {places}: {', '.join(told)}") for (verdict, places), told in _bad(overview)]
    for (kind, before, after), names in _changed(overview).items():
        told = names if full else names[:NAMED]
        rest = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
        more.append(
            wrap(f"  {before} to {after}, {counted(len(names), 'case')} {kind}: {', '.join(told)}{rest}")
        )
    if full:
        for row, places in overview.bad_rows():
            at = f"{row.result.verdict.value} at {', '.join(places)}"
            more.append(wrap(f"  {row.words}: {at}: {row.result.detail}"))
        marks = [[name, *(mark.text for mark in marks)] for name, marks in overview.operators]
        heads = ["operator", *overview.names]
        more.append(["", *tabulate(marks, headers=heads, tablefmt="plain").splitlines()])
    for number, block in enumerate(more):
        if not full and len(lines) + len(block) > HEIGHT - 2:
            lines.append(f"  … {counted(len(more) - number, 'more line')}")
            break
        lines += block
    lines += [] if full else ["Details: --full, or -o operators.html"]
    return "\n".join(lines) + "\n"


def _bad(overview: Overview) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Yield verdicts and versions with the operators concerned: such as ``GridSample (4 tests)``."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row, places in overview.bad_rows():
        key = (row.result.verdict.value, ", ".join(places))
        found.setdefault(key, Counter())[row.operator or MODELS] += 1
    for key, operators in found.items():
        yield key, [f"{name} ({counted(number, 'test')})" for name, number in operators.most_common()]


def _suites(overview: Overview) -> list[str]:
    """Say which suite it is, and what the columns mean."""
    onnx = ", ".join(sorted({f"onnx {record.onnx}" for record in overview.records}))
    most = max(overview.records, key=lambda record: len(record.rows), default=None)
    tests = len({row.base for row in most.rows.values()}) if most else 0
    cases = len(most.rows) if most else 0
    return [
        f"{TITLE} · {onnx} · {tests:,} tests as {cases:,} models (docs/operators.md)",
        REFUSED
        if any(v.is_refused and record.counts[v] for record in overview.records for v in Verdict)
        else "",
    ]


def _counts(overview: Overview) -> list[list[object]]:
    """Return the counts of each version: the heads, then a line a version."""
    shown = [v for v in HEADS if any(record.counts[v] for record in overview.records)]
    rows: list[list[object]] = [["", *(HEADS[v] for v in shown), "flaky", "took"]]
    for name, record in zip(overview.names, overview.records, strict=True):
        took = duration(record.facts["seconds"]["wall"])
        rows.append([name, *(record.counts[v] or "·" for v in shown), len(record.flaky) or "·", took])
    return rows


def _changed(overview: Overview) -> dict[tuple[str, str, str], list[str]]:
    """Return what changed: by kind and versions, the names of the cases."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for change in overview.changes:
        key = (change.kind, change.before.version, change.after.version)
        found.setdefault(key, []).append(change.row.name)
    return found


# --- Markdown, page, JSON


def render_markdown(overview: Overview) -> str:
    """Return counts, operators that are not right everywhere, and what is wrong, as GitHub's Markdown."""
    counts = [[str(cell) for cell in row] for row in _counts(overview)]
    bad = [
        [plain(row.words), row.result.verdict.value, ", ".join(places), plain(row.result.detail)]
        for row, places in overview.bad_rows()
    ]
    changed = [
        [f"{b} to {a}", kind, plain(", ".join(names))] for (kind, b, a), names in _changed(overview).items()
    ]
    operators = [[plain(name), *(mark.text for mark in marks)] for name, marks in overview.operators]
    parts = [f"# {TITLE}", *_suites(overview), table(counts[0], counts[1:])]
    parts += ["## Wrong, crashed or hung", table(["case", "verdict", "versions", "what"], bad)] if bad else []
    parts += ["## Changes", table(["versions", "change", "cases"], changed)] if changed else []
    parts += ["## Operators", table(["operator", *overview.names], operators)]
    return "\n\n".join(parts) + "\n"


def render_html(overview: Overview, *, generated: str) -> str:
    """Return the page: a table of operators and versions, whose cells unfold to their cases."""
    details = [
        (name, [(mark, _cases(record, name)) for record, mark in zip(overview.records, marks, strict=True)])
        for name, marks in overview.operators
    ]
    body = templates().get_template("operators.html").render(
        title=TITLE, generated=generated, suites=_suites(overview), names=overview.names, operators=details,
        counts=_counts(overview), bad=list(overview.bad_rows()), changed=_changed(overview),
    )  # fmt: skip
    return render_page(TITLE, [body], style=make_style())


def _cases(record: OperatorRecord, operator: str) -> list[tuple[str, str, list[str]]]:
    """Return the cases of an operator that are not right, by verdict and message: verdict, message, names.

    Numbers in messages, such as a node's, do not tell them apart.
    """
    found: dict[tuple[str, str], tuple[str, str, list[str]]] = {}
    for row in record.rows.values():
        result = row.result
        if (row.operator or MODELS) == operator and not result.verdict.is_good:
            key = (result.verdict.value, re.sub(r"\d+", "", result.detail)[:ALIKE])
            found.setdefault(key, (result.verdict.value, result.detail, []))[2].append(row.name)
    return list(found.values())


def render_json(overview: Overview) -> str:
    """Return all that is known as JSON."""
    return to_json({
        "schema": SCHEMA, "records": [_record_json(record) for record in overview.records],
        "changes": [
            {
                "from": change.before.version, "to": change.after.version, "gpu": change.after.gpu,
                "kind": change.kind, "case": change.row.name, "was": change.was.result.verdict.value,
                "is": change.row.result.verdict.value,
            }
            for change in overview.changes
        ],
    })  # fmt: skip


def _record_json(record: OperatorRecord) -> dict[str, Any]:
    cases = {
        name: {
            "operator": row.operator, "opset": row.opset, "verdict": row.result.verdict.value,
            "detail": row.result.detail, "seconds": row.result.seconds,
            "before": row.result.before.value if row.result.before else None,
        }
        for name, row in record.rows.items()
    }  # fmt: skip
    return {
        "version": record.version, "gpu": record.gpu, "onnx": record.onnx, "suite": record.suite,
        "facts": dict(record.facts), "cases": cases,
        "counts": {verdict.value: number for verdict, number in record.counts.items()},
    }  # fmt: skip
