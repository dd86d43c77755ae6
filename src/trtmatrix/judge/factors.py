"""Every number that a verdict hangs on, in one place. What they were calibrated on: docs/verdicts.md."""

from __future__ import annotations

from collections.abc import Mapping

PASS_FACTOR = 4.0
"""An output whose relative L2 error is at most so many noise floors passes."""
FAIL_FACTOR = 8.0
"""From so many noise floors on it fails; between the two it is looked at more closely."""
SIGNATURE_FLOORS = 5.0
"""A known defect smaller than this, in noise floors, is decided about by its signature alone."""
VALID_FLOORS = 3.0
"""A case whose known defects are all smaller than this, in noise floors, needs a usable signature."""
VALID_BOUND = 0.3
"""A signature is usable where a right engine's |c| stays below this."""
MARGIN = 2.0
"""A right engine's |c| is bounded by so many times the largest of the calibration's ensemble and seeds."""
UNCALIBRATED_MARGIN = 10.0
"""The same where a case is not in the calibration: then only its own ensemble with one seed is known."""
LEAST_BOUND = 0.02
"""No bound on |c| is smaller: engines differ in more than an ensemble can hold."""
CLOSER_BOUND = 2.0
"""A |c| of so many bounds fails by itself; between one bound and that, nothing is decided."""
NAMED = (0.9, 1.1)
"""The c at which a known defect may be named."""
EXPLAINED = 0.9
"""The share of the error that a defect's shape must explain to be described by that shape."""
FIT = 1.3
"""Two errors fit where their quotient is at most this."""
SHOWN_FIT = 1.5
"""The same for saying in which precision a right engine has computed."""
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "tf32": ("fp32", "tf32"),
    "fp16": ("fp16",),
    "fp16-flag": ("fp32", "tf32", "fp16"),
    "bf16": ("bf16",),
}
"""What is asked of a build → the precisions in which it may compute."""
ROUNDING: Mapping[str, float] = {
    "float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-24,
}  # fmt: skip
"""An output's own type → the largest share by which rounding to nearest changes a normal number: no floor is
lower. A graph in float64 is held against float32, as TensorRT computes in nothing wider."""
POSSIBLE = frozenset({"tf32-truncated"})
"""Members of the ensemble that no GPU has shown yet: they raise no floor, they only explain an error."""
