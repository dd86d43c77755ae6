"""Whether an ``expected.json``, which may come from anyone, is one that can be judged by. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NUMBER = (int, float)
WANTED: Mapping[str, Any] = {"files": dict, "rules": dict, "fails": list, "figures": dict, "verdict": str}
RULES: Mapping[str, Any] = {
    "pass": NUMBER, "fail": NUMBER, "closer": NUMBER, "near": NUMBER, "named": list, "limits": dict,
    "tolerance": dict, "outputs": dict, "defects": list, "must_give": list, "remarks": list,
    "exact_passes": bool, "says_nothing": str, "put_in": str, "bug_is": list,
}  # fmt: skip
DEFECT: Mapping[str, Any] = {"name": str, "output": str, "usable": bool, "hidden": bool}


def expected_trouble(data: Mapping[str, Any]) -> str:
    """Return what is wrong with what ``expected.json`` holds; nothing where it can be used."""
    return next(_troubles(data), "")


def _troubles(data: Mapping[str, Any]) -> Iterator[str]:
    yield from _lacking(data, WANTED, "")
    yield from _lacking(data["rules"], RULES, "rules: ")
    for name, digest in data["files"].items():
        if not is_plain(name):
            yield f"files: {name[:200]!r} leads out of the archive"
        if not isinstance(digest, str):
            yield f"files: {name} has no digest"
    rules = data["rules"]
    for defect in rules["defects"]:
        if not isinstance(defect, dict):
            yield "rules: a defect is no object"
        yield from _lacking(defect, DEFECT, "a defect of the rules: ")
    for name, output in rules["outputs"].items():
        if not isinstance(output, dict) or not isinstance(output.get("explained"), list):
            yield f"rules: the output {name!r} has no list of what is explained"
    if not all(isinstance(way, str) for way in data["fails"]):
        yield "fails: a way to fail is no text"


def _lacking(data: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, kind in wanted.items():
        if not isinstance(data.get(name), kind):
            yield f"{where}{name} is missing, or of another kind"


def is_plain(name: str) -> bool:
    """Whether a name stays in the folder that it is looked for in."""
    parts = name.split("/")
    return not re.search(r"[\x00-\x1f\\\\]", name) and not {"", ".", ".."} & set(parts)
