"""LayerNorm and RMSNorm in FP16: squares beyond 65504 are infinite, and the output is 0.

Two of 768 channels are ±400, as the outlier channels of BERT-like models are: their squares are 160000. Which
form is safe depends on the version.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "LayerNorm and RMSNorm overflow in FP16",
    "upstream": "NVIDIA/TensorRT#2564",
    "url": "https://github.com/NVIDIA/TensorRT/issues/2564",
    # See also NVIDIA/TensorRT#2781, NVIDIA/TensorRT#3101, NVIDIA/TensorRT#4493, pytorch/TensorRT#4061
    "summary": "The norm written out of Sub, Pow, ReduceMean, Sqrt and Div in a graph of float16 overflows "
    "where the squares are kept in float16. Casts around it are dropped before TensorRT 9. One operator "
    "(LayerNormalization, opset 17) keeps float32 inside; scaling the input down first is safe everywhere.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {"overflow": {"what": "squares infinite in FP16: the norm is 0"}},
    "expectations": [  # the first that fits counts
        {
            "cases": ["operator-*"],
            "versions": "<8.6",
            "verdict": "NO VERDICT",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3656",
            "note": "LayerNormalization is not parsed",
        },
        {
            "cases": ["layernorm-typed"],
            "versions": "==8.5.1.7",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/2564",
            "on": "T4",
            "note": "of BERT",
        },
        {
            "cases": ["layernorm-typed", "block-typed", "cast-typed"],
            "versions": ">=8.5,<9.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "note": "the same network in both; wrong on an H200 at 8.5.1.7 to 8.6.0 in three builds of three",
        },
        {
            "cases": ["rmsnorm-typed"],
            "versions": ">=8.5,<8.6.1",
            "verdict": "FAIL",
            "basis": "assumed",
            "note": "wrong on an H200 at 8.5.1.7, 8.5.2.2, 8.5.3.1 and 8.6.0 in three builds of three",
        },
        {
            "cases": ["layernorm-typed", "block-typed"],
            "versions": ">=9.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4493",
            "note": "10.10 on an RTX 4090 as reported: still insufficient; no fix is reported",
        },
    ],
    "workarounds": [
        {
            "what": "export at opset 17: one operator, in float32 inside",
            "case": "operator-typed",
            "cases": ["layernorm-*", "block-*", "cast-*"],
        },
        {"what": "scale the input down before the squares", "case": "workaround-scaled-typed"},
    ],
    "rules": [
        {
            "what": "LayerNorm written out in float16: its squares overflow",
            "graph": [
                {"op": ["Sub"], "types": {0: ["float16"]}, "not_after": ["Mul"]},
                {"op": ["Pow", "Mul"]},
                {"op": ["ReduceMean"], "named": True},
                {"op": ["Add"]},
                {"op": ["Sqrt"]},
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/2564",
            "depends": "a value is beyond 256, its square beyond 65504",
            "instead": "scale the input down first, or export at opset 17 (LayerNormalization, from 8.6 on)",
        },
        {
            "what": "RMSNorm written out in float16: its squares overflow",
            "graph": [
                {"op": ["Pow", "Mul"], "types": {0: ["float16"]}, "not_after": ["Sub"]},
                {"op": ["ReduceMean"], "named": True},
                {"op": ["Add"]},
                {"op": ["Sqrt"]},
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<8.6.1", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/2564",
            "depends": "a value is beyond 256, its square beyond 65504",
            "instead": "scale the input down first",
        },
        {
            "what": "Casts to float32 around a norm are dropped: its squares overflow",
            "graph": [
                {"op": ["Cast"], "attributes": {"to": [1]}, "types": {0: ["float16"]}},
                {"op": ["Sub"]},
                {"op": ["Pow", "Mul"]},
                {"op": ["ReduceMean"], "named": True},
                {"op": ["Add"]},
                {"op": ["Sqrt"]},
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<9.0", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/2564",
            "depends": "a value is beyond 256, its square beyond 65504",
            "instead": "scale the input down first",
        },
        {
            "what": "the operator, which this parser does not have",
            "graph": [{"op": ["LayerNormalization"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6", "effect": "refused", "basis": "measured", "on": "H200"},
                {"versions": "<8.6", "effect": "refused", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3656",
            "instead": "export below opset 17: it is written out",
        },
    ],
}  # fmt: skip

SIZE, OUTLIER, EPSILON, SCALE = 768, 400.0, 1e-5, 1 / 64
NOISE = ("form", "inputs", "precision")
FORMS = ("layernorm", "rmsnorm", "operator", "block", "cast", "scaled")


def cases() -> Iterator[Dict[str, Any]]:
    for form in FORMS:
        for precision, word in (("fp16", "typed"), ("fp16-flag", "flag")):
            if form in ("cast", "scaled") and word == "flag":
                continue
            name = f"workaround-{form}-{word}" if form == "scaled" else f"{form}-{word}"
            yield case(name, form, "outliers", precision)
    for precision, word in (("fp16", "typed"), ("fp16-flag", "flag")):
        yield {**case(f"control-small-{word}", "layernorm", "small", precision), "control": "positive"}
    yield {
        **case("control-overflow-typed", "zero", "outliers", "fp16"),
        "control": "negative",
        "defect": "overflow",
    }


def case(name: str, form: str, inputs: str, precision: str) -> Dict[str, Any]:
    params = {"form": form, "inputs": inputs, "precision": precision}
    return {"id": name, "params": params, "defects": ["overflow"] if inputs == "outliers" else []}


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """The norm with its sums in float32 or better, as a right engine has them; overflow: it is 0."""
    x, scale, bias, weight = (part.astype(arithmetic.working) for part in drawn(params, seed))
    plain = params["form"] == "rmsnorm"
    centred = x if plain else x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    normed = np.zeros_like(x) if defect else centred / np.sqrt(variance + arithmetic.working(EPSILON))
    y = arithmetic.stored(arithmetic.stored(normed) * scale)
    if not plain:
        y = arithmetic.stored(y + bias)
    if params["form"] == "block":
        y = np.stack([arithmetic.matmul(row, weight) for row in y])
    return {"y": y}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    import onnx

    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    half, form = params["precision"] == "fp16", params["form"]
    dtype = np.float16 if half else np.float32
    x, scale, bias, weight = (part.astype(dtype) for part in drawn(params, seed=0))
    graph = Graph()
    graph.input("x", dtype, x.shape)
    scale_name, bias_name = graph.initializer("scale", scale), graph.initializer("bias", bias)
    source = "x"
    if form == "block":  # a Linear before and behind: the norm lies between matrix products
        source = graph.node("MatMul", "x", graph.initializer("identity", np.eye(SIZE, dtype=dtype)))
    if form == "scaled":
        source = graph.node("Mul", source, graph.constant(np.full((1, 1, 1), SCALE, dtype)))
    if form == "cast":
        source, dtype = graph.node("Cast", source, to=onnx.TensorProto.FLOAT), np.float32
    out = "" if form == "block" else "y"
    if form == "operator":
        y = graph.node("LayerNormalization", source, scale_name, bias_name, axis=-1, epsilon=EPSILON, out=out)
    else:
        epsilon = EPSILON * (SCALE**2 if form == "scaled" else 1)
        normed = written_out(graph, source, dtype, epsilon, plain=form == "rmsnorm")
        if form == "cast":
            normed = graph.node("Cast", normed, to=onnx.TensorProto.FLOAT16)
        if form == "zero":  # wrong on purpose: what an overflow leaves
            normed = graph.node("Mul", normed, graph.constant(np.zeros((1, 1, 1), dtype)))
        y = graph.node("Mul", normed, scale_name, out=out if form == "rmsnorm" else "")
        y = y if form == "rmsnorm" else graph.node("Add", y, bias_name, out=out)
    reference = emulate(params, FLOAT64)
    if form == "block":
        graph.node("MatMul", y, graph.initializer("weight", weight), out="y")
    graph.output("y", x.dtype, reference["y"].shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": reference}


def written_out(graph: Any, source: str, dtype: Any, epsilon: float, *, plain: bool) -> str:
    """As torch's exporter writes a norm before opset 17."""
    centred = source
    if not plain:
        centred = graph.node("Sub", source, graph.node("ReduceMean", source, axes=[-1], keepdims=1))
    squares = graph.node("Pow", centred, graph.constant(np.array(2, dtype)))
    variance = graph.node("ReduceMean", squares, axes=[-1], keepdims=1)
    shifted = graph.node("Add", variance, graph.constant(np.full((1, 1, 1), epsilon, dtype)))
    return str(graph.node("Div", centred, graph.node("Sqrt", shifted)))


def drawn(params: Dict[str, Any], seed: int) -> Tuple[Any, Any, Any, Any]:
    """X, scale, bias, weight of the Linear behind: all exact in float16."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, 128, SIZE))
    if params["inputs"] == "outliers":
        x[:, :, 100] = OUTLIER + 8 * random.normal(size=(2, 128))
        x[:, :, 381] = -OUTLIER + 8 * random.normal(size=(2, 128))
    scale, bias = 1 + random.normal(size=SIZE) / 10, random.normal(size=SIZE) / 10
    weight = random.normal(size=(SIZE, 256)) / np.sqrt(SIZE)
    return tuple(part.astype(np.float16) for part in (x, scale, bias, weight))  # type: ignore[return-value]


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
