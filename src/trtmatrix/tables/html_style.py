"""The one style of all pages: light and dark, on paper, by keyboard, on a phone."""

from __future__ import annotations

from collections.abc import Mapping

from trtmatrix.tables.html_colours import DARK, LIGHT


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


_BASE = """
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, -apple-system,
  "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; overflow-wrap: break-word; }
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 1.5rem; } footer { padding-bottom: 3rem; }
main.full, header.full, footer.full { max-width: none; }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.5rem 0 .6rem; padding-top: 1.1rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 62rem; } ul { padding-left: 1.3rem; } li { margin: .15rem 0; }
a { color: var(--link); overflow-wrap: anywhere; text-underline-offset: .15em; }
code, pre { font: .875em/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
code { overflow-wrap: anywhere; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -999rem; } .skip:focus { left: 1rem; top: 1rem; z-index: 9;
  background: var(--page); padding: .5rem 1rem; }
.soft { color: var(--soft); font-weight: normal; } .small { font-size: .875rem; }
.nowrap { white-space: nowrap; }
.hear { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
[hidden] { display: none !important; }
"""

_TABLES = """
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0 1rem;
  position: relative; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .5rem .75rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem;
  border-top: 1px solid var(--line); }
thead th { background: var(--head); border-top: 0; font-weight: 600; white-space: nowrap; }
caption + thead th { border-top: 1px solid var(--line); }
tbody th { font-weight: normal; } tbody th:has(> code) { min-width: 10rem; }
thead th.num { text-align: right; } .num { text-align: right; white-space: nowrap; }
td.words { min-width: 14rem; } td.long { min-width: 20rem; }
td code.line { display: block; white-space: pre-wrap; }
tr.inner > td { padding: 0 .75rem .5rem; border-top: 0; }
summary { cursor: pointer; } details > summary { padding: .25rem 0; } .lines details > summary { padding: 0; }
.lines details ul { margin: .2rem 0; }
summary:hover { color: var(--link); }
dl.facts { display: grid; grid-template-columns: fit-content(16rem) minmax(0, 1fr); gap: .2rem 1rem;
  margin: .5rem 0; } dl.facts dt { color: var(--soft); } dl.facts dd { margin: 0; min-width: 0; }
.chip { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .82rem;
  font-weight: 600; white-space: nowrap; background: var(--plain-back); color: var(--ink); }
.chip.good { background: var(--good-back); color: var(--good); }
.chip.bad { background: var(--bad-back); color: var(--bad); }
.chip.warn { background: var(--warn-back); color: var(--warn); }
.chip.unsure { background: var(--unsure-back); color: var(--unsure); }
pre.command { position: relative; margin: .3rem 0 .8rem; padding: .6rem .8rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
.copy { margin: 0 0 .3rem .6rem; float: right; } button { font: .85rem/1.4 system-ui, sans-serif;
  padding: .2rem .7rem; border: 1px solid var(--edge); border-radius: 6px; background: var(--page);
  color: var(--ink); cursor: pointer; } button:hover { background: var(--head); }
"""

_DECISION = """
.decision { border: 1px solid var(--line); border-left: .6rem solid var(--soft); border-radius: 8px;
  padding: 1.1rem 1.4rem; margin: 1rem 0; background: var(--card); }
.decision .answer { font-size: clamp(1.9rem, 6vw, 3rem); line-height: 1.1; font-weight: 750;
  margin: 0 0 .4rem; letter-spacing: -.01em; border: 0; padding: 0; }
.decision .summary { font-size: 1.1rem; max-width: 60rem; }
.decision.good { background: var(--good-back); border-left-color: var(--good); }
.decision.good .answer { color: var(--good); }
.decision.bad { background: var(--bad-back); border-left-color: var(--bad); }
.decision.bad .answer { color: var(--bad); }
.decision.warn { background: var(--warn-back); border-left-color: var(--warn); }
.decision.warn .answer { color: var(--warn); }
.decision.unsure { background: var(--unsure-back); border-left-color: var(--unsure); }
.decision.unsure .answer { color: var(--unsure); }
.lines { list-style: none; padding: 0; margin: .5rem 0; }
.lines > li { display: grid; grid-template-columns: 12rem minmax(0, 1fr); gap: .1rem 1rem;
  padding: .5rem 0; border-top: 1px solid var(--line); } .lines > li:first-child { border-top: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; padding: 0; }
figure { margin: .8rem 0 1.2rem; } figcaption { font-weight: 600; margin-bottom: .3rem; }
@media (max-width: 600px) {
  main, header, footer { padding-left: 1rem; padding-right: 1rem; } .decision { padding: .9rem 1rem; }
  table.stacked, .stacked tbody, .stacked tr, .stacked td, .stacked th { display: block; }
  .stacked thead { position: absolute; clip-path: inset(50%); height: 1px; overflow: hidden; }
  .stacked tbody tr { border-top: 2px solid var(--line); padding: .4rem 0; }
  .stacked tbody tr.inner { border-top: 0; padding-top: 0; }
  .stacked tbody tr.inner > td { padding: 0 .75rem; }
  .stacked td, .stacked tbody th { border: 0; padding: .15rem .75rem; text-align: left; white-space: normal; }
  .stacked td[data-label] { display: grid; grid-template-columns: 6.5rem minmax(0, 1fr); gap: .5rem; }
  .stacked td[data-label]::before { content: attr(data-label); color: var(--soft); font-size: .85rem; }
  .stacked td:empty { display: none; } td.words, .name { min-width: 0; }
  .lines > li, dl.facts { grid-template-columns: minmax(0, 1fr); } dl.facts dd { margin-bottom: .4rem; }
}
"""

_PLOTS = """
svg.chart { display: block; width: 100%; min-width: 46rem; max-width: 66rem; height: auto; }
.plot text { font: 12px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  fill: var(--ink); }
.plot .tick { fill: var(--soft); } .plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .floor { stroke: var(--ink); stroke-width: 1.5; }
.plot .limit { stroke: var(--edge); stroke-width: 1; stroke-dasharray: 5 4; }
.plot .path { fill: none; stroke: var(--mark-line); stroke-width: 1; opacity: .55; }
.plot .path.told { stroke-width: 1.75; opacity: 1; } .plot .spread { stroke: var(--mark-line); }
.plot .good { fill: var(--mark-good); stroke: var(--page); stroke-width: .75; }
.plot .bad { stroke: var(--mark-bad); stroke-width: 2.25; fill: none; }
.plot .other { stroke: var(--mark-other); stroke-width: 1.75; fill: var(--page); }
.plot .must { stroke: var(--mark-line); stroke-width: 1.5; fill: none; }
.plot .marked { font-weight: 700; } .plot .leader { stroke: var(--line); }
svg.key { width: 1em; height: 1em; vertical-align: -.1em; }
"""

_PRINT = """
@page { margin: 14mm; }
@media print {
  :root { LIGHT }
  body { font-size: 10pt; } main, header, footer { max-width: none; padding: 0; }
  .wide { overflow: visible; border: 0; } table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; overflow-wrap: anywhere; }
  th, td, thead th, .nowrap, .num, .chip { white-space: normal; }
  thead th { position: static !important; } tbody th { position: static !important; }
  td.words, td.long { min-width: 0; } svg.chart { min-width: 0; }
  tr, figure, .lines > li, .decision { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  nav, .skip, .copy, form.filter > div { display: none; } form.filter { border: 0; padding: 0; }
  details.print::details-content { content-visibility: visible; display: block; height: auto; }
  .report .sources a::after { content: " <" attr(href) ">"; color: var(--soft); }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def make_style(*more: str) -> str:
    """Return the style of a page, with what only that page needs."""
    light, dark = _variables(LIGHT), _variables(DARK)
    themes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    paper = _PRINT.replace("LIGHT", f"color-scheme: light; {light}")
    return "\n".join(part.strip() for part in (themes, _BASE, _TABLES, _DECISION, _PLOTS, *more, paper))
