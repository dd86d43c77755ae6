"""A model of one's own, with inputs of its own: one engine, run once for each sample."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS: Dict[str, Any] = {}
SAMPLES = 1
"""How often the engine is run; files of several samples end in .s0, .s1 and so on."""
INPUTS: Dict[str, str] = {}
"""A file's name → the input's name in the graph."""
OUTPUTS: Dict[str, str] = {}
PROFILE: Dict[str, Any] = {}
"""The least, the usual and the largest shape of each dynamic input."""
QUANTIZED: Tuple[str, ...] = ()
"""What the graph's QuantizeLinear nodes round to."""
OPTIONS: Dict[str, Any] = {}
"""What else is asked of the build."""
FLOOR = ""
"""The precision that the noise floor is of."""
REFERENCE = ""
"""Who computes it: ONNX Runtime, or ONNX's own evaluator where ONNX Runtime is what is judged."""


def cases() -> Iterator[Dict[str, Any]]:
    yield {}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """The model, its inputs, and what the CPU computes of them, in float64 where it can."""
    from trtmatrix.onnxmodel.preparing import OwnModel

    return OwnModel(__file__, INPUTS, OUTPUTS, SAMPLES, FLOOR, REFERENCE).prepare()


def noise(params: Dict[str, Any]) -> Dict[str, Any]:
    """The errors of the same graph in less precision."""
    from trtmatrix.onnxmodel.preparing import OwnModel

    return OwnModel(__file__, INPUTS, OUTPUTS, SAMPLES, FLOOR, REFERENCE).noise()


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    from trtprobe.timing import time_engine

    options = dict(OPTIONS, **({"profile": PROFILE} if PROFILE else {}))
    if QUANTIZED:
        options["quantized"] = QUANTIZED
    engine = trt.build(files.model, precision=params["precision"], **options)
    inputs, found, feeds = files.inputs, {}, {}
    for sample in range(SAMPLES):
        mark = ".s%d" % sample if SAMPLES > 1 else ""
        feeds = {name: inputs[file + mark] for file, name in INPUTS.items()}
        outputs = engine.run(feeds)
        found.update({file + mark: outputs[name] for file, name in OUTPUTS.items()})
    if "atol" in params and files.reference:
        trt.measure("beyond", sum(beyond(found[name], files.reference[name], params) for name in found))
    time_engine(trt, engine, feeds, PROFILE)
    return found


def beyond(y: Any, r: Any, params: Dict[str, Any]) -> int:
    """How many elements are further off than |y - r| <= atol + rtol·|r|; NaN always is."""
    y, r = y.astype(np.float64), r.astype(np.float64)
    return int(np.count_nonzero(~np.isclose(y, r, params["rtol"], params["atol"])))


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
