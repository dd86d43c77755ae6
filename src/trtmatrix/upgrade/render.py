"""An upgrade report for a terminal (one screen, or all of it), as GitHub Markdown, and as one page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from tabulate import tabulate

from trtmatrix.common.text import counted, one_line, short
from trtmatrix.judge.entry import PRODUCT_NAMES
from trtmatrix.suite.model import Evidence
from trtmatrix.tables import page
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table
from trtmatrix.tables.table import shorten
from trtmatrix.upgrade.document import (
    COLUMNS,
    FIGURES,
    TONES,
    Block,
    Table,
    make_sections,
    model_table,
    words_of,
)
from trtmatrix.upgrade.report import Change, Decision, FactLine, Side, Source, Upgrade, Weight

MOST_BARS, BAR_ROOM = 20, 300
"""So many latencies are drawn in a page, and the length of the longest bar."""
WIDTH = 100
"""Columns of the full report; that of one screen has those of the terminal, from 80 to 160."""
HEIGHT, STEPS, ROWS, REASONS = 40, 15, 21, 5
"""Lines of a screen, the most of commands that would settle it and of models, and room for reasons."""
_BRIEF = tuple(name for name in COLUMNS if name != "build time")
_LOOKS: Sequence[tuple[Sequence[str], int, bool]] = (
    (COLUMNS, 24, False), (COLUMNS, 24, True),
    *((_BRIEF[:n], 18, True) for n in (3, 2, 1)), (_BRIEF[:1], 14, True),
)  # fmt: skip
"""Looks of a row of a model, the roomiest first: its measures, a cell's most letters, whether in brief."""
_MARGIN = 12
_MOST = 60
"""So many rows of a table are in Markdown; a pull request is not the place for more."""
_CUT = "… {} left out: GitHub takes no longer text; the HTML page and the JSON have them."


def _titles(upgrade: Upgrade) -> tuple[str, str, str, str]:
    """Return the move, the GPU, the answer, and the exit code, in words: also why it is not the answer's."""
    ends = (version.removeprefix(f"{upgrade.product.value}-") for version in (upgrade.before, upgrade.after))
    where = " · ".join(part for part in (upgrade.gpu.removeprefix("CPU"), upgrade.gpu_note) if part)
    answer, why = upgrade.decision.value[0].upper() + upgrade.decision.value[1:], ""
    if upgrade.exit_code is not upgrade.decision.exit_code:
        mistaken = any(model.mistake for model in upgrade.models)
        why = ": a mistake to mend first" if mistaken else ": your code must change first"
        if upgrade.baseline is not None and not upgrade.baseline.new:
            why = ": no worse than accepted"
    exit_code = f"exit code {int(upgrade.exit_code)}{why}"
    return f"{PRODUCT_NAMES[upgrade.product]} {' → '.join(ends)}", where, answer, exit_code


def render_text(upgrade: Upgrade) -> str:
    """Return the whole report; no line but an address is wider than 100 columns."""
    parts = [[*_head(upgrade, WIDTH), *_wrap(upgrade.summary, 2, 2)]]
    why = [line for reason in upgrade.reasons for line in _fact_lines(reason, marked=True)]
    parts += [["Why", *why]] if why else []
    for section in make_sections(upgrade):
        lines = [line for block in section.blocks for line in _block_lines(block)]
        parts += [[section.title, *lines]] if lines else []
    facts = (*upgrade.reasons, *upgrade.gpu_and_driver, *upgrade.engines)
    pages = {source.url: source.title for fact in facts for source in fact.sources if source.url}
    lines = [f"  {one_line(title)}: {one_line(url)}" for url, title in pages.items()]
    parts += [["Sources", *lines]] if lines else []
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _head(upgrade: Upgrade, width: int, most: int = 99) -> list[str]:
    """Return the move and the GPU in at most so many lines, and the verdict last."""
    title, where, answer, exit_code = _titles(upgrade)
    return [*_wrap(f"{title} · {where}", width=width, most=most), "", f"{answer.upper()}  ({exit_code})"]


def _block_lines(block: Block) -> Iterator[str]:
    match block:
        case FactLine():
            yield from _fact_lines(block, marked=block.weight is not Weight.NOTE)
        case Table(rows=rows, heads=heads, brief=brief):
            yield from _wrap(f"{block.label}:", 2) if rows[:brief] else ()
            for first, *others in rows[:brief]:
                named = zip(heads[1:], others, strict=True)
                told = [(head, words_of(v), type(v) in (int, float) or head in COLUMNS) for head, v in named]
                cells = [f"{head} " * headed + w for head, w, headed in told if not (headed and w == "·")]
                yield from _wrap(f"{words_of(first)}: {' · '.join(filter(None, cells))}", 4, 6)
            if 0 < brief < len(rows):
                yield f"    … {len(rows) - brief} more: -o report.html"
        case str() if "\n" in block:
            yield from (f"  {line}".rstrip() for line in block.splitlines())
        case str():
            yield from _break_command(block, WIDTH, "    ")


def _fact_lines(fact: FactLine, width: int = WIDTH, *, marked: bool, most: int = 99) -> list[str]:
    """Return a fact with its mark, if it is to have one, and with how it is known and where to read it."""
    titles = list(dict.fromkeys(s.title.split(": ")[0].split("; ")[0] for s in fact.sources if s.url))[:2]
    known = fact.known if fact.known != Evidence.NONE.value else ""
    how = ": ".join(part for part in (known, "; ".join(titles)) if part)
    text = (f"{fact.topic}: " if fact.topic else "") + fact.text + (f" [{how}]" if how else "")
    mark = f"{fact.weight.value.removeprefix('needs a '):<{_MARGIN}}" if marked else ""
    return _wrap(text, 2, 2 + (_MARGIN if mark else 2), mark, width=width, most=most)


def _wrap(
    text: str, first: int = 0, later: int = 2, mark: str = "", *, width: int = WIDTH, most: int = 999
) -> list[str]:
    """Break a text into lines, after a mark; ids and addresses stay whole where they fit.

    Where it is cut to the first lines, the last of these says so.
    """
    lines = textwrap.wrap(
        mark + one_line(text, 2000), width, initial_indent=" " * first, subsequent_indent=" " * later,
        break_on_hyphens=False,
    )  # fmt: skip
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    return [
        *lines[: most - 1],
        f"{last if len(last) <= width - 2 else last[: width - 1].rpartition(' ')[0]} …",
    ]


def _break_command(command: str, width: int, indent: str) -> Iterator[str]:
    """Break a command at its options, and a long list at its commas, so that it can be pasted."""
    line = ""
    for number, word in enumerate(one_line(command, 4000).split(" --")):
        part = f"--{word}" if number else word
        if line and len(indent) + len(line) + len(part) + 3 > width:
            yield f"{indent}{line} \\"
            line, indent = "", f"{indent}  " if number == 1 or not indent.endswith("      ") else indent
        line = f"{line} {part}".strip()
        while len(indent) + len(line) + 2 > width and "," in line[: width - len(indent) - 1]:
            end = line.rindex(",", 0, width - len(indent) - 1) + 1
            yield f"{indent}{line[:end]}\\"
            line, indent = line[end:], ""  # a blank would end the word
    yield f"{indent}{line}"


def render_screen(upgrade: Upgrade, width: int) -> str:
    """Return the answer on one screen: at most 40 lines of ``width`` columns.

    The verdict and its reasons come first, then what it rests on, then the commands that would settle it;
    the verdict comes again last.
    """
    wrap, several = partial(_wrap, width=width), len(upgrade.models) > 1
    title_and_verdict = _head(upgrade, width, 2)
    head = [*title_and_verdict, *wrap(upgrade.summary, 2, 2, most=4)]
    rows, below, since = list[str](), list[str](), list[str]()
    if (base := upgrade.baseline) is not None:
        new = "; ".join(base.new) or "nothing"
        told = f"Since {base.file}: {len(base.gone)} gone, {len(base.same)} as before, new: {new}"
        since = ["", *wrap(told, most=4)]
    if several:
        rows = ["", *_model_rows(upgrade, width, ROWS - len(since))]
    else:
        below = ["", "What it rests on", *wrap(_count_evidence(upgrade), 2, 4, most=3)]
        left = f"Not looked at: {' '.join(upgrade.not_looked_at)}"
        below += wrap(left, 2, 4, most=2) if upgrade.not_looked_at else []
    below += since
    title, steps = "To settle it", []
    for item in upgrade.lacking if len(rows) < STEPS else ():
        command = _break_command(item.command, width, "    ") if item.command else ()
        steps.append([*wrap(item.what, 2, 4, most=2), *command])
    if not steps and upgrade.decision in {Decision.GO, Decision.GO_WITH_WORKAROUNDS} and upgrade.engines:
        title, steps = "Before you move", [wrap(upgrade.engines[0].text, 2, 4)]
    room = HEIGHT - len(head) - len(rows) - len(below) - 3 - REASONS
    below += [*_fill(title, steps, min(STEPS, room), "more command"), ""]
    below += ["All of it: --full, or -o report.html (.md, .json)", title_and_verdict[-1]]
    most = 1 if several else 2
    why = [_fact_lines(reason, width, marked=True, most=most) for reason in upgrade.reasons]
    room = HEIGHT - len(head) - len(rows) - len(below)
    return "\n".join([*head, *rows, *_fill("Why", why, room, "more reason"), *below]) + "\n"


def _model_rows(upgrade: Upgrade, width: int, most: int) -> Iterator[str]:
    """Yield a line a model, the worst first, in the roomiest look that fits, and what its figures are."""
    for columns, limit, brief in _LOOKS:
        models = model_table(upgrade, columns, brief=brief)
        shown = (models.heads, *models.rows[:most])
        cells = [[shorten(one_line(words_of(value)), limit) for value in row] for row in shown]
        texts = [
            text.rstrip() for text in tabulate(cells, tablefmt="plain", disable_numparse=True).splitlines()
        ]
        if max(map(len, texts)) <= width:
            break
    yield from texts
    if (more := len(models.rows) - most) > 0:
        yield f"… {more} more: --full"
    left = ", ".join(name for name in COLUMNS if name not in columns)
    yield from _wrap(f"{FIGURES}; not shown: {left}" if left else FIGURES, width=width)


def _fill(title: str, entries: Sequence[list[str]], room: int, rest: str) -> list[str]:
    """Return as many entries below a title as there is room for, and how many are left."""
    lines = ["", title] if entries else []
    for number, entry in enumerate(entries):
        left = len(entries) - number
        if len(lines) + len(entry) > room - (left > 1):
            return [*lines, f"  … {counted(left, rest)}: --full"]
        lines += entry
    return lines


def _count_evidence(upgrade: Upgrade) -> str:
    """Say how the cases are known at both versions, and what the noise floor of the user's model is."""
    cases, said = [case for finding in upgrade.findings for case in finding.cases], []
    sides = [(upgrade.before, [c.before for c in cases]), (upgrade.after, [c.after for c in cases])]
    for version, kinds in ((name, [side.evidence for side in found]) for name, found in sides):
        counts = ", ".join(f"{kinds.count(kind)} {kind.value}" for kind in Evidence if kind in kinds)
        said.append(f"{counted(len(kinds), 'case')} at {version}: {counts or 'no evidence'}")
    said += [f"your model {model.name}: {model.floor}" for model in upgrade.models]
    return "; ".join(said) + "."


def render_markdown(upgrade: Upgrade) -> str:
    """Return the report; parts that would make it longer than GitHub takes are left out, and that is told."""
    title, where, answer, _ = _titles(upgrade)
    parts = [f"## {plain(title)}: {answer}", f"**{plain(upgrade.summary)}**" if upgrade.summary else ""]
    parts += [plain(where), bullets(_fact_markup(reason, marked=True) for reason in upgrade.reasons)]
    for section in make_sections(upgrade):
        parts += [f"### {plain(section.title)}", *map(_block_markup, section.blocks)]
    parts += [f"Made by\n\n{fence(upgrade.command)}"] if upgrade.command else []
    parts += [f"Generated {plain(upgrade.generated)}."] if upgrade.generated else []
    parts, gone = list(filter(None, parts)), 0
    while sum(len(part) + 2 for part in parts) > MOST_CHARACTERS - len(_CUT) - 8:  # the longest fold first
        parts.remove(max(parts, key=lambda part: (part.startswith("<details>"), len(part))))
        gone += 1
    return "\n\n".join([*parts, *([_CUT.format(counted(gone, "part"))] if gone else [])]) + "\n"


def _block_markup(block: Block) -> str:
    match block:
        case FactLine():
            return "- " + _fact_markup(block, marked=block.weight is not Weight.NOTE)
        case Table(rows=rows):
            shown = table(block.heads, ([_cell_markup(value) for value in row] for row in rows[:_MOST]))
            shown += f"\n\n… and {len(rows) - _MOST} more" if len(rows) > _MOST else ""
            return fold(block.label, shown) if block.folded else f"{plain(block.label)}:\n\n{shown}"
        case _:
            return fence(block)


def _fact_markup(fact: FactLine, *, marked: bool) -> str:
    known = "" if fact.known == Evidence.NONE.value else plain(fact.known)
    cited = (link(s.url, s.title) if s.url else code(s.title) for s in fact.sources if s.title)
    how = " · ".join(filter(None, (known, "; ".join(cited))))
    topic = f"**{plain(fact.topic)}:** " if fact.topic else ""
    mark = f"**{fact.weight.value}**: " if marked else ""
    return f"{mark}{topic}{plain(fact.text)}" + (f" ({how})" if how else "")


def _cell_markup(value: Any) -> str:  # noqa: ANN401 - what a row of a table holds
    if isinstance(value, Source):
        return link(value.url, value.title)
    words = plain(words_of(value))
    return f"**{words}**" if words and _tone(value) is not None else words


def render_page(upgrade: Upgrade) -> str:
    """Return the page; what the report does not have is not shown."""
    title, where, answer, exit_code = _titles(upgrade)
    folder = FileSystemLoader(Path(__file__).parent / "templates")
    bars, slowest = list(_bars(upgrade)), "slowest change of latency"
    uses, change = len(upgrade.api.must_change), "code to change: none was named (--code)"
    tiles = [
        (str(sum(reason.weight is Weight.AGAINST for reason in upgrade.reasons)), "blockers"),
        (str(sum(f.change is Change.UNCHANGED_BAD for f in upgrade.findings)), "findings broken in both"),
        (f"{short(bars[0]['ratio'])}×", slowest) if bars else ("–", f"{slowest}: none can be compared"),
        (str(uses), "uses in your code to change") if upgrade.api.code else ("–", change),
    ]
    body = page.templates().overlay(loader=folder).get_template("report.html").render(
        upgrade=upgrade, sections=make_sections(upgrade), title=title, where=where, answer=answer,
        tiles=tiles, bars=bars, exit_code=exit_code,
        glyphs=page.GLYPHS, words=words_of, tone=_tone, is_safe=page.is_safe,
        typed=lambda text: "".join(c if c.isprintable() or c in "\n\t" else " " for c in text),
    )  # fmt: skip
    style = page.make_style(".name { min-width: 15rem; }")
    return page.render_page(f"{title}: {answer.lower()}", [body], style=style, script=page.COPY)


def _bars(upgrade: Upgrade) -> Iterator[dict[str, Any]]:
    """Yield what is drawn of the latencies that can be compared, the slowest change first.

    A case's latency before is 1; the widest of all bars and spreads, at most 4, takes all the room.
    """
    both = [
        (line, line.before, line.after) for line in upgrade.performance
        if line.measure == "latency" and line.before and line.after and line.ratio and not line.why_not
        and all(map(math.isfinite, (line.ratio, line.before.low, line.after.high)))
    ]  # fmt: skip
    both.sort(key=lambda one: -(one[0].ratio or 0))
    spreads = [[(s.low / a.median, s.high / a.median) for s in (a, b)] for _, a, b in both[:MOST_BARS]]
    widest = min(4.0, max((high for spread in spreads for _, high in spread), default=1.0))

    def room(value: float) -> float:
        return round(BAR_ROOM * min(value, widest) / widest, 1)

    for (line, before, after), spread in zip(both, spreads, strict=False):
        ratio = line.ratio or 0.0
        yield {
            "ratio": ratio, "name": shorten(f"{line.repro}/{line.case}", 48),
            "widths": (room(1), room(ratio)), "spreads": [[room(end) for end in ends] for ends in spread],
            "kind": "worse" if line.told_apart and ratio > 1 else "after",
            "words": f"{short(ratio)}×: {short(before.median)} → {short(after.median)} {line.unit}",
        }  # fmt: skip


def _tone(value: Any) -> str | None:  # noqa: ANN401 - what a row of a table holds
    """Return how a word looks, or None of what is no word that has a colour."""
    word = value.verdict if isinstance(value, Side) else value
    return TONES.get(word) if isinstance(word, Enum) else None
