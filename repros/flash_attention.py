"""Is attention fused out of the box? softmax(scale · q kᵀ [+ mask]) v as torch exports it, at many lengths.

A case passes if its numbers are right and its engine is seen to be fused (float16) or not to be (float32).
"""

from __future__ import annotations

import statistics
import time
from functools import lru_cache
from typing import Any, Callable, Dict, Iterator

import numpy as np

FACTS = {
    "title": "attention fused out of the box",
    "upstream": "NVIDIA/TensorRT#3647",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3647",
    # See also NVIDIA/TensorRT#3620, NVIDIA/TensorRT#3665, NVIDIA/TensorRT#4410, NVIDIA/TensorRT#4537
    "summary": "A maintainer believes that 9.2 supports flash attention out of the box through ONNX; the one "
    "who asked saw about 1.5 times the speed of torch 2.2. Neither GPU nor shapes are given; masks and "
    "unequal lengths are left open. Others saw it not fused: a large batch on 9.2, masks on 10.8.",
    "figure": {"measure": "speedup", "label": "latency where it cannot be fused ÷ latency"},
    "expectations": [  # the first that fits counts
        {
            "cases": ["control-*"],
            "versions": ">=8",
            "verdict": "FAIL",
            "basis": "assumed",
            "note": "a known defect put in: wrong, fused or not",
        },
        {
            "cases": ["causal-*-fp16", "causal-*-fp16-flag"],
            "versions": "==8.6.0",
            "verdict": "PASS",
            "basis": "measured",
            "on": "NVIDIA H200",
            "note": "fused: the kernel is called mha0; an early-access release, no evidence for 8.6.1",
        },
        {
            "cases": ["sdpa-*-fp16", "sdpa-*-fp16-flag", "explicit-*-fp16"],
            "versions": "==8.6.0",
            "verdict": "FAIL",
            "basis": "measured",
            "on": "NVIDIA H200",
            "note": "right, not fused: two products and a softmax of their own; inside a block "
            "(gemm-mha-v2) the same attention is fused",
        },
        {
            "cases": ["causal-*-fp16", "padding-*-fp16"],
            "versions": ">=9",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/2981",
            "note": "right, not fused: in torch's half export softmax and the second product are in float32; "
            "both products must be FP16, BF16 or INT8. TensorRT-RTX 1.4 and 1.7 do not fuse it",
        },
        {
            "cases": ["*-fp16", "*-fp16-flag"],
            "versions": "<8.6",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3280",
            "note": "right, not fused: a maintainer says that it takes 8.6; GPT-2 on 8.5.3.1: #2736",
        },
        {
            "cases": ["causal-*-fp16", "causal-*-fp16-flag", "workaround-causal-*"],
            "versions": ">=8.6,<9",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/2981",
            "note": "right, not fused: GPT-2 on 8.6.1; a maintainer: decoders only with a key-value cache",
        },
        {
            "cases": ["window-*", "padding-*", "workaround-padding-*"],
            "versions": ">=8.6,<9",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/2736",
            "note": "right, not fused: T5, whose attention adds a bias, on 8.6",
        },
        {
            "cases": ["*-fp16", "*-fp16-flag"],
            "versions": ">=8.6,<9",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3575",
            "note": "a model on x86 with 8.6.1; 8.6 shows one ForeignNode: only the kernels tell",
        },
        {
            "cases": ["*-fp16", "*-fp16-flag"],
            "versions": "==10.0.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "fused, and wrong: _gemm_mha_v2 in FP16; no shapes are given",
        },
        {
            "cases": ["sdpa-*", "causal-*", "window-*", "padding-*", "workaround-*"],
            "versions": ">=10.3,<10.8",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://ohadravid.github.io/posts/2025-01-debugging-vit-and-tensorrt",
            "note": "wrong: √scale on both q and kᵀ, the repro sdpa-scale",
        },
        {
            "cases": ["sdpa-128-*", "sdpa-512-fp16*", "sdpa-2048-*", "sdpa-4096-*", "explicit-*"],
            "versions": "==9.2.0",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3647",
            "note": "a maintainer believes so, no shapes are given; #3665 has one that 9.2 did not fuse",
        },
        {
            "cases": ["sdpa-128-*", "sdpa-512-fp16*", "sdpa-2048-*", "sdpa-4096-*", "explicit-*"],
            "versions": ">9.2",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3647",
        },
        {
            "cases": ["window-*", "padding-*", "causal-*-fp16-flag", "workaround-*"],
            "versions": ">=9.2",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4410",
            "note": "maintainers: masks should be fused, might not be; TensorRT-RTX 1.4 and 1.7 fuse them",
        },
    ],
    "defects": {
        "lost-scale": {"what": "one √scale lost", "upstream": "NVIDIA/TensorRT#4333"},
        "lost-mask": {"what": "the mask ignored"},
        "causal-ahead": {"what": "each query sees one key too many"},
    },
    "workarounds": [
        {
            "what": "pass a causal mask to torch as an additive one in float16, where is_causal is not fused",
            "case": "workaround-causal-512-fp16",
        },
        {
            "what": "pass a boolean mask to torch as an additive one in float16",
            "case": "workaround-padding-512-fp16",
        },
        {
            "what": "rewrite attention to the pattern that is recognised, softmax(q · scale @ kᵀ) @ v",
            "case": "explicit-512-fp16",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3620",
        },
    ],
}

# batch, heads, queries, keys. In blocks of 128 queries these are 128 or 256 blocks for an H200's 132
# multiprocessors (1x2048 has 64), and float64 and ONNX Runtime need about 1 s at most on one core.
# At length 128, and with one query, launches are much of the latency: the speedup says less there.
SIZES = {
    "128": (32, 8, 128, 128),
    "512": (8, 8, 512, 512),
    "2048": (1, 8, 2048, 2048),
    "4096": (1, 4, 4096, 4096),
    "512x77": (8, 8, 512, 77),
    "1x2048": (8, 8, 1, 2048),
    "1024x4096": (2, 8, 1024, 4096),
}
HEAD_SIZE = 64
KINDS: Dict[str, Any] = {  # the graph's form, the reference's mask, the mask that the graph is given
    "sdpa": ("sdpa", "none", "none"),
    "explicit": ("explicit", "none", "none"),
    "causal": ("causal", "causal", "none"),
    "window": ("additive", "window", "window"),
    "padding": ("boolean", "padding", "padding"),
    "workaround-causal": ("additive", "causal", "causal"),
    "workaround-padding": ("additive", "padding", "padding"),
    "control-causal-ahead": ("additive", "causal", "ahead"),
    "control-lost-mask": ("additive", "window", "nothing"),
}
ROWS = {
    "sdpa": "128:fp16 512:fp16 512:fp16-flag 512:tf32 512:fp32 2048:fp16 4096:fp16 "
    "512x77:fp16 1x2048:fp16 1024x4096:fp16",
    "explicit": "512:fp16 2048:fp16",
    "causal": "512:fp16 512:tf32 2048:fp16-flag",
    "window": "512:fp16 2048:fp16",
    "padding": "512:fp16 512:fp16-flag 512x77:fp16-flag",
    "workaround-causal": "512:fp16",
    "workaround-padding": "512:fp16",
    "control-causal-ahead": "512:fp16 512:tf32",
    "control-lost-mask": "512:fp16",
}
EXTENTS = ("batch", "heads", "queries", "keys", "head_size")
NOISE = (*EXTENTS, "mask", "precision")
DEFECTS = {"none": ["lost-scale"], "causal": ["lost-scale", "lost-mask", "causal-ahead"]}
ROUNDS = 5


def cases() -> Iterator[Dict[str, Any]]:
    for kind, row in ROWS.items():
        mask, negative = KINDS[kind][1], kind.startswith("control-")
        for lengths, precision in (item.split(":") for item in row.split()):
            size = dict(zip(EXTENTS, (*SIZES[lengths], HEAD_SIZE)))  # noqa: B905 - not in Python 3.8
            yield {
                "id": f"{kind}-{lengths}-{precision}",
                "params": {"kind": kind, "mask": mask, "precision": precision, **size},
                "control": "negative" if negative else None,
                "defects": DEFECTS.get(mask, ["lost-scale", "lost-mask"]),
                "remarks": [] if negative else ["fused" if precision.startswith("fp16") else "plain"],
                **({"defect": kind.replace("control-", "")} if negative else {}),
            }


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring import core_attention as core

    form, _, given = KINDS[params["kind"]]
    size, dtype = extents(params)
    inputs, put_in = core.draw(size, dtype), core.draw_mask(given, size, dtype)
    if put_in is not None:
        put_in = core.addend(put_in).astype(dtype) if form == "additive" else put_in
        inputs["mask"] = put_in
    y = reference(size, params["mask"], dtype)
    return {"model": core.build(form, size, dtype, put_in), "inputs": inputs, "reference": {"y": y}}


def emulate(params: Any, arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False) -> Any:
    from trtmatrix.authoring import core_attention as core

    how = {"arithmetic": arithmetic, "defect": defect, "seed": seed, "small": small}
    size, dtype = extents(params)
    return {"y": core.emulate(size, params["mask"], dtype, **how)}


@lru_cache(maxsize=2)
def reference(size: Any, mask: Any, dtype: Any) -> Any:
    from trtmatrix.authoring import core_attention as core

    return core.emulate(size, mask, dtype)


def extents(params: Dict[str, Any]) -> Any:
    from trtmatrix.authoring import core_attention as core

    size = core.Size(**{name: params[name] for name in EXTENTS})
    return size, np.float16 if params["precision"] == "fp16" else np.float32


def softmax_scale(params: Dict[str, Any]) -> float:
    return float(params["head_size"] ** -0.5)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    precision = params["precision"]
    if not trt.has_streams:  # the numbers, or that it builds
        return trt.build(files.model, precision=precision).run(files.inputs)
    apart = trt.build(files.model, precision=precision, outputs=("/Softmax_output_0",))
    trt.measure("apart_fused", apart.fusion(files.inputs) == "fused")  # 1 would spoil the figure
    engine = trt.build(files.model, precision=precision)  # the last: the record's layers are this one's
    outputs = engine.run(files.inputs)
    trt.remark(engine.fusion(files.inputs))
    clocks: Dict[str, Callable[[], float]] = {
        "ms": lambda: float(engine.latency(files.inputs)),
        "plain_ms": lambda: float(apart.latency(files.inputs)),
    }
    if precision.startswith("fp16") and cuda_torch() is not None:
        clocks["torch_ms"] = TorchAttention(params, files.inputs).latency
    for name, value in race(clocks).items():
        trt.measure(name, value)
    return outputs


def race(clocks: Dict[str, Callable[[], float]]) -> Dict[str, float]:
    """Medians of the times and of their ratios to the engine's, over rounds that time each in turn."""
    rounds = [{name: clock() for name, clock in clocks.items()} for _ in range(ROUNDS)]
    found = {name: statistics.median(one[name] for one in rounds) for name in clocks}
    for ratio, name in {"speedup": "plain_ms", "torch_speedup": "torch_ms"}.items():
        if name in clocks:
            found[ratio] = statistics.median(one[name] / one["ms"] for one in rounds)
    return found


def cuda_torch() -> Any:
    """The module torch, or None where it is not there or has no GPU."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch if torch.cuda.is_available() else None


class TorchAttention:
    """F.scaled_dot_product_attention in float16 on the same inputs, with the kernel that torch chooses."""

    def __init__(self, params: Dict[str, Any], inputs: Dict[str, np.ndarray]) -> None:
        self.torch, self.causal = cuda_torch(), params["kind"] == "causal"
        tensors = {name: self.torch.tensor(array, device="cuda") for name, array in inputs.items()}
        self.q, self.k, self.v = (tensors[name].half() for name in "qkv")
        mask = tensors.get("mask")
        self.mask = mask if mask is None or mask.dtype == self.torch.bool else mask.half()

    def latency(self, runs: int = 50) -> float:
        """As Engine.latency measures it: warm, the median of single runs between events, in milliseconds."""
        started = time.perf_counter()
        while time.perf_counter() - started < 0.05:
            self.once()
        return statistics.median(self.once() for _ in range(runs))

    def once(self) -> float:
        before, after = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        attend = self.torch.nn.functional.scaled_dot_product_attention
        attend(self.q, self.k, self.v, attn_mask=self.mask, is_causal=self.causal)
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after))


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
