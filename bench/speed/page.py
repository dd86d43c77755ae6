"""The page of the benchmark of speed: the table of the goals, every figure, what was not measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tabulate import tabulate

from bench.speed.rows import Row, spread

INTRODUCTION = """\
# How fast it is

Each figure is measured against its plain alternative in one run, alternately; ratios are of medians. `nox -s
bench -- speed --write` measures all that a host allows and makes this page from `bench/speed.json`, which has
every repetition; rows that the host does not allow stay as they are there. `--only NAME` measures one row.

Where a cell itself takes long, what a warm worker saves weighs less: on a GPU builds, on a CPU the inference.
On a GPU the least counts only the first of a cell's processes, where it has several (`streams`). On the CPU
the warm way has two processes side by side; fresh containers come one after another, as in a loop by hand.
The rows of a GPU were measured before each engine's first run took its latency too (up to 0.15 s an engine).
"""


def render_page(rows: Sequence[Row], kinds: Mapping[str, str]) -> str:
    """Return the page; ``kinds``: every row that there can be, with what it needs."""
    parts = [INTRODUCTION, _table(rows)]
    parts += ["\n".join(_section(row)) for row in rows]
    parts.append("\n".join(_not_measured(rows, kinds)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def render_rows(rows: Sequence[Row]) -> str:
    """Return the table alone, for a terminal."""
    return _table(rows)


def _table(rows: Sequence[Row]) -> str:
    lines = [
        (row.name, row.what, row.against, "<br>".join(goal.text for goal in row.goals),
         "<br>".join(goal.measured for goal in row.goals), "<br>".join(_met(goal.met) for goal in row.goals))
        for row in rows
    ]  # fmt: skip
    headers = ("row", "what", "against", "goal", "measured", "met")
    return tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True)


def _met(met: bool) -> str:
    return "yes" if met else "**NO**"


def _section(row: Row) -> Iterator[str]:
    """Yield a row's section: how to repeat it, where it was measured, the figures."""
    yield f"## {row.name}"
    yield ""
    yield f"`{row.command}`"
    yield ""
    if row.note:
        yield row.note
        yield ""
    yield "; ".join(f"{name}: {value}" for name, value in row.machine.items() if value) + "."
    yield ""
    figures = [(name, len(values), spread(values)) for name, values in row.figures.items()]
    headers = ("seconds, unless it says so", "repetitions", "least / median / largest")
    yield tabulate(figures, headers=headers, tablefmt="github", disable_numparse=True)


def _not_measured(rows: Sequence[Row], kinds: Mapping[str, str]) -> Iterator[str]:
    yield "## What was not measured"
    yield ""
    measured = {row.name.partition(":")[0] for row in rows}
    missing = {kind: needs for kind, needs in kinds.items() if kind not in measured}
    cut = [row.name for row in rows if not row.goals]
    if not missing and not cut:
        yield "Nothing: every row has figures."
    yield from (f"- `{kind}`: no figures yet; it needs {needs}." for kind, needs in missing.items())
    yield from (f"- `{name}`: cut off before it had all that its goals need." for name in cut)
