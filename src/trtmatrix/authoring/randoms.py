"""The numbers that torch's CPU generator draws, without torch.

torch's generator is MT19937, seeded as NumPy's RandomState is, so both give the same 32-bit draws.
Checked bit for bit against torch 2.13 in tests/torch.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class TorchRandom:
    """torch.manual_seed(seed) and the draws that follow it, in the same order."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)

    def rand(self, *shape: int) -> F32:
        """torch.rand: uniform in [0, 1), float32."""
        return self._unit(shape).astype(np.float32)

    def linear_weight(self, inputs: int, outputs: int) -> F32:
        """Weight (outputs, inputs) of a fresh torch.nn.Linear."""
        # torch reaches the bound 1/√inputs through gain and deviation: another last bit.
        bound = math.sqrt(3.0) * (math.sqrt(2.0 / (1 + math.sqrt(5) ** 2)) / math.sqrt(inputs))
        return self._between(bound, (outputs, inputs))

    def linear_bias(self, inputs: int, outputs: int) -> F32:
        """Bias (outputs,) of a fresh torch.nn.Linear, drawn after its weight."""
        return self._between(1 / math.sqrt(inputs), (outputs,))

    def _unit(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        draws = np.frombuffer(self._state.bytes(4 * math.prod(shape)), dtype="<u4")
        return (draws & 0xFFFFFF).astype(np.float64).reshape(shape) / (1 << 24)

    def _between(self, bound: float, shape: tuple[int, ...]) -> F32:
        # x·(high − low) + low is rounded once (a fused multiply-add), so it is done in float64.
        high = float(np.float32(bound))
        return (self._unit(shape) * (2 * high) - high).astype(np.float32)
