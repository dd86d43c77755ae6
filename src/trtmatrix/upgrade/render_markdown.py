"""An upgrade report as GitHub Markdown for a pull request: the decision first, details folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trtmatrix.api.report import count_uses, met_behaviours, named_uses
from trtmatrix.api.types import ApiSection, ApiUse, ChangeKind
from trtmatrix.common.short import short
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.tables.html_pieces import count
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table
from trtmatrix.tables.plots import Series
from trtmatrix.upgrade.html_answers import EVIDENCE, capital, deciding, ratio_text, spread_text
from trtmatrix.upgrade.report import (
    CaseLine,
    CheckOutcome,
    FactLine,
    FindingLine,
    Lacking,
    ModelSection,
    PerformanceLine,
    Side,
    Source,
    Upgrade,
)

_FEW = 3
_MOST = 60
"""So many rows of a table are shown; a pull request is not the place for more."""

_CUT = "… {} left out: GitHub takes no longer text; the HTML page and the JSON have them."


def render_upgrade_markdown(upgrade: Upgrade) -> str:
    """Return the report; parts that would make it longer than GitHub takes are left out, and that is told."""
    parts = [*_head(upgrade)]
    for title, make in _SECTIONS:
        shown = [part for part in make(upgrade) if part]
        parts += [f"### {title}", *shown] if shown else []
    return _fitted([*parts, *_foot(upgrade)])


def _fitted(parts: Sequence[str]) -> str:
    """Join what fits, the shortest of what is folded first: details are what a reader misses least."""
    left = MOST_CHARACTERS - len(_CUT) - 8 - sum(len(part) + 2 for part in parts if not _folds(part))
    gone: set[int] = set()
    for number in sorted((n for n, part in enumerate(parts) if _folds(part)), key=lambda n: len(parts[n])):
        left -= len(parts[number]) + 2
        if left < 0:
            gone.add(number)
    kept = [part for number, part in enumerate(parts) if number not in gone]
    text = "\n\n".join([*kept, *([_CUT.format(count(len(gone), "fold"))] if gone else [])]) + "\n"
    return text if len(text) <= MOST_CHARACTERS else _cut(kept)


def _folds(part: str) -> bool:
    return part.startswith("<details>")


def _cut(parts: Sequence[str]) -> str:
    """Join what fits in its turn, of parts that are too long without any fold."""
    kept: list[str] = []
    left = MOST_CHARACTERS - len(_CUT) - 8
    for part in parts:
        if len(part) + 2 <= left:
            left -= len(part) + 2
            kept.append(part)
    return "\n\n".join([*kept, _CUT.format(count(len(parts) - len(kept), "part"))]) + "\n"


def _head(upgrade: Upgrade) -> Iterator[str]:
    product = PRODUCT_NAMES[upgrade.product]
    yield f"## {product} {plain(upgrade.before)} → {plain(upgrade.after)}: {capital(upgrade.decision.value)}"
    where = " · ".join(plain(part) for part in (upgrade.gpu, upgrade.gpu_note) if part)
    yield from (part for part in (f"**{plain(upgrade.summary)}**" if upgrade.summary else "", where) if part)
    if upgrade.reasons:
        yield bullets(map(_fact, upgrade.reasons[:_MOST])) + _more(len(upgrade.reasons))
    whole = [lack for lack in upgrade.lacking if lack.whole]
    for lack in whole or upgrade.lacking[:_FEW]:
        yield f"**Lacking:** {_lack(lack)}"
    others = [lack for lack in upgrade.lacking if not lack.whole][0 if whole else _FEW :]
    if others:
        yield fold(f"Lacking, one by one: {count(len(others), 'command')}", "\n\n".join(map(_lack, others)))


def _lack(lack: Lacking) -> str:
    return plain(lack.what) + (f"\n\n{fence(lack.command)}" if lack.command else "")


def _fact(fact: FactLine) -> str:
    known = " · ".join(part for part in (plain(fact.known), _sources(fact.sources)) if part)
    return f"**{fact.weight.value}**: {plain(fact.topic)} {plain(fact.text)}" + (
        f" ({known})" if known else ""
    )


def _sources(sources: Sequence[Source | None]) -> str:
    shown = [source for source in sources if source is not None and source.title + source.url]
    return "; ".join(link(s.url, s.title) if s.url else code(s.title) for s in shown)


def _findings(upgrade: Upgrade) -> Iterator[str]:
    if not upgrade.findings:
        return
    heads = ["finding", "change", upgrade.before, upgrade.after, "to the decision"]
    yield table(heads, map(_finding, upgrade.findings[:_MOST])) + _more(len(upgrade.findings))
    for finding in upgrade.findings[:_MOST]:
        parts = [bullets(_workarounds(finding)), _cases(finding.cases, upgrade)]
        shown = "\n\n".join(part for part in parts if part)
        if shown:
            yield fold(f"{finding.repro}: {count(len(finding.cases), 'case')}", shown)


def _finding(finding: FindingLine) -> list[str]:
    case = deciding(finding)
    upstream = link(finding.url, finding.upstream) if finding.url or finding.upstream else ""
    name = " · ".join(part for part in (code(finding.repro), plain(finding.title), upstream) if part)
    sides = [_side(case.before), _side(case.after)] if case else ["", ""]
    why = ": ".join(part for part in (f"**{finding.weight.value}**", plain(finding.why)) if part)
    return [name, f"**{finding.change.value}**", *sides, why]


def _side(side: Side) -> str:
    if side.verdict is None:
        said = "cannot be tried here" if side.absent else "no evidence"
        return said + (f", assumed to fail: {_sources([side.feared])}" if side.feared is not None else "")
    builds = (
        f"{side.failed} of {count(side.builds, 'build')} fail" if side.failed else count(side.builds, "build")
    )
    how = EVIDENCE[side.evidence] + (f", {side.cause.value}" if side.cause is not None else "")
    how += (f", {builds}" if side.builds else "") + (
        ", in doubt: a control came out wrong" if side.doubted else ""
    )
    return f"{plain(side.word or side.verdict.value)} ({how})"


def _workarounds(finding: FindingLine) -> Iterator[str]:
    for line in finding.workarounds:
        counts = "counts" if line.counts else "does not count"
        after = f": {_side(line.after)}" if line.after is not None else ""
        source = f" · {_sources([line.source])}" if line.source else ""
        yield f"work-around: {plain(line.what)} {code(line.case)} ({counts}{after}){source}"


def _cases(cases: Sequence[CaseLine], upgrade: Upgrade) -> str:
    if not cases:
        return ""
    rows = [
        [code(c.case), c.change.value, _side(c.before), _side(c.after),
         "; ".join(filter(None, (plain(c.why), plain(c.before.reason), plain(c.after.reason))))]
        for c in cases[:_MOST]
    ]  # fmt: skip
    return table(["case", "change", upgrade.before, upgrade.after, "why"], rows) + _more(len(cases))


def _more(total: int) -> str:
    return f"\n\n… and {total - _MOST} more" if total > _MOST else ""


def _gpu(upgrade: Upgrade) -> Iterator[str]:
    yield bullets(map(_fact, upgrade.gpu_and_driver))


def _engines(upgrade: Upgrade) -> Iterator[str]:
    yield bullets(map(_fact, upgrade.engines))


def _performance(upgrade: Upgrade) -> Iterator[str]:
    heads = ["case", "measure", upgrade.before, upgrade.after, "change", "clocks"]
    told = [line for line in upgrade.performance if line.told_apart and not line.why_not]
    others = [line for line in upgrade.performance if not line.told_apart or line.why_not]
    if told:
        yield table(heads, map(_figures, told[:_MOST])) + _more(len(told))
    if others:
        title = f"{count(len(others), 'figure')} within the spread, not comparable, or of one version only"
        yield fold(title, table(heads, map(_figures, others[:_MOST])) + _more(len(others)))


def _figures(line: PerformanceLine) -> list[str]:
    change = plain(ratio_text(line.ratio, told_apart=line.told_apart, why_not=line.why_not))
    return [
        code(f"{line.repro}/{line.case}"), plain(line.measure), plain(spread_text(line.before, line.unit)),
        plain(spread_text(line.after, line.unit)), change, plain(line.clocks),
    ]  # fmt: skip


def _api(upgrade: Upgrade) -> Iterator[str]:
    api = upgrade.api
    yield plain(api.lacking or api.stands_in)
    if api.code:
        folders = ", ".join(map(code, api.code))
        yield f"{folders}: {plain(count_uses(api))}."
    named = named_uses(api)
    if named:
        heads = ["where", "use", "what happens", "instead", "source"]
        yield table(heads, map(_use, named[:_MOST])) + _more(len(named))
    if api.unread:
        yield "Not read:\n\n" + bullets(f"{code(file)}: {plain(why)}" for file, why in api.unread[:_MOST])
    if met_behaviours(api):
        yield "Behaviour that changes under the same name:\n\n" + bullets(
            f"**{plain(b.topic)}**: {plain(b.text)} ({plain(b.when)}{_from(b.url, b.source)})"
            for b in met_behaviours(api)
        )
    yield from _changes(api)


def _use(use: ApiUse) -> list[str]:
    where = f"{use.file}:{f'cell {use.cell}, ' if use.cell else ''}{use.line}"
    sure = "" if use.sure else f", {use.certainty.value}: {use.why}".removesuffix(": ")
    change = use.change
    instead = "; ".join(
        filter(None, (code(change.replacement) if change.replacement else "", plain(change.note)))
    )
    return [
        code(where),
        code(change.name),
        plain(change.kind.value + sure),
        instead,
        _from(change.url, change.source)[2:],
    ]


def _from(url: str, source: str) -> str:
    return f"; {link(url, source)}" if url or source else ""


def _changes(api: ApiSection) -> Iterator[str]:
    for kind in ChangeKind:
        found = [change for change in api.changes if change.kind is kind]
        if found:
            rows = (
                [code(c.name), code(c.replacement) if c.replacement else "", plain(c.note)]
                for c in found[:_MOST]
            )
            shown = table(["name", "instead", "note"], rows) + _more(len(found))
            yield fold(f"{capital(kind.value)} in the API: {count(len(found), 'name')}", shown)


def _model(upgrade: Upgrade) -> Iterator[str]:
    model = upgrade.model
    if model is None:
        return
    pairs = [
        ("model", model.name),
        *model.facts,
        ("reference", model.reference),
        ("noise floor", model.floor),
    ]
    yield bullets(f"{plain(name)}: {plain(value)}" for name, value in pairs if value)
    if model.check is not None:
        yield _check(model.check)
    yield bullets(map(plain, model.troubles))
    yield _cases(model.cases, upgrade)
    yield from _figures_of_model(model)
    for layer in model.wrong_layers:
        where = " · ".join(code(part) for part in (layer.tensor, layer.node, layer.operator) if part)
        said = "; ".join(part for part in (where, plain(layer.error), plain(layer.why_not)) if part)
        steps = (
            "\n\n" + fold(count(len(layer.steps), "step"), bullets(map(plain, layer.steps)))
            if layer.steps
            else ""
        )
        yield f"First layer that goes wrong at {plain(layer.version)}: {said}{steps}"


def _check(check: CheckOutcome) -> str:
    said = {True: "accepted", False: "not accepted", None: "the script raised"}[check.passed]
    figure = f"{check.label or 'figure'} = {short(check.figure)}" if check.figure is not None else ""
    more = "; ".join(plain(part) for part in (figure, check.error) if part)
    return f"Your own acceptance: **{said}** {code(check.script)}" + (f": {more}" if more else "")


def _figures_of_model(model: ModelSection) -> Iterator[str]:
    if model.samples:
        heads = ["output", "version", "median", "90% below", "worst", "worst sample", "in"]
        yield table(heads, (
            [code(s.output), plain(s.version), short(s.median), short(s.p90), f"**{short(s.worst)}**",
             f"{s.worst_sample} of {s.samples}", plain("noise floors" if s.unit == "floors" else s.unit)]
            for s in model.samples[:_MOST]
        )) + _more(len(model.samples))  # fmt: skip
    if model.differences:
        heads = [
            "output",
            "largest |a − b|",
            "mean |a − b|",
            "‖a − b‖ / ‖a‖",
            "worst sample",
            "samples",
            "note",
        ]
        yield table(heads, (
            [code(d.output), short(d.max_abs), short(d.mean_abs), short(d.rel_l2), str(d.worst_sample),
             str(d.samples or ""), plain(_note(d))]
            for d in model.differences[:_MOST]
        )) + _more(len(model.differences))  # fmt: skip


def _note(found: Difference) -> str:
    lone = f"{found.nan} NaN or infinite at one version only" if found.nan else ""
    return "; ".join(part for part in (lone, found.note) if part)


def _series(upgrade: Upgrade) -> Iterator[str]:
    for title, series in (
        ("Error over the versions", upgrade.errors),
        ("Latency over the versions", upgrade.latencies),
    ):
        if series:
            yield fold(f"{title} ({series[0].unit})", _series_table(series))


def _series_table(series: Sequence[Series]) -> str:
    order = dict.fromkeys(point.version for line in series for point in line.points)
    known = {point.version for line in series for point in line.points if point.value is not None}
    versions = [version for version in order if version in known]
    rows = []
    for line in series[:_MOST]:
        at = {p.version: p.word or short(p.value) for p in line.points if p.value is not None}
        rows.append([code(line.label), *(plain(at.get(version, "")) for version in versions)])
    return table(["", *versions], rows) + _more(len(series))


def _not_looked_at(upgrade: Upgrade) -> Iterator[str]:
    yield bullets(map(plain, upgrade.not_looked_at))


_SECTIONS: tuple[tuple[str, Callable[[Upgrade], Iterator[str]]], ...] = (
    ("Findings", _findings),
    ("GPU and driver", _gpu),
    ("Performance", _performance),
    ("API", _api),
    ("Engines to rebuild", _engines),
    ("Your model", _model),
    ("Over the versions", _series),
    ("What was not looked at", _not_looked_at),
)


def _foot(upgrade: Upgrade) -> Iterator[str]:
    if upgrade.command:
        yield f"Made by\n\n{fence(upgrade.command)}"
    if upgrade.generated:
        yield f"Generated {plain(upgrade.generated)}."
