"""An upgrade report's answer on one screen of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tabulate import tabulate

from trtmatrix.common.text import counted, one_line
from trtmatrix.suite.model import Evidence
from trtmatrix.tables.render_text import fill, wrap
from trtmatrix.tables.table import shorten
from trtmatrix.upgrade.document import COLUMNS, FIGURES, model_table, titles, words_of
from trtmatrix.upgrade.report import Decision, FactLine, Upgrade, Weight

HEIGHT, STEPS, ROWS, REASONS, HELP = 40, 15, 21, 6, 5
"""Lines of a screen, the most of commands that would settle it and of models, room for reasons, and the most
of a reason that tells what helps."""
_LOOKS = ((4, 24, True), (4, 24, False), (3, 18, False), (2, 18, False), (1, 18, False), (1, 14, False))
"""Looks of a row of a model, the roomiest first: how many measures, most letters of a cell, with spreads."""


def render_screen(upgrade: Upgrade, width: int) -> str:
    """Return the answer in at most 40 lines of ``width`` columns.

    The verdict and its reasons come first, then what it rests on, then the commands that would settle it;
    the verdict comes again last.
    """
    note, several = partial(wrap, width=width), len(upgrade.models) > 1
    title, where, answer, exit_code = titles(upgrade)
    verdict = f"{answer.upper()}  ({exit_code})"
    head = [*note(f"{title} · {where}", most=2), "", verdict]
    head += note(upgrade.summary, first="  ", most=4)
    rows, below, since = list[str](), list[str](), list[str]()
    if (base := upgrade.baseline) is not None:
        new = "; ".join(base.new) or "nothing"
        told = f"Since {base.file}: {len(base.gone)} gone, {len(base.same)} as before, new: {new}"
        since = ["", *note(told, most=4)]
    if several:
        rows = ["", *_model_rows(upgrade, width, ROWS - len(since))]
    else:
        below = ["", "What it rests on", *note(_count_evidence(upgrade), first="  ", later="    ", most=3)]
        left = f"Not looked at: {' '.join(upgrade.not_looked_at)}"
        below += note(left, first="  ", later="    ", most=2) if upgrade.not_looked_at else []
    below += since
    title, steps = "To settle it", []
    for item in upgrade.lacking if len(rows) < STEPS else ():
        command = _break_command(item.command, width, "    ") if item.command else ()
        words = note(item.what, first="  ", later="    ", most=2 if command else None)
        steps.append([*words, *command])
    if not steps and upgrade.decision in {Decision.GO, Decision.GO_WITH_WORKAROUNDS} and upgrade.engines:
        title, steps = "Before you move", [note(upgrade.engines[0].text, first="  ", later="    ")]
    room = HEIGHT - len(head) - len(rows) - len(below) - 3 - REASONS
    below += ["", title, *fill(steps, min(STEPS, room) - 2, "more command{s}")] if steps else []
    below += ["", "All of it: --full, or -o report.html (.md, .json)", verdict]
    most = {Weight.WORKAROUND: HELP}  # of what helps nothing is cut: it is what to do
    why = [_reason_lines(r, width, most.get(r.weight, 1 if several else 2)) for r in upgrade.reasons]
    room = HEIGHT - len(head) - len(rows) - len(below) - 2
    reasons = ["", "Why", *fill(why, room, "more reason{s}")] if why else []
    return "\n".join([*head, *rows, *reasons, *below]) + "\n"


def _reason_lines(reason: FactLine, width: int, most: int) -> list[str]:
    """Return a reason with its weight, and with how it is known and where to read it."""
    cited = list(dict.fromkeys(s.title.split(": ")[0].split("; ")[0] for s in reason.sources if s.url))[:2]
    known = reason.known if reason.known != Evidence.NONE.value else ""
    how = ": ".join(filter(None, (known, "; ".join(cited))))
    text = (f"{reason.topic}: " if reason.topic else "") + reason.text + (f" [{how}]" if how else "")
    mark = f"  {reason.weight.value.removeprefix('needs a '):<12}"
    return wrap(text, width, first=mark, later=" " * len(mark), most=most)


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


def _model_rows(upgrade: Upgrade, width: int, most: int) -> Iterator[str]:
    """Yield a line a model, the worst first, in the roomiest look that fits, and what its figures are."""
    for number, limit, spread in _LOOKS:
        models = model_table(upgrade, COLUMNS[:number], spread=spread)
        shown = [[words_of(value).removesuffix(" evidence") for value in row] for row in models.rows[:most]]
        cells = [[shorten(one_line(text), limit) for text in row] for row in (models.heads, *shown)]
        texts = tabulate(cells, tablefmt="plain", disable_numparse=True).splitlines()
        if max(map(len, texts)) <= width:
            break
    yield from map(str.rstrip, texts)
    if (more := len(models.rows) - most) > 0:
        yield f"… {more} more: --full"
    left = f"; not shown: {', '.join(COLUMNS[number:])}" if COLUMNS[number:] else ""
    yield from wrap(FIGURES + left, width)


def _count_evidence(upgrade: Upgrade) -> str:
    """Say how the cases are known at both versions, and what the noise floor of the user's model is."""
    cases, said = [case for finding in upgrade.findings for case in finding.cases], []
    sides = [(upgrade.before, [c.before for c in cases]), (upgrade.after, [c.after for c in cases])]
    for version, kinds in ((name, [side.evidence for side in found]) for name, found in sides):
        counts = ", ".join(f"{kinds.count(kind)} {kind.value}" for kind in Evidence if kind in kinds)
        said.append(f"{counted(len(kinds), 'case')} at {version}: {counts or 'no evidence'}")
    said += [f"your model {model.name}: {model.floor}" for model in upgrade.models]
    return "; ".join(said) + "."
