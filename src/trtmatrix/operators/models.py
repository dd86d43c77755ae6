"""What ONNX's tests say of a model's operators: which are right, wrong or refused, and where. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from onnx import ModelProto
from onnx.defs import SchemaError, get_schema

from trtmatrix.common.text import counted, join_some
from trtmatrix.onnxmodel.graphs import OWN, all_nodes, opset_of
from trtmatrix.records.operators import BAD, GOOD, OperatorRecord, Row
from trtmatrix.suite.model import release_of

NAMED = 4
"""Tests that are named of an operator."""


class State(str, Enum):
    """What tests say of an operator at a version, the worst first."""

    WRONG = "wrong in tests"
    UNKNOWN = "unknown to the parser"
    REFUSED = "refused in every test"
    UNTESTED = "in no test at this opset"
    RIGHT = "right"


UNTRUSTED = frozenset({State.WRONG, State.UNKNOWN})
"""What says that a version should not be trusted with the operator. Of one that is refused others may run."""


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
        told = join_some([f"{row.name} ({row.verdict.value})" for row in self.rows], NAMED)
        of = f": {len(self.rows)} of {self.tests}: {told}" if told else ""
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
        """Whether an operator went wrong, or is unknown, at one of the versions."""
        return any(item.state in UNTRUSTED for each in self.at.values() for item in each)

    def counts(self) -> Iterator[str]:
        """Say of each version how many operators are right and how many are not."""
        for version, *items in zip(self.versions, *self.at.values(), strict=True):
            states = Counter(item.state for item in items)
            told = ", ".join(f"{states[state]} {state.value}" for state in reversed(State) if states[state])
            yield f"{version} ({items[0].gpu if items else 'no operator'}): {told}"


def check_operators(
    model: ModelProto, name: str, records: Sequence[OperatorRecord], versions: Iterable[str],
    gpus: Sequence[str] = (),
) -> ModelOperators:  # fmt: skip
    """Hold a model's operators against the tests that are of its opset.

    ``gpus``: slugs of those that are meant; of others a record is taken where these have none.
    """
    nodes = dict(Counter(node.op_type for node in all_nodes(model) if node.domain in OWN))
    opset, names = opset_of(model), sorted(dict.fromkeys(versions), key=release_of)
    meant_last = sorted(records, key=lambda record: (record.gpu not in gpus, record.gpu), reverse=True)
    best = {record.version: record for record in meant_last}
    found = [name for name in names if name in best]
    return ModelOperators(
        model=name, opset=opset, nodes=nodes, versions=tuple(found),
        at={op: tuple(_operator_at(best[version], op, opset) for version in found) for op in sorted(nodes)},
        lacking=tuple(version for version in names if version not in best),
    )  # fmt: skip


def _operator_at(record: OperatorRecord, operator: str, opset: int) -> OperatorAt:
    """Return what tells of an operator: the tests that mean the same at the model's opset.

    These are those at the schema that the opset has; where there is none, all at lower opsets.
    """
    rows = [row for row in record.rows.values() if row.operator == operator and row.opset <= opset]
    since = _since(operator, opset)
    rows = [row for row in rows if _since(operator, row.opset) == since] or rows
    bad = [row for row in rows if row.verdict in BAD]
    good = any(row.verdict in GOOD for row in rows)
    state = State.WRONG if bad else State.RIGHT if good else State.REFUSED if rows else State.UNTESTED
    state = State.UNKNOWN if operator in record.lacking else state
    told = () if state is State.RIGHT else tuple(bad or rows)
    return OperatorAt(version=record.version, gpu=record.gpu, state=state, tests=len(rows), rows=told)


def _since(operator: str, opset: int) -> int:
    try:
        return int(get_schema(operator, opset, "").since_version)
    except SchemaError:
        return 0


def sum_up_operators(found: ModelOperators) -> str:
    """Say in one sentence what each version makes of the operators, and name those that are bad."""
    told = [f"in ONNX's tests at {count}" for count in found.counts()]
    for operator, items in found.at.items():
        told += [f"{operator} {item.words}" for item in items if item.state in UNTRUSTED]
    return "; ".join([*told, *([f"not run at {', '.join(found.lacking)}"] if found.lacking else [])])


def render_operators(found: ModelOperators, width: int) -> str:
    """Return a line of counts, then a block for each operator that is not right everywhere."""
    wrap = partial(
        textwrap.wrap, width=width, subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
    )
    held = f"{counted(len(found.nodes), 'operator')} held against ONNX's tests"
    at = ", ".join(found.versions) or "no version"
    lines = wrap(f"{found.model} · opset {found.opset} · {held} at {at}")
    for operator, items in found.at.items():
        if shown := [item for item in items if item.state is not State.RIGHT]:
            lines += ["", f"{operator} ×{found.nodes[operator]}"]
            lines += [line for item in shown for line in wrap(f"    {item.words}")]
    lines += [""] if found.versions else []
    lines += [line for count in found.counts() for line in wrap(count)]
    if found.lacking:
        command = f"nox -s operators -- --trt {','.join(found.lacking)}"
        lines += wrap(f"Not run at {', '.join(found.lacking)}: {command}")
    return "\n".join(lines) + "\n"
