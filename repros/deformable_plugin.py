"""NVIDIA's deformable attention plugin takes INT32; TensorRT 9's parser gives it the INT64 that ONNX has.

The one node of MultiscaleDeformableAttnPlugin_TRT, as Deformable-DETR's exports call it, with the levels'
shapes and starts as constants of either type. ONNX Runtime, which has no plugins, gets it written out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "INT64 inputs of the deformable attention plugin",
    "upstream": "NVIDIA/TensorRT#3777",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3777",
    # See also https://github.com/NVIDIA/TensorRT/tree/main/plugin/multiscaleDeformableAttnPlugin,
    # https://github.com/onnx/onnx-tensorrt/blob/main/docs/Changelog.md, NVIDIA/TensorRT#4813
    "summary": "A model with MultiscaleDeformableAttnPlugin_TRT builds with 8.6.1 and not with 9.1 to 9.3: "
    "'could not find any supported formats consistent with input/output data types'. Inputs 1 and 2 must be "
    "INT32. Up to 8.6 the parser casts INT64 to INT32, from 9.0 on no longer, from 10.0 on here again.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "expectations": [
        {
            "cases": ["int64-fp16-flag"],
            "versions": "==9.2.0",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "of a whole model, on the way to FP16 engines; neither GPU nor types are given. That the "
            "two inputs are INT64 is inferred from the plugin's and the parser's source",
        },
        {
            "cases": ["int64-fp16-flag"],
            "versions": "==9.3.0",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "as with 9.2.0",
        },
        {
            "cases": ["int64-fp16-flag"],
            "versions": "==8.6.1",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "the same model is built and run successfully",
        },
        {
            "cases": ["int64-fp16-flag"],
            "versions": "==10.0.1.6",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "note": "'the issue has been resolved'; said below the failed builds, of the whole thread",
        },
        {
            "cases": ["int64-*"],
            "versions": ">=9,<10",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/onnx/onnx-tensorrt/blob/main/docs/Changelog.md",
            "note": "since 9.0 the parser no longer casts INT64 to INT32; neither precision nor size matters",
        },
    ],
    "defects": {
        "wrong-start": {"what": "the second level starts at the first one's last row"},
        "exchanged": {"what": "heights and widths exchanged"},
        "shifted": {"what": "sampled half a pixel beside"},
        "align-corners": {"what": "sampled as with align_corners=True"},
        "border": {"what": "the border repeated instead of zeros"},
    },
    "workarounds": [
        {
            "what": "keep the shapes and starts as int32 tensors (.int(); torch's exporter folds it)",
            "case": "workaround-int32-fp16-flag",
            "source": "https://github.com/NVIDIA/TensorRT/tree/main/plugin/multiscaleDeformableAttnPlugin",
        },
        {"what": "cast them to int32 by nodes in front of the plugin", "case": "workaround-cast-fp16-flag"},
        {
            "what": "stay with 8.6.1, or go on to 10.0.1",
            "case": None,
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
        },
    ],
    "rules": [
        {
            "what": "its INT64 inputs 1 and 2, where the plugin takes INT32",
            "graph": [{"op": ["MultiscaleDeformableAttnPlugin_TRT"], "types": {1: ["int64"]}}],
            "at": [
                {"versions": "==9.2.*", "effect": "refused", "basis": "reported"},
                {"versions": "==9.3.*", "effect": "refused", "basis": "reported"},
                {"versions": ">=9,<10", "effect": "refused", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3777",
            "instead": "keep the shapes and starts as int32 tensors, or cast them in front of the plugin",
        },
    ],
}  # fmt: skip

BASE = {"batch": 2, "heads": 8, "channels": 32, "queries": 300, "points": 4}  # as Deformable-DETR's decoder
VARIATIONS: Dict[str, Dict[str, Any]] = {  # levels: height x width; beyond: how far locations leave 0 to 1
    "": {"levels": "50x67 25x34 13x17 7x9", "beyond": 0.0},
    "-outside": {"levels": "25x34 13x17 7x9 4x5", "beyond": 0.25},
    "-one-level": {"levels": "33x47", "beyond": 0.0},
}
ROWS: Dict[str, Dict[str, str]] = {  # how the constants come: variation: precisions
    "int64": {"": "fp32 fp16 fp16-flag", "-outside": "fp32 fp16", "-one-level": "fp32"},
    "workaround-int32": {"": "fp32 fp16 fp16-flag", "-outside": "fp32 fp16", "-one-level": "fp32 fp16"},
    "workaround-cast": {"": "fp32 fp16-flag"},  # int64, with a Cast to int32 behind each
    # int32, and one of FACTS["defects"]
    "control-wrong-start": {"": "fp32 fp16"},
    "control-exchanged": {"": "fp32 fp16"},
}
NOISE = (*BASE, "levels", "beyond", "precision")
PART = 100  # queries of the small part


def cases() -> Iterator[Dict[str, Any]]:
    for constants, variations in ROWS.items():
        for variation, precisions in variations.items():
            put_in = constants.partition("control-")[2]
            sought = [
                name
                for name in FACTS["defects"]
                if name != "wrong-start" or " " in VARIATIONS[variation]["levels"]
            ]
            for precision in precisions.split():
                own = {"constants": put_in or constants.split("-")[-1], "precision": precision}
                yield {
                    "id": f"{constants}-{precision}{variation}",
                    "params": {**BASE, **VARIATIONS[variation], **own},
                    "control": "negative" if put_in else None,
                    "defects": sought,
                    "bug_is": ["build failed"] if constants == "int64" else [],
                    **({"defect": put_in} if put_in else {}),
                }


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring import deformable

    dtype = np.float16 if params["precision"] == "fp16" else np.float32
    size, inputs = drawn(*key(params))
    shapes, starts = size.told(params["constants"])
    if params["constants"] not in ("int64", "cast"):
        shapes, starts = shapes.astype(np.int32), starts.astype(np.int32)
    model, check = (
        deformable.build(size, dtype, shapes, starts, cast=params["constants"] == "cast", written_out=flag)
        for flag in (False, True)
    )
    return {"model": model, "check": check, "inputs": inputs, "reference": {"y": reference(*key(params))}}


def emulate(params: Any, arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False) -> Any:
    from trtmatrix.authoring import deformable

    size, inputs = drawn(*key(params), seed=seed)
    if small:
        asked = ("sampling_locations", "attention_weights")
        inputs = {name: x[:, :PART] if name in asked else x for name, x in inputs.items()}
    shapes, starts = size.told(defect)
    return {"y": deformable.compute(inputs, shapes, starts, arithmetic, defect)}


def key(params: Dict[str, Any]) -> Tuple[Any, ...]:
    return (params["precision"] == "fp16", params["levels"], params["beyond"], *(params[n] for n in BASE))


@lru_cache(maxsize=4)
def drawn(half: bool, levels: str, beyond: float, *extents: int, seed: int = 0) -> Any:
    from trtmatrix.authoring import deformable

    pairs = (level.split("x") for level in levels.split())
    maps = tuple((int(height), int(width)) for height, width in pairs)
    size = deformable.Size(**dict(zip(BASE, extents, strict=True)), levels=maps)
    return size, deformable.draw(size, np.float16 if half else np.float32, beyond, seed)


@lru_cache(maxsize=4)
def reference(*case: Any) -> Any:
    from trtmatrix.authoring import deformable

    size, inputs = drawn(*case)
    return deformable.compute(inputs, *size.told())


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    engine = trt.build(files.model, precision=params["precision"], plugins=True)
    return engine.run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
