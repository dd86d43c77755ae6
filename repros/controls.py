"""Controls of the tool itself: graphs that must come out right, and graphs that are wrong on purpose.

Small, so that they can stand beside every run: what they show is that measuring and judging work.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "controls: known to be right, known to be wrong",
    "upstream": "trtmatrix",
    "url": "docs/verdicts.md",
    "summary": "A plain MatMul and Softmax, no attention that could be fused, must pass. Attention with the "
    "wrong scale put into its graph must fail by exactly that defect: no fusion can take it away.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {"lost-scale": {"what": "one √scale lost", "upstream": "NVIDIA/TensorRT#4333"}},
    "expectations": [],
    "workarounds": [],
}

HEADS, LENGTH, HEAD_SIZE = 4, 256, 64
NOISE = ("graph", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for precision in ("tf32", "fp32", "fp16", "fp16-flag"):
        yield {
            "id": f"matmul-softmax-{precision}",
            "params": {"graph": "matmul-softmax", "precision": precision},
            "control": "positive",
        }
        yield {
            "id": f"wrong-scale-{precision}",
            "params": {"graph": "wrong-scale", "precision": precision},
            "control": "negative",
            "defects": ["lost-scale"],
            "defect": "lost-scale",
        }


def softmax_scale(params: Dict[str, Any]) -> float:
    """What q kᵀ is multiplied by."""
    return float(HEAD_SIZE**-0.5)


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """The graph's mathematics in some arithmetic; small: one head, or 64 queries."""
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.core_attention import scale_left

    half = params["precision"] == "fp16"
    if params["graph"] == "matmul-softmax":
        a, b = factors(half, seed)
        heads = range(1 if small else HEADS)
        scores = np.stack([arithmetic.matmul(a[0, head], b[0, head]) for head in heads])[np.newaxis]
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return {"scores": scores, "y": arithmetic.stored(powers / powers.sum(axis=-1, keepdims=True))}
    size, weights, x = attention(half, seed)
    factor = scale_left(defect, softmax_scale(params))
    queries = 64 if small else None
    return {"y": block.compute(x, size, weights, q_factor=factor, arithmetic=arithmetic, queries=queries)}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.arithmetic import FLOAT64

    half = params["precision"] == "fp16"
    if params["graph"] == "matmul-softmax":
        a, b = factors(half, seed=0)
        model, inputs = matmul_softmax(a, b), {"a": a, "b": b}
    else:
        size, weights, x = attention(half, seed=0)
        model, inputs = block.build(size, weights, scale=math.sqrt(size.scale)), {"x": x}
    return {"model": model, "inputs": inputs, "reference": emulate(params, FLOAT64)}


def matmul_softmax(a: Any, b: Any) -> Any:
    """Two outputs: marked as one, the scores cannot be fused away."""
    from trtmatrix.authoring.graph import Graph

    graph = Graph()
    graph.input("a", a.dtype, a.shape)
    graph.input("b", b.dtype, b.shape)
    graph.node("MatMul", "a", "b", out="scores")
    graph.node("Softmax", "scores", axis=-1, out="y")
    for name in ("scores", "y"):
        graph.output(name, a.dtype, (1, HEADS, LENGTH, LENGTH))
    return graph.model()


@lru_cache(maxsize=4)
def factors(half: bool, seed: int) -> Any:
    """Two matrices a head, uniform in ±1: scores of deviation 2.7."""
    from trtmatrix.authoring.randoms import TorchRandom

    random = TorchRandom(seed)
    shapes = ((1, HEADS, LENGTH, HEAD_SIZE), (1, HEADS, HEAD_SIZE, LENGTH))
    a, b = ((2 * random.rand(*shape) - 1).astype(np.float16 if half else np.float32) for shape in shapes)
    return a, b


@lru_cache(maxsize=4)
def attention(half: bool, seed: int) -> Any:
    """Size, weights and x uniform in ±4: scores of deviation 1.8."""
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.randoms import TorchRandom

    size = block.Size(batch=1, length=LENGTH, heads=HEADS, head_size=HEAD_SIZE)
    random, dtype = TorchRandom(seed), np.float16 if half else np.float32
    x = (8 * random.rand(*size.x) - 4).astype(dtype)
    return size, block.Weights.draw(random, size.embed).astype(dtype), x


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
