"""Names of the kernels that a call launches, through CUPTI's callback API, where CUPTI is there.

Source: https://docs.nvidia.com/cupti/api/group__CUPTI__CALLBACK__API.html. Callbacks need no counters and
so no permission; nothing is timed while they are on.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional

DRIVER_API = 1
"""CUPTI_CB_DOMAIN_DRIVER_API: TensorRT's kernels are launched by the driver's functions."""

ENTER = 0
"""CUPTI_API_ENTER."""

FUSED_KERNEL = re.compile(r"mha|flash|sdpa|attention", re.IGNORECASE)
FUSED_LAYER = re.compile(r"gemm_mha|fmha|mha_v\d|flash_att", re.IGNORECASE)
"""In layer names the graph's own node names stand too: only what TensorRT alone writes counts."""


class CallbackData(ctypes.Structure):
    """CUpti_CallbackData, as far as it is read here."""

    _fields_ = [
        ("site", ctypes.c_int), ("function", ctypes.c_char_p), ("params", ctypes.c_void_p),
        ("returned", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
    ]  # fmt: skip


Callback = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData)
)


def launched_kernels(call: Callable[[], None]) -> Optional[List[str]]:
    """Return the names of the kernels that ``call`` launches, in order, or None where that cannot be seen.

    Names are as compiled (mangled). None: no CUPTI, one that refuses this driver, or a launch of a
    whole CUDA graph, whose kernels have no names here.
    """
    library = open_cupti()
    names: List[str] = []
    hidden: List[bytes] = []

    def note(_user: Any, _domain: int, _id: int, data: Any) -> None:
        launch = data.contents
        if launch.site != ENTER or not launch.function.startswith((b"cuLaunch", b"cuGraphLaunch")):
            return
        if launch.symbol and launch.function.startswith(b"cuLaunch"):
            names.append(launch.symbol.decode("utf-8", "replace"))
        else:
            hidden.append(launch.function)

    callback, subscriber = Callback(note), ctypes.c_void_p()
    if library is None or library.cuptiSubscribe(ctypes.byref(subscriber), callback, None):
        call()
        return None
    try:
        refused = library.cuptiEnableDomain(1, subscriber, DRIVER_API)
        call()
    finally:
        library.cuptiUnsubscribe(subscriber)
    return None if refused or hidden or not names else names


def open_cupti() -> Optional[ctypes.CDLL]:
    """Return CUPTI from the loader's path, a CUDA toolkit or NVIDIA's wheel, or None."""
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _candidates() -> Iterator[str]:
    yield from ("libcupti.so.12", "libcupti.so.13")
    folders = ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"]
    for root in sys.path:
        folders += [str(Path(root, "nvidia", part, "lib")) for part in ("cuda_cupti", "cu13")]
    for folder in folders:
        yield from (str(path) for path in sorted(Path(folder).glob("libcupti.so.*")))


def see_fusion(layers: List[str], kernels: Optional[List[str]]) -> str:
    """Say ``"fused"``, ``"plain"`` or ``"?"`` of an engine's attention from what can be seen of it.

    ``layers``: layer and tactic names of the inspector; ``kernels``: the kernels of one run, or None.
    A region that TensorRT shows as one ``ForeignNode`` tells nothing by its name.
    """
    if any(FUSED_LAYER.search(name) for name in layers):
        return "fused"
    if kernels is not None:
        return "fused" if any(FUSED_KERNEL.search(name) for name in kernels) else "plain"
    hidden = not layers or any("ForeignNode" in name for name in layers)
    return "?" if hidden else "plain"
