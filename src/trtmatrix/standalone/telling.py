"""What is printed: each engine's figures beside those that were recorded, and one line at the end."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

from trtmatrix.standalone.judging import FAIL, INVALID, in_floors, judge_build, read_signs
from trtprobe import ends

CAME_BACK, NOT_THERE, CANNOT_SAY = 1, 0, 125
"""Exit codes as git bisect reads them: bad, good, skip."""

MOST = 12
"""Figures that are printed of one engine."""


def figures_of(found: Dict[str, Any], rules: Dict[str, Any]) -> Dict[str, float]:
    """Return the figures of one engine by what they are called."""
    figures = {}
    floors = in_floors(found, rules)
    for name, values in found["outputs"].items():
        if name in floors:
            figures[name + ": error in noise floors"] = floors[name]
        for measure, label in (("rel_l2", "relative L2 error"), ("max_abs", "largest |y - r|")):
            if measure in values:
                figures["%s: %s" % (name, label)] = float(values[measure])
        if values.get("nan_unexpected"):
            figures[name + ": NaN or infinite"] = float(values["nan_unexpected"])
    for sign in read_signs(found, rules):
        if "c" in sign:
            figures["c of " + sign["name"]] = sign["c"]
    figures.update((name, float(value)) for name, value in found["scalars"].items())
    return figures


def print_figures(found: Dict[str, Any], expected: Dict[str, Any]) -> None:
    """Print one engine's figures, the largest first where there are many, beside the recorded range."""
    figures, recorded = figures_of(found, expected["rules"]), expected["figures"]
    names = list(figures)
    if len(names) > MOST:
        worst = sorted(names, key=lambda n: -figures[n] if figures[n] == figures[n] else -math.inf)[:MOST]
        names = [name for name in names if name in worst]
    for name in names:
        low, high = (float(value) for value in recorded.get(name, (math.nan, math.nan)))
        told = "%.6g" % low if low == high else "%.6g to %.6g" % (low, high)
        print("  %-40s %-12.6g recorded: %s" % (name, figures[name], told if name in recorded else "-"))


def conclude(result: Dict[str, Any], expected: Dict[str, Any]) -> Tuple[int, str, str]:
    """Return the exit code, the verdict and one line of why. ``result``: of all builds and processes."""
    ended, detail = result["ended"], result["detail"]
    wanted: List[str] = expected["fails"]
    if ended != ends.RAN:
        if ended in expected["rules"]["bug_is"]:
            return _compare([(FAIL, "ended: " + ended, "%s: %s" % (ended, detail))], wanted)
        return CANNOT_SAY, "NO VERDICT", "it did not run: %s: %s" % (ended, detail)
    builds = [build["measurements"] for build in result.get("builds", [result])]
    return _compare([judge_build(build, expected["rules"]) for build in builds], wanted)


def _compare(judged: List[Tuple[str, str, str]], wanted: List[str]) -> Tuple[int, str, str]:
    """Hold what was said of each engine against the ways in which the recorded ones fail."""
    failing = [one for one in judged if one[0] == FAIL]
    same = [one for one in failing if any(_is_same(one[1], way) for way in wanted)]
    verdict = "FLAKY" if failing and any(one[0] == "PASS" for one in judged) else (failing or judged)[0][0]
    of = "" if len(judged) == 1 else "%d of %d engines: " % (len(same or failing or judged), len(judged))
    if same:
        return CAME_BACK, verdict, of + "%s; %s" % same[0][1:]
    if failing:
        way = "another failure than the recorded one (%s)" % ", ".join(wanted)
        return CANNOT_SAY, verdict, "%s%s: %s; %s" % (of, way, *failing[0][1:])
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
    return "%s (%s): %s" % (said.get(code, "CANNOT SAY"), verdict, why)
