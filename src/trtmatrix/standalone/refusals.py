"""Whether a parser refuses a graph for what its version does not have; the probe's, shortened."""

from __future__ import annotations

from typing import Any

from trtprobe import ends
from trtprobe.backends.refusals import ORT_OPERATOR, ORT_PLACE, ORT_VERSION, UNKNOWN_OPERATOR


def refused_by_tensorrt(parser: Any) -> ends.CellEnd:  # noqa: ANN401 - TensorRT's, known at run time only
    """Return how it ends: an operator that the version does not know is no failure of the build."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    lacks = any(UNKNOWN_OPERATOR.search(str(error)) or _is_unsupported(error) for error in errors)
    words = "the parser refused the graph: " + "; ".join(map(str, errors))
    return (ends.Unsupported if lacks else ends.BuildFailed)(words[:2000])


def _is_unsupported(error: Any) -> bool:  # noqa: ANN401 - as above
    code = getattr(error, "code", str)()
    return str(getattr(code, "name", code)).startswith("UNSUPPORTED")


def refused_by_onnxruntime(text: str) -> ends.CellEnd:
    """Return how it ends, from ONNX Runtime's words."""
    text = ORT_PLACE.sub("", text)
    lacks = ORT_VERSION.search(text) or ORT_OPERATOR.search(text)
    return (ends.Unsupported if lacks else ends.BuildFailed)(text[:2000])
