"""How long ONNX's operator tests took on a GPU, by the records of ``trtmatrix operators``."""

from __future__ import annotations

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.rows import CannotMeasure, Goal, Row
from trtmatrix.records.operators import read_operator_records
from trtmatrix.suite.model import Product


def measure_operators(bench: Bench) -> None:
    """Tell a row of each version of TensorRT that has a record; nothing is run."""
    records = [one for one in read_operator_records(ROOT / "results") if one.product is Product.TENSORRT]
    if not records:
        raise CannotMeasure("no version of TensorRT has a record of its operators")
    for record in records:
        facts, board = record.facts, record.facts["gpu"]
        names = ("wall", "builders", "cases", "bound")
        wall, builders, cases, bound = (float(facts["seconds"][name]) for name in names)
        how = "that share the GPU by MPS" if facts.get("mps") else "by turns on the GPU"
        bench.tell(Row(
            name=f"operators:{record.version}",
            what=f"ONNX's operator tests, {len(record.rows):,} models, TensorRT {record.version}: "
            f"{facts['workers']} processes {how}",
            against="the least: all first Builders, builds and runs, divided by the processes",
            goals=(
                Goal(what="in all", value=wall, limit=360, unit="s"),
                Goal(what="of the least", value=wall / bound, limit=1.3),
            ),
            figures={
                "in all": [wall], "the least": [bound], "first Builders of all processes": [builders],
                "builds and runs of all processes": [cases],
            },
            note=f"From the published record: {facts['processes']} processes were started in all. The least "
            "is the larger of two: builds and runs by the models at once, and all by the processes at once.",
            command=f"python -m trtmatrix operators --trt {record.version} --rerun",
            machine={"GPU": f"{board['name']}, {board['driver']}", "date": facts["started"][:10]},
        ))  # fmt: skip
