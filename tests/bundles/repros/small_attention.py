"""Attention of one head, small enough to be run in a second: what a wrong fusion of its scale does to it."""

from __future__ import annotations

from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "attention without its scale", "upstream": "example/example#1", "url": "https://example.com/1",
    "summary": "One head of attention, whose scale a defective runtime takes for 1.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip
SIZE = 32


def cases() -> Iterator[Dict[str, Any]]:
    for name in ("scaled", "again"):
        yield {
            "id": name, "params": {"seed": len(name)}, "limits": {"max_abs": 1e-4},
            "products": ["onnxruntime"],
        }  # fmt: skip
    yield {"id": "on-a-gpu", "params": {"seed": 0}, "limits": {"max_abs": 1e-4}, "products": ["tensorrt"]}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    random = np.random.default_rng(params["seed"])
    feeds = {name: random.normal(size=(16, SIZE)).astype(np.float32) for name in "qkv"}
    graph = Graph(feeds)
    graph.node("Transpose", "k", perm=[1, 0], out="kt")
    graph.node("MatMul", "q", "kt", out="raw")
    graph.node("Mul", "raw", graph.constant(np.array(SIZE**-0.5, dtype=np.float32)), out="scores")
    graph.node("Softmax", "scores", axis=-1, out="shares")
    graph.node("MatMul", "shares", "v", out="y")
    graph.output("y", np.float32, (16, SIZE))
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k.T * np.float64(np.float32(SIZE**-0.5))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    reference = shares / shares.sum(-1, keepdims=True) @ v
    return {"model": graph.model(), "inputs": feeds, "reference": {"y": reference}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
