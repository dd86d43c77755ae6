"""A row of the benchmark: what was measured, against what, the goals, every figure, where. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

SCHEMA = 1
Figures = Mapping[str, Sequence[float]]


class CannotMeasure(Exception):
    """A row cannot be measured on this host; the message says what is lacking."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A measured value and its limit: at most that much, or at least."""

    what: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether it holds; what is no number does not."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def text(self) -> str:
        """What was wanted."""
        return f"{self.what}: at {'least' if self.at_least else 'most'} {self.limit:g}{_unit(self.unit)}"

    @property
    def measured(self) -> str:
        """What came out."""
        return f"{_digits(self.value)}{_unit(self.unit)}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. ``figures``: every repetition of what was timed, in seconds unless it says so.

    ``note``: what a reader must know to read the figures; ``command`` measures the row again.
    """

    name: str
    what: str
    against: str
    goals: tuple[Goal, ...]
    figures: Figures
    note: str = ""
    command: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether every goal holds; a row without any was cut off before it had one."""
        return bool(self.goals) and all(goal.met for goal in self.goals)


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Write the least, the median and the largest of some figures, or the only one."""
    if len(values) < 2:
        return "".join(_digits(value) for value in values)
    return " / ".join(_digits(value) for value in (min(values), median(values), max(values)))


def merge(old: Iterable[Row], new: Iterable[Row], order: Sequence[str]) -> list[Row]:
    """Return all rows, those measured now in the place of older ones of their name, in a fixed order."""
    rows = {row.name: row for row in (*old, *new)}

    def place(name: str) -> tuple[int, str]:
        kind = name.partition(":")[0]
        return (order.index(kind) if kind in order else len(order), name)

    return [rows[name] for name in sorted(rows, key=place)]


def to_json(rows: Iterable[Row]) -> str:
    """Return strict JSON; each goal says too whether it was met."""
    data = [
        {**asdict(row), "met": row.met, "goals": [{**asdict(goal), "met": goal.met} for goal in row.goals]}
        for row in rows
    ]
    return json.dumps({"schema": SCHEMA, "rows": data}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def parse_rows(text: str) -> list[Row]:
    """Read what :func:`to_json` writes; ``ValueError`` on another schema."""
    data = json.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema is {data.get('schema')!r}: expected {SCHEMA}")
    return [_row(item) for item in data["rows"]]


def _row(item: Mapping[str, Any]) -> Row:
    goals = tuple(Goal(**{k: v for k, v in goal.items() if k != "met"}) for goal in item["goals"])
    rest = {key: value for key, value in item.items() if key not in {"goals", "met"}}
    return Row(**{**rest, "goals": goals})
