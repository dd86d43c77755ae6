"""TensorRT-RTX's real builder, through ``run``: as many builds as there are different engines."""

from __future__ import annotations

from collections import Counter

from tests.worker.conftest import ROOT, Run


def test_no_engine_is_built_twice(run: Run) -> None:
    """Each engine is a graph with its options and the number of its build."""
    words = ("--trt=tensorrt-rtx-1.7", "--repro=streams,controls,transpose-constant")
    table = run("worker", ROOT / "repros", *words)
    records = [record for those in table.records.values() for record in those]
    asked = [e for record in records for e in record["engine"].get("engines", ())]
    built = Counter(engine["name"] for engine in asked if "shared_with" not in engine)
    assert built
    assert set(built.values()) == {1}
    assert set(built) == {engine["name"] for engine in asked}
    assert len(built) < len(asked), "cases of streams have one graph"
    assert {record["ended"] for record in records if "engines" in record["engine"]} == {"built"}
