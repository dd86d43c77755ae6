"""Emulates a case on the host: how far right engines may be off, and what known defects look like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, POSSIBLE, Arithmetic
from trtmatrix.judge.factors import ALLOWED
from trtmatrix.judge.noise import read_entry
from trtmatrix.suite.digest import digest_authoring, digest_code
from trtmatrix.suite.repro_files import APART, LoadedRepro
from trtmatrix.suite.repros import Case
from trtprobe.measure import measure_signature, measure_with_signatures

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Emulate = Callable[..., Arrays]

RECOGNISED: Mapping[str, tuple[str, ...]] = {"fp32": ("fp32", "tf32"), "tf32": ("fp32", "tf32")}
"""Where a build may have used another precision than asked for, what is emulated to recognise it."""

LOST_SCALE = "lost-scale"
FACTORS = (0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""Factors on softmax's scale for which the signature of the lost scale is known."""


def has_noise(loaded: LoadedRepro, case: Case) -> bool:
    """Whether a case's noise can be known: its repro emulates it or gives it, and asks for a precision."""
    return bool(case.precision) and any(
        callable(getattr(loaded.module, name, None)) for name in ("emulate", "noise")
    )


def members_of(precision: str) -> dict[str, Arithmetic]:
    """Return the arithmetics by name that are emulated for a precision; ``KeyError`` where it is unknown."""
    wanted = dict.fromkeys((*ALLOWED[precision], *RECOGNISED.get(precision, ())))
    return {
        name: arithmetic for each in wanted
        for name, arithmetic in {**ENSEMBLE[each], **POSSIBLE.get(each, {})}.items()
    }  # fmt: skip


def compute_noise(
    loaded: LoadedRepro, case: Case, reference: Arrays
) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Return what ``noise.json`` holds, and each defect's d by output (float32; absent where it is zero).

    d is the float64 result with the defect put in minus ``reference``, the case's own. All else is
    measured on the small part that the repro's ``emulate`` gives, or has been for the calibration. A repro
    with a function ``noise`` gives its noise itself; it has no defects.
    """
    own = getattr(loaded.module, "noise", None)
    if callable(own):
        known = {"key": case.noise_key, "precision": case.precision, "defects": {}}
        return {**known, **own(dict(case.params))}, {}
    emulate: Emulate = loaded.module.emulate
    sizes: dict[str, dict[str, float]] = {}
    shapes: dict[str, dict[str, Array]] = {}
    for defect in case.defects:
        sizes[defect], shapes[defect] = _shape(emulate(dict(case.params), FLOAT64, defect), reference)
    found = {defect: by_output for defect, by_output in sizes.items() if by_output}
    shown = {defect: max(by_output, key=by_output.__getitem__) for defect, by_output in found.items()}
    noise = calibrated_noise(loaded, case, shown) or emulate_noise(loaded, case, shown)
    noise = {**noise, "key": case.noise_key, "precision": case.precision, "defects": found}
    return noise, {defect: by_output for defect, by_output in shapes.items() if by_output}


def emulate_noise(loaded: LoadedRepro, case: Case, shown: Mapping[str, str]) -> dict[str, Any]:
    """Return the errors and c of the ensemble's members, with seed 0, and what other scales would give.

    ``shown`` maps a defect to the output that it is looked for in.
    """
    emulate: Emulate = loaded.module.emulate
    outputs, c = measure_members(emulate, case.params, shown)
    return {"outputs": outputs, "c": c, **other_scales(loaded, case, shown)}


def other_scales(loaded: LoadedRepro, case: Case, shown: Mapping[str, str]) -> dict[str, Any]:
    """Return ``scales``: what c of the lost scale other scales of softmax give; nothing without softmax."""
    scale_of = getattr(loaded.module, "softmax_scale", None)
    if LOST_SCALE not in shown or scale_of is None:
        return {}
    right = float(scale_of(dict(case.params)))
    curve = _curve(loaded.module.emulate, case.params, shown[LOST_SCALE], right)
    return {"scales": {"right": right, "curve": curve}}


def calibrated_noise(loaded: LoadedRepro, case: Case, shown: Iterable[str]) -> dict[str, Any] | None:
    """Return the noise that the calibration has of a case.

    None where the code has changed since, or a defect was not looked for then.
    """
    entry = read_entry(case.noise_key)
    if entry is None or entry.get("code") != emulation_digest(loaded):
        return None
    if not set(shown) <= set(entry["envelope"]):
        return None
    noise: dict[str, Any] = entry["noise"]
    return {
        "outputs": noise["outputs"],
        "c": entry["envelope"],
        **({"scales": noise["scales"]} if "scales" in noise else {}),
    }


def emulation_digest(loaded: LoadedRepro) -> str:
    """Return the SHA-256 of the code that a repro's noise comes from (hexadecimal).

    That is its own, but for what says nothing about numbers (facts, list of cases, what runs inside), and
    what it imports of trtmatrix.authoring.
    """
    source = loaded.file.read_text(encoding="utf-8-sig")
    own = digest_code(source, (*APART, "run"))
    return sha256(f"{own} {digest_authoring(source)}".encode()).hexdigest()


def _shape(wrong: Arrays, reference: Arrays) -> tuple[dict[str, float], dict[str, Array]]:
    """Return a defect's relative size and its d in each output that it changes."""
    sizes: dict[str, float] = {}
    shapes: dict[str, Array] = {}
    for name, right in reference.items():
        d = np.subtract(wrong[name], right)
        norm, against = float(np.linalg.norm(d)), float(np.linalg.norm(right))
        if norm and against:
            sizes[name] = norm / against
            shapes[name] = d.astype(np.float32)
    return sizes, shapes


def measure_members(
    emulate: Emulate, params: Mapping[str, Any], shown: Mapping[str, str], seed: int = 0
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return each member's relative L2 error by output, and its c by defect, on the small part.

    A member that overflows is none of the ways in which a right engine may compute, and is left out.
    ``shown`` maps a defect to the output that it is looked for in.
    """
    right = _small(emulate, params, FLOAT64, seed=seed)
    shapes = {
        defect: _small(emulate, params, FLOAT64, defect, seed)[output] - right[output]
        for defect, output in shown.items()
    }
    errors: dict[str, dict[str, float]] = {name: {} for name in right}
    found: dict[str, dict[str, float]] = {defect: {} for defect in shown}
    for member, arithmetic in members_of(str(params["precision"])).items():
        with np.errstate(over="ignore", invalid="ignore"):  # FP16 may overflow
            given = _small(emulate, params, arithmetic, seed=seed)
        for name, exact in right.items():
            of_it = {defect: shapes[defect] for defect, output in shown.items() if output == name}
            values, signatures = measure_with_signatures(given[name], exact, of_it)
            if values["nan_unexpected"] or not math.isfinite(values["rel_l2"]):
                continue  # it overflows, or the part of the reference is all zeros
            errors[name][member] = float(values["rel_l2"])
            for defect, signature in signatures.items():
                found[defect][member] = signature["c"]
    return errors, found


def _curve(emulate: Emulate, params: Mapping[str, Any], output: str, right: float) -> list[list[float]]:
    """Return pairs of a factor on softmax's scale and the c of the lost scale, computed in float64."""
    exact = _small(emulate, params, FLOAT64)[output]
    shape = _small(emulate, params, FLOAT64, LOST_SCALE)[output] - exact
    factors: Sequence[float] = sorted({*FACTORS, right**-0.5})
    wrong = {factor: _small(emulate, params, FLOAT64, f"scale*{factor!r}")[output] for factor in factors}
    found = {factor: measure_signature(y, exact, shape) for factor, y in wrong.items()}
    return [[factor, signature["c"]] for factor, signature in found.items() if signature]


def _small(
    emulate: Emulate, params: Mapping[str, Any], arithmetic: Arithmetic, defect: str = "", seed: int = 0
) -> Arrays:
    return emulate(dict(params), arithmetic, defect, seed=seed, small=True)
