"""Records: strict JSON that reads as it was written, or is refused with the place."""

from __future__ import annotations

import json
import math

import pytest
from builders import make_cell, make_record

from trtmatrix.common.jsontext import to_json
from trtmatrix.judge.record import (
    ENDS,
    SCHEMA,
    NewerRecordError,
    RecordError,
    parse_record,
    record_from,
)
from trtmatrix.suite.model import Product

NAMES = {
    Product.TENSORRT: "10.7.0", Product.TENSORRT_RTX: "tensorrt-rtx-1.4",
    Product.ONNXRUNTIME: "onnxruntime-1.31.1",
}  # fmt: skip
TEXT = to_json(make_record(make_cell(), math.nan, detail="√ \u2028 \x1b[31m").data)


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("ended", ENDS)
def test_a_record_of_every_product_and_end_reads_as_it_was_written(product: Product, ended: str) -> None:
    record = make_record(make_cell(version=NAMES[product]), ended=ended, detail="why")
    again = parse_record(to_json(record.data), record.file)
    assert again == record
    assert (again.product, again.ended, again.cell) == (product, ended, record.cell)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_bare_nan_is_neither_written_nor_read(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": value})
    with pytest.raises(RecordError, match=r"^f:1: a bare -?(NaN|Infinity) is not JSON$"):
        parse_record(json.dumps({"schema": SCHEMA, "a": value}), "f")


@pytest.mark.parametrize("schema", ["2", "1000000", "0", "true", "1.0", "null"])
def test_any_other_schema_is_refused_and_a_newer_one_with_the_remedy(schema: str) -> None:
    newer = schema.isdigit() and schema != "0"
    with pytest.raises(RecordError, match="update trtmatrix" if newer else "expected 1") as caught:
        parse_record(TEXT.replace('"schema": 1', f'"schema": {schema}'), "f")
    assert isinstance(caught.value, NewerRecordError) is newer


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "7", '"x"', "{}", "[" * 100_000, '{"schema": ' + "9" * 5000 + "}"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match=r"^f:1"):
        parse_record(text, "f")


@pytest.mark.parametrize("name", sorted(set(make_record(make_cell()).data)))
def test_nothing_may_be_missing(name: str) -> None:
    data = dict(make_record(make_cell()).data)
    del data[name]
    with pytest.raises(RecordError, match=r"^f:1: "):
        record_from(data, "f")
