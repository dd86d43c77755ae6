"""A short judge: what expected.json says of right and wrong, applied to what was measured of one engine.

It says what the full one (trtmatrix.core.judge) says; a test holds the two against each other.
"""

from __future__ import annotations

import math
from typing import Any

PASS, FAIL, INVALID = "PASS", "FAIL", "INVALID"


def judge_build(found: dict[str, Any], rules: dict[str, Any]) -> tuple[str, str, str]:
    """Return the verdict, in which way it fails (such as ``known defect: lost-scale``), and why.

    ``found``: the measurements of one engine; ``rules``: those of ``expected.json``. An error is a relative
    L2 error to the float64 reference, in noise floors: what the precision makes unavoidable. ``c``: how much
    of a known defect the error contains, 1 where it is there and 0 where it is not.
    """
    way, why = _beyond_limits(found, rules)
    if way:
        return (INVALID, "", "not by what was put in: " + why) if rules["put_in"] else (FAIL, way, why)
    lacking = [name for name in rules["limits"] if _worst(found, name) is None]
    if lacking:
        return INVALID, "", "not measured: " + ", ".join(lacking)
    if found["outputs"] or not rules["limits"]:
        verdict, way, why = _judge_outputs(found, rules)
        if verdict != PASS and not rules["tolerance"]:
            return verdict, way, why
    word = found.get("remark", "")
    if rules["remarks"] and word not in rules["remarks"]:
        wanted = " or ".join(rules["remarks"])
        if word in ("", "?"):
            return INVALID, "", "right, but it cannot be seen whether " + wanted
        return FAIL, "remark: " + word, f"right, but {word}, not {wanted}"
    return PASS, "", why


def _beyond_limits(found: dict[str, Any], rules: dict[str, Any]) -> tuple[str, str]:
    """Look for NaN where there should be none, and for measurements of the case's own above their limits."""
    for name, values in found["outputs"].items():
        if values.get("nan_unexpected"):
            return "not finite", f"{name}: {values['nan_unexpected']} NaN or infinite"
    sizes = [(name, _worst(found, name), limit) for name, limit in rules["limits"].items()]
    above = [one for one in sizes if one[1] is not None and not one[1] <= one[2]]
    why = "; ".join(f"{name} {size:.6g} > {limit:g}" for name, size, limit in above)
    return "own limit: " + ", ".join(name for name, _, _ in above) if above else "", why


def _judge_outputs(found: dict[str, Any], rules: dict[str, Any]) -> tuple[str, str, str]:
    """Hold each output's error against the noise floor, then against the shapes of known defects."""
    if rules["says_nothing"]:
        return INVALID, "", rules["says_nothing"]
    if rules["limits"] and not rules["outputs"]:
        return PASS, "", ""
    floors = in_floors(found, rules)
    if not floors:
        exact = rules["exact_passes"] and _is_exact(found)
        return (PASS, "", "") if exact else (INVALID, "", "no noise floor is known")
    name = max(sorted(floors), key=lambda output: _nan_last(floors[output]))
    error, size = float(found["outputs"][name]["rel_l2"]), floors[name]
    signs = read_signs(found, rules)
    told = f"{name}: {size:.3g} noise floors, relative L2 error {error:.3g}"
    why = f"{told}; right is up to {rules['pass']:g}, wrong from {rules['fail']:g}"
    if not size < rules["fail"] or any(_beyond(sign, rules["closer"]) for sign in signs):
        return _name_defect(found, rules, signs, why)
    undecided = [sign["name"] for sign in signs if _beyond(sign)]
    explained = rules["outputs"][name]["explained"]
    fits = size > rules["pass"] and any(_is_near(error, known, rules["near"]) for known in explained)
    if undecided or (size > rules["pass"] and not fits):
        return INVALID, "", "undecided: " + "; ".join([why, *undecided])
    unseen = [sign["name"] for sign in signs if "c" not in sign and (fits or sign["hidden"])]
    lacking = [output for output in rules["must_give"] if output not in found["outputs"]]
    bare = [
        output for output, values in found["outputs"].items()
        if output not in floors and float(values.get("rel_l2", 1)) != 0
    ]  # fmt: skip
    if unseen or lacking or bare:
        return INVALID, "", "not seen: " + ", ".join(unseen + lacking + bare)
    return PASS, "", why


def _name_defect(
    found: dict[str, Any], rules: dict[str, Any], signs: list[dict[str, Any]], why: str
) -> tuple[str, str, str]:
    """Say which known defects a wrong output may hold: those that leave least of the error unexplained."""
    low, high = rules["named"]
    named = [sign for sign in signs if sign["usable"] and low <= sign.get("c", math.nan) <= high]
    for sign in signs:
        if sign["name"] == rules["put_in"] and sign["usable"] and "c" in sign and sign not in named:
            return INVALID, "", f"not by what was put in: c = {sign['c']:.3g} of {sign['name']}"
    if named:
        least = min(map(_left_over, named))
        near = [sign for sign in named if _left_over(sign) <= 2 * least + 0.02]
        told = " or ".join(f"c = {sign['c']:.4g} of {sign['name']}" for sign in near)
        return FAIL, "known defect: " + ", ".join(sign["name"] for sign in near), why + "; " + told
    zeros = [output for output, values in found["outputs"].items() if values.get("share_zeros") == 1]
    return FAIL, "zeros" if zeros else "wrong numbers", why


def in_floors(found: dict[str, Any], rules: dict[str, Any]) -> dict[str, float]:
    """Return each output's error in noise floors, of those that have one."""
    sizes = {}
    for name, values in found["outputs"].items():
        floor = rules["outputs"].get(name, {}).get("floor")
        if floor is not None and "rel_l2" in values:
            error = float(values["rel_l2"])
            sizes[name] = error / floor if floor else math.inf if error else 0.0
    return sizes


def read_signs(found: dict[str, Any], rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rules of each known defect, with ``c`` and ``explained`` where they were measured."""
    signs = []
    for rule in rules["defects"]:
        values = found["signatures"].get(rule["name"], {}).get(rule["output"], {})
        signs.append({**rule, **{name: float(value) for name, value in values.items()}})
    return signs


def _beyond(sign: dict[str, Any], times: float = 1.0) -> bool:
    """Whether c is larger than so many times a right engine's; NaN is."""
    return sign["usable"] and "c" in sign and not abs(sign["c"]) <= times * sign["bound"]


def _left_over(sign: dict[str, Any]) -> float:
    """Return the share of the error (its square) that is left when the defect is taken away once."""
    share: float = 1 - 2 * sign["explained"] / sign["c"] + sign["explained"] / sign["c"] ** 2
    return share


def _is_exact(found: dict[str, Any]) -> bool:
    """Whether every output is its reference, and any has an element but zeros, NaN and infinity."""
    outputs = found["outputs"].values()
    tells = any(v["count"] > v["nan"] + v["inf"] + v["zeros"] for v in outputs)
    return tells and all(float(v.get("rel_l2", 1)) == 0 for v in outputs)


def _is_near(error: float, known: float, factor: float) -> bool:
    return bool(error and known) and max(error / known, known / error) <= factor


def _worst(found: dict[str, Any], name: str) -> float | None:
    """Return a measurement: the case's own, or the worst over the outputs; None where there is none."""
    if name in found["scalars"]:
        return float(found["scalars"][name])
    values = [float(v[name]) for v in found["outputs"].values() if name in v]
    return max(values, key=_nan_last) if values else None


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value
