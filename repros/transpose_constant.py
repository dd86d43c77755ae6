"""A Mul or Add of a constant between two Transposes, and a MatMul with a constant, computed wrongly by 8.6.0.

transpose(mul(transpose(a), transpose(b))) is mul(a, b): the Transposes cancel, and a layout is lost.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "Mul by a constant between Transposes",
    "upstream": "NVIDIA/TensorRT#3447",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3447",
    # See also NVIDIA/TensorRT#3451, NVIDIA/TensorRT#3453
    "summary": "Reported of int32 at 8.6.1 and fixed in 9.1; a maintainer reproduced it at 8.6. On an H200 "
    "8.6.0 gets it wrong in float32 and float16 too, with Mul, Add and Sub, where the Transposes change the "
    "order of axes of more than one element. Where both operands are inputs it is right; so is everything at "
    "8.5.1.7, 8.5.2.2 and 8.5.3.1.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "expectations": [  # the first that fits counts
        {
            "cases": ["constant-int32-102", "constant-int32-120", "constant-int32-210"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3447",
            "on": "GTX 1660",
            "note": "8.6.1; a maintainer reproduced it in 8.6",
        },
        {
            "cases": ["constant-int32-102", "constant-int32-120", "constant-int32-210"],
            "versions": ">=9.2,<9.3",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3447",
            "note": "a maintainer: fixed in 9.1",
        },
        {
            "cases": [
                "constant-*-102", "constant-*-120", "constant-*-210", "wide-*", "matrix-*", "images-*",
                "add-*", "subtract-*", "onehot-identity",
            ],
            "versions": ">=8.6,<9.1",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3447",
            "note": "wrong on an H200 at 8.6.0 in three builds of three; right at 8.5.1.7 to 8.5.3.1",
        },
    ],
    "workarounds": [
        {
            "what": "make the constant an input, shown for Mul in int32",
            "case": "control-inputs-int32-102",
            "cases": ["constant-int32-*"],
        },
        {
            "what": "make the constant an input, shown for Mul in float32",
            "case": "control-inputs-float-102",
            "cases": [
                "constant-float-*", "constant-half-*", "wide-*", "matrix-*", "images-*", "add-*",
                "subtract-*",
            ],
        },
        {
            "what": "leave the Transposes out, shown for Mul in float32",
            "case": "workaround-no-transpose-float",
            "cases": ["constant-*", "wide-*", "matrix-*", "images-*", "add-*", "subtract-*"],
        },
        {"what": "leave the Identity out", "case": "onehot-computed", "cases": ["onehot-identity"]},
        {
            "what": "make the factor of the MatMul an input, shown only without the Identity",
            "case": "onehot-input",
            "cases": ["onehot-identity"],
        },
    ],
    "rules": [
        {
            "what": "a constant operand between Transposes that cancel",
            "graph": [
                {"op": ["Transpose"], "where": ["moves data"]},
                {"op": ["Mul", "Add", "Sub"], "constant": [0, 1], "named": True},
                {"op": ["Transpose"], "where": ["turned back"]},
            ],
            "at": [
                {"versions": "==8.6.0.*", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "wrong", "basis": "reported", "on": "GTX 1660"},
                {"versions": ">=8.6,<9.1", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3447",
            "instead": "leave the Transposes out, or make the constant an input",
        },
        {
            "what": "a product with a constant that nodes compare and cast",
            "graph": [
                {"op": ["Equal"], "constant": [0]},
                {"op": ["Cast"], "constant": [0]},
                {"op": ["MatMul"], "named": True},
                {"op": ["Add"]},
                {"op": ["Identity"]},  # without it 8.6.0 is right
            ],
            "at": [
                {"versions": "==8.6.0.*", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.6,<9.1", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3447",
            "instead": "leave the Identity out, or make the factor an input (shown without the Identity)",
        },
    ],
}  # fmt: skip

SHAPES: Dict[str, Tuple[int, ...]] = {"matrix": (30, 39), "wide": (30, 39, 7), "images": (2, 8, 13, 11)}
SHAPE = (30, 39, 1)  # of all other forms
OPERATORS = {"add": "Add", "subtract": "Sub"}
ROWS, UPDATES, WIDTH = 64, 48, 32
NOISE = ("form", "type", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for kind in ("int32", "float", "half"):
        for order in ("102", "120", "210"):
            yield case("constant", kind, order)
            if kind != "half":
                yield case("inputs", kind, order, control="positive")
    for order in ("021", "201"):
        yield case("constant", "int32", order)
        yield case("constant", "float", order)
    for form, orders in {"wide": ("102", "120", "210"), "matrix": ("10",), "images": ("0231",)}.items():
        for order in orders:
            yield case(form, "float", order)
    for form in OPERATORS:
        yield case(form, "float", "102")
        yield case(form, "float", "210")
    for form in ("computed", "identity", "constant", "alone", "right", "input"):
        yield case("onehot-" + form, "float", "")
    yield case("no-transpose", "float", "", name="workaround-no-transpose-float")
    yield case("wrong-order", "float", "102", control="negative")


def case(form: str, kind: str, order: str, name: str = "", control: str = "") -> Dict[str, Any]:
    parts = [part for part in (form, "" if form.startswith("onehot") else kind, order) if part]
    made = name or ("control-" if control else "") + "-".join(parts)
    params = {"form": form, "type": kind, "order": order, "precision": "fp16" if kind == "half" else "fp32"}
    return {"id": made, "params": params, **({"control": control} if control else {})}


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """Products of two arrays, or rows added up by an index as a product with zeros and ones."""
    inputs, constant = drawn(params["form"], params["type"], seed)
    values = {name: array.astype(arithmetic.working) for name, array in inputs.items()}
    if not params["form"].startswith("onehot"):
        other = values.get("b", constant).astype(arithmetic.working)
        compute = {"add": np.add, "subtract": np.subtract}.get(params["form"], np.multiply)
        return {"y": arithmetic.stored(compute(values["a"], other))}
    if params["form"] == "onehot-right":
        product = arithmetic.matmul(values["updates"].T, constant.T).T
    else:
        product = arithmetic.matmul(constant.astype(arithmetic.working), values["updates"])
    return {"y": product if params["form"] == "onehot-alone" else arithmetic.stored(values["data"] + product)}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    inputs, constant = drawn(params["form"], params["type"], seed=0)
    graph = Graph()
    for name, array in inputs.items():
        graph.input(name, array.dtype, array.shape)
    (onehot if params["form"].startswith("onehot") else product)(graph, params, constant)
    reference = emulate(params, FLOAT64)
    graph.output("y", next(iter(inputs.values())).dtype, reference["y"].shape)
    return {"model": graph.model(), "inputs": inputs, "reference": reference}


def product(graph: Any, params: Dict[str, Any], constant: Any) -> None:
    """y = transpose(transpose(a) · transpose(b)); wrong-order: the last one is left out, the shape kept."""
    other = "b" if params["form"] == "inputs" else graph.initializer("b", constant)
    if params["form"] == "no-transpose":
        graph.node("Mul", "a", other, out="y")
        return
    order = [int(axis) for axis in params["order"]]
    back = [order.index(axis) for axis in range(len(order))]
    turned = [graph.node("Transpose", name, perm=order) for name in ("a", other)]
    multiplied = graph.node(OPERATORS.get(params["form"], "Mul"), *turned)
    if params["form"] == "wrong-order":
        graph.node("Reshape", multiplied, graph.constant(list(SHAPE)), out="y")
    else:
        graph.node("Transpose", multiplied, perm=back, out="y")


def onehot(graph: Any, params: Dict[str, Any], constant: Any) -> None:
    """data + onehot @ updates: as ScatterElements with reduction "add" is written where a parser drops it."""
    import onnx

    form = params["form"]
    if form in ("onehot-computed", "onehot-identity"):
        rows = graph.initializer("rows", np.arange(ROWS, dtype=np.float32)[:, None])
        index = graph.initializer("index", np.argmax(constant, axis=0).astype(np.float32)[None])
        factor = graph.node("Cast", graph.node("Equal", rows, index), to=onnx.TensorProto.FLOAT)
    else:
        factor = "onehot" if form == "onehot-input" else graph.initializer("onehot", constant)
    if form == "onehot-right":
        turned = graph.node("Transpose", "updates", perm=[1, 0])
        right = graph.node("MatMul", turned, graph.node("Transpose", factor, perm=[1, 0]))
        graph.node("Add", "data", graph.node("Transpose", right, perm=[1, 0]), out="y")
    elif form == "onehot-alone":
        graph.node("MatMul", factor, "updates", out="y")
    elif form == "onehot-identity":  # as the output of another layer
        graph.node("Identity", graph.node("Add", "data", graph.node("MatMul", factor, "updates")), out="y")
    else:
        graph.node("Add", "data", graph.node("MatMul", factor, "updates"), out="y")


def drawn(form: str, kind: str, seed: int) -> Tuple[Dict[str, Any], Any]:
    """Inputs and the constant; integers are small enough to be exact in float32."""
    random = np.random.default_rng(seed)
    if form.startswith("onehot"):
        constant = np.zeros((ROWS, UPDATES), np.float32)
        constant[random.integers(0, 12, UPDATES), np.arange(UPDATES)] = 1
        made = {
            "data": random.normal(size=(ROWS, WIDTH)),
            "updates": random.normal(size=(UPDATES, WIDTH)) + 2,
        }
        inputs = {name: array.astype(np.float32) for name, array in made.items()}
        if form == "onehot-alone":
            del inputs["data"]
        return {**inputs, **({"onehot": constant} if form == "onehot-input" else {})}, constant
    shape = SHAPES.get(form, SHAPE)
    pair = [random.integers(-50, 50, shape) if kind == "int32" else random.normal(size=shape) for _ in "ab"]
    a, b = (array.astype({"int32": np.int32, "half": np.float16}.get(kind, np.float32)) for array in pair)
    return ({"a": a, "b": b} if form == "inputs" else {"a": a}), b


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
