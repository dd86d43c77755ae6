"""Clocks of the GPU that CUDA uses, through NVML, where the driver's folder has it."""

from __future__ import annotations

import ctypes
from typing import Any, Dict

SM, MEMORY = 1, 2
"""NVML_CLOCK_SM, NVML_CLOCK_MEM (https://docs.nvidia.com/deploy/nvml-api/)."""


def read_clocks(bus: str) -> Dict[str, Any]:
    """Return ``sm_mhz`` and ``memory_mhz`` at this moment of the GPU at a PCI bus id; empty without NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    device = ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(device)):
        return {}
    clocks: Dict[str, Any] = {}
    for name, kind in (("sm_mhz", SM), ("memory_mhz", MEMORY)):
        value = ctypes.c_uint()
        if nvml.nvmlDeviceGetClockInfo(device, kind, ctypes.byref(value)) == 0:
            clocks[name] = value.value
    return clocks
