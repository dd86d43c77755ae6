"""What a version makes of all cases, as one compact file: ``<results>/<gpu>/<version>/operators.json.gz``.

What is measured here goes to the part of the results that git ignores, as all records do; ``publish`` copies
it. It lies where the reader of cells' records finds none.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trtmatrix.common.border import BorderError, read_file
from trtmatrix.common.errors import ConfigError
from trtmatrix.common.jsontext import parse_json
from trtmatrix.common.paths import whole_file
from trtmatrix.operators.verdicts import Result, Verdict
from trtmatrix.suite.model import Product

FILE = "operators.json.gz"
SCHEMA = 1
LARGEST, UNPACKED = 1 << 22, 1 << 26
"""Bytes of such a file, and of what is in it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case with its result. ``name``: ``test_abs``, ``test_abs@9``, or ``test_clip@11c`` with constants."""

    name: str
    operator: str
    opset: int
    result: Result

    @property
    def base(self) -> str:
        """The name of ONNX's own test."""
        return self.name.partition("@")[0]

    @property
    def has_constants(self) -> bool:
        """Whether its small inputs are constants."""
        return "@" in self.name and self.name.endswith("c")

    @property
    def words(self) -> str:
        """The case in words: ``test_clip, opset 11, its small inputs constants``."""
        return (
            f"{self.base}, opset {self.opset}{', its small inputs constants' if self.has_constants else ''}"
        )


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
        return Counter(row.result.verdict for row in self.rows.values())

    @cached_property
    def flaky(self) -> tuple[str, ...]:
        """The cases that did not come out the same twice."""
        return tuple(name for name, row in self.rows.items() if row.result.before is not None)

    def is_comparable(self, other: OperatorRecord) -> bool:
        """Whether both are runs of the same cases by the same image on boards that are alike."""
        alike = ("name", "variant", "driver")
        ours, theirs = (tuple(one.facts["gpu"].get(key) for key in alike) for one in (self, other))
        same = self.facts["digests"].get("image") == other.facts["digests"].get("image")
        return same and (self.version, self.suite, ours) == (other.version, other.suite, theirs)

    def after(self, earlier: OperatorRecord | None) -> OperatorRecord:
        """Return the record, cases marked as flaky that came out otherwise in a comparable earlier run."""
        if earlier is None or not self.is_comparable(earlier):
            return self
        rows = dict(self.rows)
        for name, row in self.rows.items():
            was = earlier.rows[name].result if name in earlier.rows else row.result
            before = row.result.before or (
                was.verdict if was.verdict is not row.result.verdict else was.before
            )
            if before is not None and before is not row.result.verdict:
                rows[name] = replace(row, result=replace(row.result, before=before))
        return replace(self, rows=rows)


def write_record(root: Path, record: OperatorRecord) -> Path:
    """Write a record in the place of an earlier one; returns its file."""
    target = root / record.gpu / record.version / FILE
    with whole_file(target) as out:
        out.write(gzip.compress(record_text(record).encode(), mtime=0))
    return target


def record_text(record: OperatorRecord) -> str:
    """Return a record as JSON, a line a case: verdict, operator, opset, seconds, message, earlier verdict."""
    messages = {row.result.detail: 0 for row in record.rows.values() if row.result.detail}
    messages = {text: number for number, text in enumerate(sorted(messages))}
    head = {
        "schema": SCHEMA, "version": record.version, "product": record.product.value, "gpu_slug": record.gpu,
        "onnx": record.onnx, "suite": record.suite, "facts": dict(record.facts),
        "counts": {verdict.value: record.counts[verdict] for verdict in Verdict if record.counts[verdict]},
        "messages": list(messages),
    }  # fmt: skip
    lines = []
    for name, row in sorted(record.rows.items()):
        result = row.result
        place = messages.get(result.detail, -1)
        fields = [result.verdict.value, row.operator, row.opset, result.seconds, place]
        fields += [result.before.value] if result.before else []
        lines.append(f"{json.dumps(name)}: {json.dumps(fields)}")
    top = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)
    rows = ",\n".join(lines)
    return f'{top[:-2]},\n "cases": {{\n{rows}\n }}\n}}\n'


def parse_record_text(text: str | bytes) -> OperatorRecord:
    """Read a record; ``ValueError`` where it is none."""
    data = parse_json(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"it has no schema number {SCHEMA}")
    messages, rows = data["messages"], dict[str, Row]()
    for name, (verdict, operator, opset, seconds, place, *before) in data["cases"].items():
        rows[name] = Row(
            name=name, operator=str(operator), opset=int(opset),
            result=Result(
                verdict=Verdict(verdict), detail=str(messages[place]) if place >= 0 else "",
                seconds=float(seconds), before=Verdict(before[0]) if before else None,
            ),
        )  # fmt: skip
    return OperatorRecord(
        version=str(data["version"]), product=Product(data["product"]), gpu=str(data["gpu_slug"]),
        onnx=str(data["onnx"]), suite=str(data["suite"]), rows=rows, facts=dict(data["facts"]),
    )  # fmt: skip


def read_operator_records(results: Path) -> list[OperatorRecord]:
    """Read the records of all versions and GPUs; of two of one, that measured here.

    :class:`ConfigError` names those that cannot be read.
    """
    found, problems = dict[tuple[str, str], OperatorRecord](), list[str]()
    for file in _files(results):
        try:
            record = _read(file)
        except (BorderError, ValueError, LookupError, TypeError, zlib.error, OSError) as error:
            problems.append(f"{file}: cannot be used: {error}\n  move it away, and run the version again")
        else:
            found[record.gpu, record.version] = record
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def _files(results: Path) -> Iterator[Path]:
    """Yield the published files, then those of this host."""
    for root in (results, results / "local"):
        yield from sorted(root.glob(f"*/*/{FILE}"))


def _read(file: Path) -> OperatorRecord:
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    text = unpacker.decompress(read_file(file, LARGEST), UNPACKED)
    if not unpacker.eof:
        raise ValueError("it holds more than a record may, or ends too early")
    return parse_record_text(text)


def publish_records(results: Path) -> list[Path]:
    """Copy what was measured here to where git sees it; returns the files that are new or changed."""
    new = []
    for file in sorted((results / "local").glob(f"*/*/{FILE}")):
        target = results / file.relative_to(results / "local")
        content = read_file(file, LARGEST)
        if not target.is_file() or read_file(target, LARGEST) != content:
            with whole_file(target) as out:
                out.write(content)
            new.append(target)
    return new
