"""An upgrade report as one HTML page: the decision first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from trtmatrix.api.page import render_api
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.tables.html_page import COPY, make_style, render_page
from trtmatrix.tables.html_pieces import (
    GLYPHS,
    Row,
    Words,
    code,
    command,
    count,
    fold,
    items,
    section,
    table,
    text,
)
from trtmatrix.tables.plots import Plot, render_figure
from trtmatrix.upgrade.html_answers import (
    DECISIONS,
    capital,
    fact_items,
    ratio_text,
    spread_text,
)
from trtmatrix.upgrade.html_findings import render_findings
from trtmatrix.upgrade.html_model_part import render_model
from trtmatrix.upgrade.report import Lacking, PerformanceLine, Series, Upgrade

_FEW = 12
"""So many rows are shown unfolded."""

_FOLDED = 3
"""From so many commands on they fold away where one stands for all."""

_STYLE = """
.name { min-width: 15rem; }
ul.tally { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; list-style: none; padding: 0; }
"""


def render_upgrade_html(upgrade: Upgrade) -> str:
    """Return the page; it loads nothing, and what the report does not have is not shown."""
    sections = list(_sections(upgrade))
    title = f"{PRODUCT_NAMES[upgrade.product]} {upgrade.before} → {upgrade.after}"
    body = (
        '<a class="skip" href="#decision">To the decision</a>',
        f'<header>\n<h1>{text(title)}</h1>\n<p class="soft">{_where(upgrade)}</p>\n</header>',
        '<main class="report">',
        _decision(upgrade),
        _contents(sections),
        *(markup for _, _, markup in sections),
        "</main>",
        _foot(upgrade),
    )
    whole = f"{title}: {upgrade.decision.value}"
    return render_page(whole, (part for part in body if part), style=make_style(_STYLE), script=COPY)


def _where(upgrade: Upgrade) -> str:
    return " · ".join(text(part) for part in (upgrade.gpu, upgrade.gpu_note) if part)


def _decision(upgrade: Upgrade) -> str:
    kind = DECISIONS[upgrade.decision]
    sign = f'<span aria-hidden="true">{GLYPHS[kind]}</span> '
    answer = f'<h2 class="answer" id="decision-h">{sign}{text(capital(upgrade.decision.value))}</h2>'
    summary = f'<p class="summary">{text(upgrade.summary)}</p>' if upgrade.summary else ""
    reasons = items(fact_items(upgrade.reasons), "lines")
    told = f"<h3>Why</h3>\n{reasons}" if reasons else ""
    return (
        f'<section id="decision" aria-labelledby="decision-h">\n<div class="decision {kind}">\n'
        f"{answer}\n{summary}\n</div>\n{told}\n</section>"
    )


def _sections(upgrade: Upgrade) -> Iterator[tuple[str, str, str]]:
    """Yield what there is to show: the section's id, its title, its markup."""
    before, after = upgrade.before, upgrade.after
    made = (
        ("lacking", "What is lacking", [_lacking(upgrade)]),
        ("findings", "Findings", [render_findings(upgrade.findings, before, after)]),
        ("gpu", "GPU and driver", [items(fact_items(upgrade.gpu_and_driver), "lines")]),
        ("performance", "Performance", [_performance(upgrade)]),
        ("api", "Your code and the API" if upgrade.api.code else "The API",
         list(render_api(upgrade.api, before, after))),
        ("engines", "Engines to rebuild", [items(fact_items(upgrade.engines), "lines")]),
        ("model", "Your model", list(render_model(upgrade.model, before, after)) if upgrade.model else []),
        ("plots", "Over the versions", list(_plots(upgrade))),
        ("not-looked-at", "What was not looked at", [items(map(text, upgrade.not_looked_at))]),
    )  # fmt: skip
    for name, title, parts in made:
        if markup := section(name, title, *parts):
            yield name, title, markup


def _contents(sections: list[tuple[str, str, str]]) -> str:
    links = items(f'<a href="#{name}">{text(title)}</a>' for name, title, _ in sections)
    return f'<nav aria-label="Contents">\n{links}\n</nav>' if links else ""


def _lacking(upgrade: Upgrade) -> str:
    """Return each with its command; where one stands for all, the others fold away."""
    whole = [_lack(lack) for lack in upgrade.lacking if lack.whole]
    others = [_lack(lack) for lack in upgrade.lacking if not lack.whole]
    if not whole or len(others) < _FOLDED:
        return "\n".join(whole + others)
    return "\n".join([*whole, fold(f"Or one by one: {count(len(others), 'command')}", "\n".join(others))])


def _lack(lack: Lacking) -> str:
    return f"<div><p>{text(lack.what)}</p>{command(lack.command)}</div>"


def _performance(upgrade: Upgrade) -> str:
    """Return the figures that changed beyond their spread, and the others folded: there may be hundreds."""
    heads = ["case", "measure", upgrade.before, upgrade.after, "change", "clocks"]
    told = [line for line in upgrade.performance if line.told_apart and not line.why_not]
    others = [line for line in upgrade.performance if not line.told_apart or line.why_not]
    parts = []
    if told:
        parts.append(f"<p>{count(len(told), 'figure')} changed by more than the spread.</p>")
        parts.append(table("Figures that changed", heads, map(_figures, told)))
    if others:
        title = f"{count(len(others), 'figure')} within the spread, not comparable, or of one version only"
        listed = table("Other figures", heads, map(_figures, others))
        parts.append(fold(title, listed, opened=len(others) <= _FEW))
    return "\n".join(parts)


def _figures(line: PerformanceLine) -> Row:
    change = ratio_text(line.ratio, told_apart=line.told_apart, why_not=line.why_not)
    shown = f"<strong>{text(change)}</strong>" if line.told_apart and not line.why_not else text(change)
    return (
        code(f"{line.repro}/{line.case}"), text(line.measure), text(spread_text(line.before, line.unit)),
        text(spread_text(line.after, line.unit)), Words(shown), Words(text(line.clocks)),
    )  # fmt: skip


def _plots(upgrade: Upgrade) -> Iterator[str]:
    for name, title, series in (
        ("errors", "Error over the versions, against the noise floor", upgrade.errors),
        ("latencies", "Latency over the versions", upgrade.latencies),
    ):
        for number, (unit, mine) in enumerate(_by_unit(series).items()):
            marked = frozenset({upgrade.before, upgrade.after})
            plot = Plot(name=f"{name}{number or ''}", title=title, unit=unit, series=mine, marked=marked)
            yield render_figure(plot)


def _by_unit(series: tuple[Series, ...]) -> dict[str, tuple[Series, ...]]:
    units = dict.fromkeys(line.unit for line in series)
    return {unit: tuple(line for line in series if line.unit == unit) for unit in units}


def _foot(upgrade: Upgrade) -> str:
    made = f"Generated {upgrade.generated}." if upgrade.generated else ""
    again = f"<p>Made by</p>{command(upgrade.command)}" if upgrade.command else ""
    code_ = f"<p>Exit code {int(upgrade.decision.exit_code)}.</p>"
    return f'<footer class="soft small">\n<p>{text(made)}</p>\n{again}\n{code_}\n</footer>'
