"""TensorRT 10.0.0's fused attention kernel _gemm_mha_v2 gives outputs that are wrong, in FP16 only.

NVIDIA's note names no shape, so one attention block is swept: heads, head size, length, mask.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "wrong fused FP16 attention kernel _gemm_mha_v2",
    "upstream": "NVIDIA/TensorRT#3777",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3777",
    # See also NVIDIA/TensorRT#4167, NVIDIA/TensorRT#4837
    "summary": "By 10.0.0's release notes outputs mismatch PyTorch's and the CPU's where _gemm_mha_v2 is "
    "used, a kernel for FP16 only. NVIDIA advises 9.3; the one who asked found 10.0.1.6 right. 'FAIL fused' "
    "is the finding, 'PASS fused' a right kernel, 'PASS plain' none.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {  # what the kernel itself does wrong is told nowhere
        "lost-scale": {"what": "one √scale lost", "upstream": "NVIDIA/TensorRT#4333"},
        "lost-mask": {"what": "the mask not applied"},
    },
    "expectations": [  # the first that fits counts
        {
            "cases": ["fp16-h8-d64-s256"],
            "versions": "==9.3.0",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "a maintainer: use 9.3 until it is fixed; no shapes are given",
        },
        {
            "cases": ["fp16-h8-d64-s256"],
            "versions": "==10.0.1.6",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "the one who asked found it resolved; no shapes are given",
        },
        {
            "cases": ["fp16-s1"],
            "versions": "==10.0.0",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/pytorch/TensorRT/blob/main/tests/py/dynamo/hlo/test_quantized_attention.py",
            "note": "attention of one query has a kernel of its own in later releases, _gemv_mha_v1",
        },
        {
            "cases": ["fp16-*", "flag-*"],
            "versions": "==10.0.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "no shape, GPU or size of the error is reported: 'PASS plain' is no contradiction",
        },
        {
            "cases": ["fp16-sdpa*", "flag-sdpa*"],
            "versions": ">=10.3,<10.8",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://ohadravid.github.io/posts/2025-01-debugging-vit-and-tensorrt",
            "on": "L4",
            "note": "another finding: sdpa-scale, reported of a whole model also under the FP16 flag",
        },
    ],
    "workarounds": [
        {
            "what": "roll back to 9.3 (or go on to 10.0.1)",
            "case": None,
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
        },
        {"what": "build in float32: the kernel exists in FP16 only", "case": "workaround-fp32"},
        {"what": "cast q, k and v to float32, and the result back", "case": "workaround-wide"},
        {"what": "under the FP16 flag, keep softmax in float32", "case": "workaround-softmax-fp32"},
        {"what": "mark softmax's output as an output, against the fusion", "case": "workaround-output"},
    ],
    "rules": [
        {
            "what": "float16 attention that is fused into the kernel _gemm_mha_v2",
            "graph": [
                {
                    "op": ["MatMul"], "types": {0: ["float16"]}, "where": ["several rows"], "named": True,
                },
                {"op": ["Softmax"], "skip": ["Mul", "Div", "Add", "Where"], "where": ["no output"]},
                {"op": ["MatMul"]},
            ],
            "at": [{"versions": "==10.0.0.*", "effect": "wrong", "basis": "assumed"}],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "depends": "it is fused, and of a shape that NVIDIA's note does not give",
            "instead": "10.0.1, or float32",
        },
    ],
}  # fmt: skip

BASE: Dict[str, Any] = {
    "precision": "fp16", "formulation": "explicit", "mask": "none", "lost": "", "keep_fp32": "",
    "outputs": "", "batch": 2, "heads": 8, "head_size": 64, "length": 256,
}  # fmt: skip
ADDITIVE, PADDING = {"mask": "additive"}, {"mask": "padding"}
FLAG = {"precision": "fp16-flag"}
# Fused where compute capability is 7.5 or more, FP16, head size 16 to 256 by 8 (NVIDIA/TensorRT#4167).
ROWS: Dict[str, Dict[str, Any]] = {  # what differs from BASE
    "fp16-h8-d64-s256": {},
    **{f"fp16-h{heads}": {"heads": heads} for heads in (1, 3)},
    **{f"fp16-d{size}": {"head_size": size} for size in (16, 24, 32, 40, 48, 72, 80, 96, 128)},
    **{f"fp16-h4-d{size}": {"heads": 4, "head_size": size} for size in (160, 192, 256)},
    **{f"fp16-s{length}": {"length": length} for length in (1, 17, 64, 128, 197, 512, 1024)},
    "fp16-masked": ADDITIVE,
    "fp16-padding": PADDING,
    "fp16-bias": {"mask": "bias"},
    "fp16-causal": {"mask": "causal"},
    "fp16-d40-s17": {"head_size": 40, "length": 17},
    "fp16-d80-s197-padding": {"head_size": 80, "length": 197, **PADDING},
    "fp16-bert-masked": {"formulation": "bert", **ADDITIVE},
    "fp16-sdpa": {"formulation": "sdpa"},
    "fp16-sdpa-masked": {"formulation": "sdpa", **ADDITIVE},
    "flag-d64": FLAG,
    "flag-d40": {**FLAG, "head_size": 40},
    "flag-s197": {**FLAG, "length": 197},
    "flag-padding": {**FLAG, **PADDING},
    "flag-bert-masked": {**FLAG, "formulation": "bert", **ADDITIVE},
    "flag-sdpa-padding": {**FLAG, "formulation": "sdpa", **PADDING},
    "workaround-fp32": {"precision": "fp32"},
    "workaround-tf32": {"precision": "tf32"},
    "workaround-wide": {"formulation": "wide"},
    "workaround-wide-masked": {"formulation": "wide", **ADDITIVE},
    "workaround-softmax-fp32": {**FLAG, "keep_fp32": "Softmax"},
    "workaround-output": {"outputs": "/Softmax_output_0"},
    # graphs without the mask, or with √scale for scale
    "control-lost-mask": {**ADDITIVE, "lost": "mask"},
    "control-lost-mask-fp32": {**PADDING, "precision": "fp32", "lost": "mask"},
    "control-lost-scale": {"lost": "scale"},
    "control-lost-scale-flag": {**FLAG, "lost": "scale"},
}
DRAWN = ("batch", "heads", "head_size", "length", "mask")
NOISE = (*DRAWN, "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for name, own in ROWS.items():
        params = {**BASE, **own}
        made = {"id": name, "params": params, "defects": ["lost-scale"]}
        if params["mask"] != "none":
            made["defects"] = ["lost-scale", "lost-mask"]
        if params["lost"]:
            made.update(control="negative", defect="lost-" + params["lost"])
        yield made


def softmax_scale(params: Dict[str, Any]) -> float:
    """What q kᵀ is multiplied by."""
    return float(params["head_size"] ** -0.5)


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """The block in some arithmetic; small: 128 queries, of all batch rows only where their masks differ."""
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.core_attention import scale_left

    size, weights, x, mask = drawn(*drawn_by(params), seed=seed)
    factor = scale_left(defect, softmax_scale(params))
    part: Dict[str, Any] = {}
    if small:
        part = {"rows": None if params["mask"] in {"additive", "padding"} else 1, "queries": 128}
    added = None if defect == "lost-mask" else block.addend(params["mask"], size, mask)
    y = block.compute(x, size, weights, mask=added, q_factor=factor, arithmetic=arithmetic, **part)
    return {"y": y}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring import attention as block

    size, weights, x, mask = drawn(*drawn_by(params), seed=0)
    lost = params["lost"]
    formulation = params["formulation"].replace("sdpa", "sdpa-default")
    scale = math.sqrt(size.scale) if lost == "scale" else None
    mask_put_in: Any = "none" if lost == "mask" else params["mask"]
    model = block.build(size, weights, formulation, mask_put_in, scale=scale)
    inputs = {"x": x} if mask is None or lost == "mask" else {"x": x, "mask": mask}
    return {"model": model, "inputs": inputs, "reference": {"y": reference(*drawn_by(params))}}


def drawn_by(params: Dict[str, Any]) -> Tuple[Any, ...]:
    return (*(params[name] for name in DRAWN), params["precision"] == "fp16")


@lru_cache(maxsize=4)
def reference(*drawing: Any) -> Any:
    from trtmatrix.authoring.arithmetic import FLOAT64

    params = {**dict(zip(DRAWN, drawing[:-1], strict=True)), "precision": "fp16" if drawing[-1] else "fp32"}
    return emulate(params, FLOAT64)["y"]


@lru_cache(maxsize=4)
def drawn(batch: int, heads: int, head_size: int, length: int, mask: Any, half: bool, seed: int) -> Any:
    """Size, weights, x uniform in ±4 (zero mean; scores of deviation 1.8), mask."""
    from trtmatrix.authoring import attention as block
    from trtmatrix.authoring.randoms import TorchRandom

    size = block.Size(batch=batch, length=length, heads=heads, head_size=head_size)
    random, dtype = TorchRandom(seed), np.float16 if half else np.float32
    x = (8 * random.rand(*size.x) - 4).astype(dtype)  # rounded first: the reference is of what is rounded
    weights = block.Weights.draw(random, size.embed).astype(dtype)
    return size, weights, x, block.draw_mask(mask, size, random, dtype)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    options = {name: params[name].split() for name in ("keep_fp32", "outputs")}
    engine = trt.build(files.model, precision=params["precision"], **options)
    y = engine.run(files.inputs)["y"]
    trt.remark(engine.fusion(files.inputs))
    return {"y": y}


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
