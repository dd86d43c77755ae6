"""What a version makes of all cases, as one compact file: ``<results>/<gpu>/<version>/operators.json.gz``.

What is measured here goes to the part of the results that git ignores, as all records do; ``publish`` copies
it. It lies where the reader of cells' records finds none.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from trtmatrix.common.border import read_file
from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import whole_file
from trtmatrix.common.text import one_line, to_json
from trtmatrix.suite.model import Product, release_of

FILE = "operators.json.gz"
PART = "operators.part.json.gz"
"""What an interrupted run has left beside it, for the next one to go on with; nothing else reads it."""
SCHEMA = 1
LARGEST, UNPACKED = 1 << 22, 1 << 26  # bytes of such a file, and of what is in it
NO_IMPORTER = re.compile(r"\bno importer for (?!more than\b)(\w+)")
NO_RECORD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, zlib.error)
"""What reading a file as a record raises where it is none."""


class Verdict(str, Enum):
    """What a version makes of a case; the first word is what a record holds."""

    RIGHT = "right"
    WRONG = "wrong"
    PARSER = "refused by the parser"
    BUILDER = "refused by the builder"
    AT_RUN_TIME = "refused at run time"
    CRASHED = "crashed"
    HUNG = "hung"
    NOT_FED = "cannot be fed"
    BUILT = "built"
    NOTHING = "no result"


GOOD = frozenset({Verdict.RIGHT, Verdict.BUILT})  # nothing is known against it
BAD = frozenset({Verdict.WRONG, Verdict.CRASHED, Verdict.HUNG})
"""What matters: a version takes the case, and gives a wrong answer or none."""
REFUSED = frozenset({Verdict.PARSER, Verdict.BUILDER, Verdict.AT_RUN_TIME, Verdict.NOT_FED})
"""The version says that it does not take the case."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case's verdict with the product's own words, or what is wrong.

    ``name``: ``test_abs``, ``test_abs@9``, or ``test_clip@11c`` with constants. ``seconds``: of build and
    run. ``before``: a verdict that it had otherwise: it is flaky.
    """

    name: str
    operator: str
    opset: int
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
    before: Verdict | None = None

    @property
    def base(self) -> str:
        """The name of ONNX's own test."""
        return self.name.partition("@")[0]

    @property
    def words(self) -> str:
        """The case in words: ``test_clip, opset 11, its small inputs constants``."""
        constants = "@" in self.name and self.name.endswith("c")
        return f"{self.base}, opset {self.opset}{', its small inputs constants' if constants else ''}"

    @property
    def line(self) -> str:
        """How it came out on a line of progress; of what went wrong also the beginning of the reason."""
        reason = f" ({self.detail[:120]})" if self.detail and self.verdict not in GOOD else ""
        return f"{self.name}: {self.verdict.value}{reason}"


@dataclass(frozen=True, kw_only=True)
class OperatorRecord:
    """One run of the suite. ``facts``: all else: times, GPU, digests, what was observed inside."""

    version: str
    product: Product
    gpu: str
    onnx: str
    suite: str
    rows: Mapping[str, Row]
    facts: Mapping[str, Any]

    @cached_property
    def counts(self) -> Counter[Verdict]:
        """How many cases have each verdict."""
        return Counter(row.verdict for row in self.rows.values())

    @cached_property
    def flaky(self) -> tuple[str, ...]:
        """The cases that did not come out the same twice."""
        return tuple(name for name, row in self.rows.items() if row.before is not None)

    @cached_property
    def lacking(self) -> frozenset[str]:
        """Operators that the version's parser does not know, by its own words."""
        said = (row.detail for row in self.rows.values() if row.verdict is Verdict.PARSER)
        return frozenset(name for text in said for name in NO_IMPORTER.findall(text))

    @property
    def place(self) -> Path:
        """Where it lies in a tree of results."""
        return Path(self.gpu, self.version, FILE)

    @property
    def what_ran(self) -> tuple[object, ...]:
        """Version, suite, image and kind of GPU: two runs of the same should have the same verdicts."""
        board = (self.facts["gpu"].get(key) for key in ("name", "variant", "driver"))
        return self.version, self.suite, self.facts["digests"].get("image"), *board

    def after(self, earlier: OperatorRecord | None) -> OperatorRecord:
        """Return the record, cases marked as flaky that came out otherwise in a comparable earlier run."""
        if earlier is None or self.what_ran != earlier.what_ran:
            return self
        rows = dict(self.rows)
        for name in self.rows.keys() & earlier.rows.keys():
            row, was = self.rows[name], earlier.rows[name]
            before = row.before or (was.verdict if was.verdict is not row.verdict else was.before)
            if before is not row.verdict and Verdict.NOTHING not in {before, row.verdict}:
                rows[name] = replace(row, before=before)
        return replace(self, rows=rows)


def write_record(root: Path, record: OperatorRecord, *, part: bool = False) -> Path:
    """Write a record in the place of an earlier one; returns its file. A ``part`` is one to go on with."""
    target = root / record.place.with_name(PART if part else FILE)
    with whole_file(target) as out:
        out.write(gzip.compress(record_text(record).encode(), mtime=0))
    if not part:
        target.with_name(PART).unlink(missing_ok=True)
    return target


def record_text(record: OperatorRecord) -> str:
    """Return a record as JSON. A case is a list of verdict, operator, opset, seconds and message.

    Where it is flaky, the earlier verdict follows. A message is a number in ``messages``; -1: there is none.
    """
    messages = sorted({row.detail for row in record.rows.values()} - {""})
    places = {"": -1, **{text: number for number, text in enumerate(messages)}}
    return to_json({
        "schema": SCHEMA, "version": record.version, "product": record.product.value, "gpu_slug": record.gpu,
        "onnx": record.onnx, "suite": record.suite, "facts": record.facts, "messages": messages,
        "cases": {
            name: [row.verdict, row.operator, row.opset, row.seconds, places[row.detail]]
            + ([row.before] if row.before else [])
            for name, row in record.rows.items()
        },
    })  # fmt: skip


def parse_record(packed: bytes) -> OperatorRecord:
    """Read a record's file; raises one of :data:`NO_RECORD` if it is none."""
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    text = unpacker.decompress(packed, UNPACKED)
    if not unpacker.eof:
        raise ValueError("it holds more than a record may, or ends too early")
    data = orjson.loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"it has no schema number {SCHEMA}")
    rows = {
        name: Row(
            name=name, operator=str(operator), opset=int(opset), verdict=Verdict(verdict),
            detail=one_line(str(data["messages"][place])) if place >= 0 else "", seconds=float(seconds),
            before=Verdict(before[0]) if before else None,
        )
        for name, (verdict, operator, opset, seconds, place, *before) in data["cases"].items()
    }  # fmt: skip
    facts, _ = data["facts"], release_of(str(data["version"]))
    if not all(isinstance(facts[key], dict) for key in ("gpu", "digests")):
        raise ValueError("it does not say what ran")
    float(facts["seconds"]["wall"])
    return OperatorRecord(
        version=str(data["version"]), product=Product(data["product"]), gpu=str(data["gpu_slug"]),
        onnx=str(data["onnx"]), suite=str(data["suite"]), rows=rows, facts=facts,
    )  # fmt: skip


def read_operator_records(
    results: Path, name: str = FILE, versions: Collection[str] = ()
) -> list[OperatorRecord]:
    """Read the records of all versions and GPUs, or what interrupted runs have left (:data:`PART`).

    ``versions``: only theirs. Of two of one version and GPU that measured here counts.
    :class:`ConfigError` names what cannot be read.
    """
    found, problems = dict[tuple[str, str], OperatorRecord](), list[str]()
    for file in (file for root in (results, results / "local") for file in sorted(root.glob(f"*/*/{name}"))):
        if versions and file.parent.name not in versions:
            continue
        try:
            record = parse_record(read_file(file, LARGEST))
        except (*NO_RECORD, OSError) as error:
            if name == FILE:  # what an interrupted run has left is made anew
                problems.append(f"{file}: cannot be used: {error}\n  move it away, and run the version again")
        else:
            found[record.gpu, record.version] = record
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def publish_records(results: Path) -> list[Path]:
    """Copy what was measured here to where git sees it; returns the files that are new or changed.

    Raises as :func:`read_operator_records` does.
    """
    new = []
    for record in read_operator_records(results):
        source, target = results / "local" / record.place, results / record.place
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            with whole_file(target) as out:
                out.write(source.read_bytes())
            new.append(target)
    return new
