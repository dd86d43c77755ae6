"""Records of the suite as tests need them."""

from trtmatrix.records.operators import OperatorRecord, Row, Verdict
from trtmatrix.suite.model import Product

BOARD = {"name": "NVIDIA H200", "compute": "9.0", "variant": "140 GiB", "driver": "580.1"}


def row(name: str, operator: str, opset: int, verdict: Verdict, detail: str = "") -> Row:
    return Row(name=name, operator=operator, opset=opset, verdict=verdict, detail=detail, seconds=0.01)


def record(
    version: str, *rows: Row, product: Product = Product.TENSORRT, gpu: str = "nvidia-h200", suite: str = "s",
    image: str = "sha256:a",
) -> OperatorRecord:  # fmt: skip
    return OperatorRecord(
        version=version, product=product, gpu=gpu, onnx="1.23.2", suite=suite,
        rows={one.name: one for one in rows},
        facts={
            "gpu": dict(BOARD), "digests": {"image": image}, "started": "2026-11-26T12:00:00Z",
            "seconds": {"wall": 200.0, "builders": 40.0, "cases": 100.0, "bound": 8.75}, "workers": 16,
        },
    )  # fmt: skip


OLD = record(
    "8.5.3.1",
    row("test_relu", "Relu", 14, Verdict.RIGHT),
    row("test_gridsample_bicubic", "GridSample", 16, Verdict.WRONG, "Y: 4 of 8 values are off"),
    row("test_gridsample_nearest", "GridSample", 16, Verdict.RIGHT),
    row("test_mish", "Mish", 17, Verdict.PARSER, "no importer for Mish"),
    row("test_gru", "GRU", 14, Verdict.CRASHED, "killed by SIGSEGV; <b>assertion</b>"),
)  # fmt: skip
NEW = record(
    "8.6.0",
    row("test_relu", "Relu", 14, Verdict.WRONG, "y has the shape [1] instead of []"),
    row("test_gridsample_bicubic", "GridSample", 16, Verdict.RIGHT),
    row("test_gridsample_nearest", "GridSample", 16, Verdict.RIGHT),
    row("test_mish", "Mish", 17, Verdict.RIGHT),
    row("test_gru", "GRU", 14, Verdict.BUILDER, "no implementation"),
)  # fmt: skip
