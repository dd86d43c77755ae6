"""Operators of ONNX's evaluator (``onnx.reference``) that it computes wrongly, computed as the standard says.

What each class is about stands in its docstring, for onnx 1.23.2; where the evaluator is right, the results
are its own. https://onnx.ai/onnx/operators/ has the definitions.
"""

# ruff: noqa: ANN401, SLF001 - what the evaluator calls is private, and has no types

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import NodeProto
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_average_pool, op_batch_normalization, op_conv_transpose, op_roi_align

Array = NDArray[Any]

_AveragePool: Any = op_average_pool.AveragePool_19  # Any: their own methods have no types
_BatchNormalization: Any = op_batch_normalization.BatchNormalization_14
_ConvTranspose: Any = op_conv_transpose.ConvTranspose
_RoiAlign: Any = op_roi_align.RoiAlign


class _Versioned(OpRun):
    """An operator with the attributes and defaults of the version that the model asks for.

    The evaluator takes those of the newest version for what is not its own.
    """

    def __init__(self, node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        schema = schema or onnx.defs.get_schema(node.op_type, run_params["opsets"][node.domain], node.domain)
        self.version = int(schema.since_version)
        super().__init__(node, run_params, schema)


class BatchNormalization(_Versioned, _BatchNormalization):  # type: ignore[misc]  # of Any
    """From opset 7 to 13 it is that of inference: the evaluator mixes in the batch's own statistics."""

    def _run(self, x: Array, *parameters: Array, **attributes: Any) -> tuple[Array, ...]:
        if self.version >= 14:
            return tuple(_BatchNormalization._run(self, x, *parameters, **attributes))
        is_inference = self.version >= 7 or attributes.get("is_test")
        if not is_inference or len(self.output) > 1 or attributes.get("spatial", 1) != 1:
            raise NotImplementedError("training, or statistics of each element")
        return tuple(
            _BatchNormalization._run(self, x, *parameters, epsilon=attributes["epsilon"], training_mode=0)
        )


class _AlongAxis(_Versioned):
    """Before opset 13 all axes from ``axis`` on are one: the evaluator takes that axis alone."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        if not x.size:
            return (x,)
        if self.version >= 13:
            return (self.along(x, axis).astype(x.dtype),)
        rows = prod(x.shape[: axis + x.ndim if axis < 0 else axis])
        return (self.along(x.reshape(rows, -1), 1).reshape(x.shape).astype(x.dtype),)

    def along(self, x: Array, axis: int) -> Array:
        """Return the results along an axis."""
        raise NotImplementedError


class Softmax(_AlongAxis):
    """exp(x) over its sum."""

    def along(self, x: Array, axis: int) -> Array:
        """Return the results along an axis."""
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


class LogSoftmax(Softmax):
    """The logarithm of that; where the evaluator's quotient is 0, and its logarithm -infinity, it is not."""

    def along(self, x: Array, axis: int) -> Array:
        """Return the results along an axis."""
        plain = np.log(super().along(x, axis))
        shifted = x - x.max(axis=axis, keepdims=True)
        exact = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        return np.where(np.isneginf(plain), exact, plain)


class Hardmax(_AlongAxis):
    """1 at the first of the greatest, 0 elsewhere."""

    def along(self, x: Array, axis: int) -> Array:
        """Return the results along an axis."""
        found = np.zeros_like(x)
        np.put_along_axis(found, np.expand_dims(x.argmax(axis=axis), axis), 1, axis=axis)
        return found


class LRN(_Versioned):
    """Sums of squares over neighbouring channels: the evaluator has them of as many channels as images."""

    def _run(self, x: Array, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
        sums = np.zeros_like(x)
        for c in range(x.shape[1]):
            part = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
            sums[:, c] = np.sum(part**2, axis=1)
        return ((x / ((bias + (alpha / size) * sums) ** beta)).astype(x.dtype),)


class LpNormalization(_Versioned):
    """x over the sum of |x|^p, to the power of 1/p: the evaluator leaves out the absolute value."""

    def _run(self, x: Array, axis: int, p: int) -> tuple[Array]:
        norm = np.expand_dims(np.power(np.power(np.abs(x), p).sum(axis=axis), 1.0 / p), axis)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class GlobalMaxPool(_Versioned):
    """The maximum over all axes of space: the evaluator takes two axes, however many there are."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(_Versioned):
    """The evaluator's shapes are wrong where the pads of an axis differ, and for SAME_LOWER with strides."""

    def _run(self, x: Array, kernel_shape: Sequence[int], **attributes: Any) -> tuple[Array, ...]:
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        windows, corners = _windows(x, kernel_shape, lowest, attributes)
        if len(self.output) == 1:
            return (windows.max(axis=tuple(range(x.ndim, windows.ndim))),)
        flat = windows.reshape(*windows.shape[: x.ndim], -1)
        best, space = flat.argmax(axis=-1), x.shape[2:]
        dilations = attributes.get("dilations") or [1] * len(space)
        places = [
            corner + step * dilation
            for corner, step, dilation in zip(
                corners, np.unravel_index(best, kernel_shape), dilations, strict=True
            )
        ]
        order = "F" if attributes.get("storage_order") else "C"
        planes = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(space)) * prod(space)
        found = np.ravel_multi_index(tuple(places), space, order=order)  # type: ignore[call-overload]
        return flat.max(axis=-1), (planes + found).astype(np.int64)


class AveragePool(_Versioned, _AveragePool):  # type: ignore[misc]  # of Any
    """The evaluator moves the windows where ``ceil_mode`` makes the last one longer than what there is."""

    def _run(
        self, x: Array, kernel_shape: Sequence[int], count_include_pad: int = 0, **attributes: Any
    ) -> tuple[Array]:
        if not attributes.get("ceil_mode") or attributes.get("auto_pad", "NOTSET") != "NOTSET":
            told = {"kernel_shape": kernel_shape, "count_include_pad": count_include_pad}
            return (np.asarray(_AveragePool._run(self, x, **told, **attributes)[0]),)
        windows, corners = _windows(x, kernel_shape, 0, attributes)
        space = len(kernel_shape)
        pads = (attributes.get("pads") if count_include_pad else None) or [0] * 2 * space
        dilations = attributes.get("dilations") or [1] * space
        counts = np.ones(corners[0].shape, np.int64)
        for i, corner in enumerate(corners):  # what lies behind the pads is never counted
            places = corner[..., None] + np.arange(kernel_shape[i]) * dilations[i]
            inside = (places >= -pads[i]) & (places < x.shape[2 + i] + pads[i + space])
            counts *= inside.sum(axis=-1)
        return ((windows.sum(axis=tuple(range(-space, 0))) / counts).astype(x.dtype),)


def _windows(
    x: Array, kernel: Sequence[int], fill: float, attributes: dict[str, Any]
) -> tuple[Array, list[Array]]:
    """Return the windows of a pool [N, C, *places, *kernel], and where they begin in ``x``, an axis each."""
    space = len(kernel)
    strides, dilations = (attributes.get(name) or [1] * space for name in ("strides", "dilations"))
    pads, same = list(attributes.get("pads") or [0] * 2 * space), str(attributes.get("auto_pad") or "NOTSET")
    width, counts = [(0, 0), (0, 0)], []
    for i, size in enumerate(x.shape[2:]):
        long, stride = (kernel[i] - 1) * dilations[i] + 1, strides[i]
        if same.startswith("SAME"):
            count = -(-size // stride)
            missing = max(0, (count - 1) * stride + long - size)
            pads[i] = missing // 2 if same == "SAME_UPPER" else missing - missing // 2
        else:
            room = size + pads[i] + pads[i + space] - long
            count = (-(-room // stride) if attributes.get("ceil_mode") else room // stride) + 1
            count -= (count - 1) * stride >= size + pads[i]  # the last window would begin behind the end
        counts.append(count)
        width.append((pads[i], max(0, (count - 1) * stride + long - size - pads[i])))
    padded = np.pad(x, width, constant_values=fill)
    whole = [(kernel[i] - 1) * dilations[i] + 1 for i in range(space)]
    windows = sliding_window_view(padded, whole, axis=tuple(range(2, 2 + space)))
    steps = [
        slice(0, (count - 1) * stride + 1, stride) for count, stride in zip(counts, strides, strict=True)
    ]
    inner = [slice(None, None, dilation) for dilation in dilations]
    begins = [np.arange(counts[i]) * strides[i] - pads[i] for i in range(space)]
    taken = (slice(None), slice(None), *steps, *inner)
    return windows[taken], list(np.meshgrid(*begins, indexing="ij"))


class ConvTranspose(_Versioned, _ConvTranspose):  # type: ignore[misc]  # of Any
    """Each group has its own output channels and bias: the evaluator gives all groups those of the first."""

    def _run(
        self, x: Array, w: Array, bias: Array | None = None, *, group: int, **attributes: Any
    ) -> tuple[Array]:
        biases = [None] * group if bias is None else np.split(bias, group)
        parts = zip(np.split(x, group, axis=1), np.split(w, group), biases, strict=True)
        found = [_ConvTranspose._run(self, *part, group=1, **attributes)[0] for part in parts]
        return (np.concatenate(found, axis=1),)


class RoiAlign(_Versioned, _RoiAlign):  # type: ignore[misc]  # of Any
    """Before opset 16 the corners are not moved by half a pixel."""

    def _run(self, *inputs: Array, **attributes: Any) -> tuple[Array]:
        if self.version < 16:
            attributes["coordinate_transformation_mode"] = "output_half_pixel"
        return (np.asarray(_RoiAlign._run(self, *inputs, **attributes)[0]),)


OPERATORS: tuple[type[OpRun], ...] = (
    AveragePool, BatchNormalization, ConvTranspose, GlobalMaxPool, Hardmax, LRN, LogSoftmax, LpNormalization,
    MaxPool, RoiAlign, Softmax,
)  # fmt: skip
"""Each has the operator's name: that is how the evaluator finds it."""
