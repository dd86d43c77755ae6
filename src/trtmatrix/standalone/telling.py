"""What is printed: each engine's figures beside those that were recorded, and one line at the end."""

from __future__ import annotations

import math
from typing import Any

from trtmatrix.standalone.judging import FAIL, INVALID, in_floors, judge_build, read_signs
from trtprobe import ends

CAME_BACK, NOT_THERE, CANNOT_SAY = 1, 0, 125
"""Exit codes as git bisect reads them: bad, good, skip."""

MOST = 12
"""Figures that are printed of one engine."""


def figures_of(found: dict[str, Any], rules: dict[str, Any]) -> dict[str, float]:
    """Return the figures of one engine by what they are called."""
    figures = {}
    floors = in_floors(found, rules)
    for name, values in found["outputs"].items():
        if name in floors:
            figures[name + ": error in noise floors"] = floors[name]
        for measure, label in (("rel_l2", "relative L2 error"), ("max_abs", "largest |y - r|")):
            if measure in values:
                figures[f"{name}: {label}"] = float(values[measure])
        if values.get("nan_unexpected"):
            figures[name + ": NaN or infinite"] = float(values["nan_unexpected"])
    for sign in read_signs(found, rules):
        if "c" in sign:
            figures["c of " + sign["name"]] = sign["c"]
    figures.update((name, float(value)) for name, value in found["scalars"].items())
    return figures


def print_figures(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Print one engine's figures, the largest where there are many, beside the recorded range."""
    figures, recorded = figures_of(found, expected["rules"]), expected["figures"]
    names = list(figures)
    if len(names) > MOST:
        worst = sorted(names, key=lambda n: -figures[n] if not math.isnan(figures[n]) else -math.inf)[:MOST]
        names = [name for name in names if name in worst]
    for name in names:
        low, high = (float(value) for value in recorded.get(name, (math.nan, math.nan)))
        told = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
        print(f"  {name:40} {figures[name]:<12.6g} recorded: {told if name in recorded else '-'}")


def conclude(result: dict[str, Any], expected: dict[str, Any]) -> tuple[int, str, str]:
    """Return the exit code, the verdict and one line of why. ``result``: of all builds and processes."""
    ended, detail = result["ended"], result["detail"]
    wanted: list[str] = expected["fails"]
    if ended != ends.RAN:
        if ended in expected["rules"]["bug_is"]:
            return _compare([(FAIL, "ended: " + ended, f"{ended}: {detail}")], wanted)
        return CANNOT_SAY, "NO VERDICT", f"it did not run: {ended}: {detail}"
    builds = [build["measurements"] for build in result.get("builds", [result])]
    return _compare([judge_build(build, expected["rules"]) for build in builds], wanted)


def _compare(judged: list[tuple[str, str, str]], wanted: list[str]) -> tuple[int, str, str]:
    """Hold what was said of each engine against the ways in which the recorded ones fail."""
    failing = [one for one in judged if one[0] == FAIL]
    same = [one for one in failing if any(_is_same(one[1], way) for way in wanted)]
    verdict = "FLAKY" if failing and any(one[0] == "PASS" for one in judged) else (failing or judged)[0][0]
    of = "" if len(judged) == 1 else f"{len(same or failing or judged)} of {len(judged)} engines: "
    if same:
        _, way, why = same[0]
        return CAME_BACK, verdict, f"{of}{way}; {why}"
    if failing:
        _, way, why = failing[0]
        other = f"another failure than the recorded one ({'; '.join(wanted)})"
        return CANNOT_SAY, verdict, f"{of}{other}: {way}; {why}"
    unsaid = [one for one in judged if one[0] == INVALID]
    if unsaid:
        return CANNOT_SAY, INVALID, unsaid[0][2]
    return NOT_THERE, verdict, of + (judged[0][2] or "right")


def _is_same(way: str, wanted: str) -> bool:
    """Whether two ways to fail are of one kind, and of what they name have something in common."""
    kind, _, what = way.partition(": ")
    other, _, names = wanted.partition(": ")
    return kind == other and bool(set(what.split(", ")) & set(names.split(", ")))


def last_words(code: int, verdict: str, why: str) -> str:
    """Return the line that a run ends in."""
    said = {CAME_BACK: "THE FAILURE CAME BACK", NOT_THERE: "THE FAILURE IS NOT THERE"}
    return f"{said.get(code, 'CANNOT SAY')} ({verdict}): {why}"
