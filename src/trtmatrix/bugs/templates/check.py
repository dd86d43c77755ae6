"""Reads what a repro printed. Exit code: 1 the failure came back, 0 it did not, 125 cannot be said."""

import json
import re
import sys
from typing import Any, Dict, Iterator, List, Tuple

# What differs from archive to archive:
RECORDED: Dict[str, Any] = {}  # what was seen, and where
LIMITS: Dict[str, Tuple[float, float]] = {}  # measurement, or output: right up to, wrong from
REMARKS: List[str] = []  # words about how an engine was compiled that are right
BUG_IS: List[str] = []  # build failed, crashed, time-out: which of these is the failure


def judge(measured: Dict[str, Any]) -> Iterator[str]:
    for key, (right, wrong) in LIMITS.items():
        defect, _, name = key.rpartition(" in ")
        found = measured["outputs"].get(name, {})
        value = float(measured["scalars"].get(key, found.get("rel_l2", "nan")))
        if defect:
            value = abs(float(measured["signatures"].get(defect, {}).get(name, {}).get("c", "nan")))
        known = key in measured["scalars"] or found
        bad = bool(found.get("nan_unexpected")) or not (value <= right or value < wrong)
        word = "unclear" if not known else "WRONG" if bad else "right" if value <= right else "unclear"
        print(f"{key}: {value:.6g}, right up to {right:.3g}, wrong from {wrong:.3g}: {word}")
        yield word
    if REMARKS and measured["remark"] not in REMARKS:
        print(f"compiled {measured['remark'] or '?'}, not {' or '.join(REMARKS)}")
        yield "unclear" if measured["remark"] in ("", "?") else "WRONG"


def main() -> int:
    text = sys.stdin.read()
    print(text)
    if "{\n" not in text:
        return 125
    result = json.loads(text[text.index("{\n") :])
    if result["ended"] != "ran":
        shapes = re.search(r"shape (\([\d, ]*\)), the reference has (\([\d, ]*\))", result["detail"])
        if shapes:
            print(f"wrong shape: {shapes[1]} instead of {shapes[2]}: WRONG")
        return 1 if shapes or result["ended"] in BUG_IS else 125
    words = [word for build in result.get("builds") or [result] for word in judge(build["measurements"])]
    print("recorded:", json.dumps(RECORDED))
    return 1 if "WRONG" in words else 125 if "unclear" in words or not words else 0


if __name__ == "__main__":
    sys.exit(main())
