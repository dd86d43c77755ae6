"""What ONNX's tests say of a model's operators: which are right, wrong or refused, and where. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from typing import Any

from onnx import ModelProto
from onnx.defs import SchemaError, get_schema

from trtmatrix.common.words import counted
from trtmatrix.onnxmodel.graphs import OWN, all_nodes, opset_of
from trtmatrix.operators.records import OperatorRecord, Row
from trtmatrix.suite.model import release_of

NAMED = 4
"""Tests that are named of an operator."""


class State(str, Enum):
    """What tests say of an operator at a version, the worst first."""

    WRONG = "wrong in tests"
    REFUSED = "refused in every test"
    UNTESTED = "in no test at this opset"
    RIGHT = "right"


BAD = frozenset({State.WRONG, State.REFUSED})


@dataclass(frozen=True, kw_only=True)
class OperatorAt:
    """An operator at a version. ``tests``: how many there are for its opset; ``rows``: those that tell."""

    version: str
    gpu: str
    state: State
    tests: int
    rows: tuple[Row, ...] = ()

    @property
    def words(self) -> str:
        """Say what is the matter, with the first tests."""
        told = [f"{row.name} ({row.result.verdict.value})" for row in self.rows[:NAMED]]
        more = f" and {len(self.rows) - NAMED} more" if len(self.rows) > NAMED else ""
        of = f": {len(self.rows)} of {self.tests}: {', '.join(told)}{more}" if told else ""
        return f"at {self.version} {self.state.value}{of}"


@dataclass(frozen=True, kw_only=True)
class ModelOperators:
    """The operators of a model, held against records. ``nodes``: how many of each; ``lacking``: no record."""

    model: str
    opset: int
    nodes: Mapping[str, int]
    at: Mapping[str, tuple[OperatorAt, ...]]
    versions: tuple[str, ...]
    lacking: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        """Whether an operator went wrong, or was refused in every test, at one of the versions."""
        return any(item.state in BAD for each in self.at.values() for item in each)

    def count(self, version: str, state: State) -> int:
        """Return how many operators are so at a version."""
        return sum(
            item.version == version and item.state is state for each in self.at.values() for item in each
        )


def check_operators(
    model: ModelProto,
    name: str,
    records: Sequence[OperatorRecord],
    versions: Iterable[str],
    gpus: Sequence[str] = (),
) -> ModelOperators:
    """Hold a model's operators against the tests that are of its opset.

    ``gpus``: slugs, the one that is meant first; of the others a record is taken where that one has none.
    """
    nodes = Counter(node.op_type for node in all_nodes(model) if node.domain in OWN)
    opset, names = opset_of(model), sorted(dict.fromkeys(versions), key=release_of)
    found = {version: record for version in names if (record := _choose(records, version, gpus))}
    at = {
        operator: tuple(_operator_at(record, operator, opset) for record in found.values())
        for operator in sorted(nodes)
    }
    return ModelOperators(
        model=name, opset=opset, nodes=nodes, at=at, versions=tuple(found),
        lacking=tuple(version for version in names if version not in found),
    )  # fmt: skip


def _choose(records: Sequence[OperatorRecord], version: str, gpus: Sequence[str]) -> OperatorRecord | None:
    mine = [record for record in records if record.version == version]
    return min(mine, key=lambda r: (gpus.index(r.gpu) if r.gpu in gpus else len(gpus), r.gpu), default=None)


def _operator_at(record: OperatorRecord, operator: str, opset: int) -> OperatorAt:
    """Return what tells of an operator: the tests that mean the same at the model's opset.

    These are those at the schema that the opset has; where there is none, all at lower opsets.
    """
    rows = [row for row in record.rows.values() if row.operator == operator and row.opset <= opset]
    since = _since(operator, opset)
    rows = [row for row in rows if _since(operator, row.opset) == since] or rows
    bad = tuple(row for row in rows if row.result.verdict.is_bad)
    good = any(row.result.verdict.is_good for row in rows)
    state = State.WRONG if bad else State.RIGHT if good else State.REFUSED if rows else State.UNTESTED
    told = bad or (tuple(rows) if state is State.REFUSED else ())
    return OperatorAt(version=record.version, gpu=record.gpu, state=state, tests=len(rows), rows=told)


def _since(operator: str, opset: int) -> int:
    try:
        return int(get_schema(operator, opset, "").since_version)
    except SchemaError:
        return 0


def sum_up_operators(found: ModelOperators) -> str:
    """Say in one sentence how many operators are right at each version: ``31 of 31 right at 8.6.0``."""
    if not found.versions:
        return f"nothing is known: ONNX's tests have not been run at {', '.join(found.lacking)}"
    right = {version: found.count(version, State.RIGHT) for version in found.versions}
    many = f"of {len(found.nodes)} right in ONNX's tests"
    told = [f"{number} {many} at {version}" for version, number in right.items()]
    if len(right) > 1 and len(set(right.values())) == 1:
        told = [f"{next(iter(right.values()))} {many} at {' and '.join(right)}"]
    for operator, items in found.at.items():
        told += [f"{operator} {item.words}" for item in items if item.state in BAD]
    told += [f"not run at {', '.join(found.lacking)}"] if found.lacking else []
    return "; ".join(told)


def render_operators(found: ModelOperators, width: int) -> str:
    """Return a line of counts, then a block for each operator that is not right everywhere."""
    wrap = partial(
        textwrap.wrap, width=width, subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
    )
    lines = wrap(
        f"{found.model} · opset {found.opset} · {counted(len(found.nodes), 'operator')} held against "
        f"ONNX's tests at {', '.join(found.versions) or 'no version'}"
    )
    for operator, items in found.at.items():
        shown = [item for item in items if item.state is not State.RIGHT]
        if shown:
            lines += ["", f"{operator} ×{found.nodes[operator]}"]
            lines += [line for item in shown for line in wrap(f"    {item.words}")]
    lines += [""] if found.versions else []
    for version in found.versions:
        gpu = next((item.gpu for each in found.at.values() for item in each if item.version == version), "")
        states = ((state, found.count(version, state)) for state in reversed(State))
        lines += wrap(f"{version} ({gpu}): {', '.join(f'{n} {state.value}' for state, n in states if n)}")
    if found.lacking:
        command = f"nox -s operators -- --trt {','.join(found.lacking)}"
        lines += wrap(f"Not run at {', '.join(found.lacking)}: {command}")
    return "\n".join(lines) + "\n"


def operators_json(found: ModelOperators) -> dict[str, Any]:
    """Return all of it as a JSON object."""
    return {**asdict(found), "nodes": dict(found.nodes)}
