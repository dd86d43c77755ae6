"""The record of a cell, from what each of its processes left."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from trtprobe import SCHEMA, ends
from trtprobe.cell import nothing_yet
from trtprobe.exits import Exit
from trtprobe.observe import UNSET

LOG_CHARACTERS = 1 << 16


def make_record(
    cell: Dict[str, Any], product: str, times: Dict[str, str], exits: List[Exit]
) -> Dict[str, Any]:
    """Return the record of a cell; it ended as its last process did.

    Measurements, engine, outputs and ``worker`` are the first process's, but for its counts: these are added
    up over all. ``builds`` and ``processes`` are there where there were several.
    """
    first, last = exits[0].result, exits[-1]
    measurements = dict(first.get("measurements") or nothing_yet()["measurements"])
    record = {
        "schema": SCHEMA, "cell": cell["cell"], "run": cell["run"], "product": product,
        "ended": last.ended, "detail": _plain(_which_process(cell, exits) + last.detail)[:4000],
        **times, "exit": last.code, "attempts": 1, "oom_kills": sum(process.oom_kills for process in exits),
        "observed": first.get("observed", {}), "environment": first.get("environment", {}),
        "unset": {name: os.environ[name] for name in UNSET if name in os.environ},
        "engine": first.get("engine", {}), "measurements": measurements,
        "kept": first.get("kept", {}) if last.ended == ends.RAN else {}, "log": _log(exits),
        "worker": exits[0].worker,
    }  # fmt: skip
    if "builds" in first:
        record["builds"] = first["builds"]
    if cell.get("processes", 1) > 1:
        record["processes"] = len(exits)
        measurements["scalars"] = {**measurements["scalars"], **_added_up(exits)}
    return record


def _which_process(cell: Dict[str, Any], exits: List[Exit]) -> str:
    """Name the process that did not end as it should, where it is one of several."""
    processes = cell.get("processes", 1)
    if processes == 1 or exits[-1].ended in {ends.RAN, ends.BUILT}:
        return ""
    return "process %d of %d: " % (len(exits), processes)


def _added_up(exits: List[Exit]) -> Dict[str, float]:
    total: Dict[str, float] = {}
    for process in exits:
        for name, number in process.result.get("counts", {}).items():
            total[name] = total.get(name, 0.0) + number
    return total


def _log(exits: List[Exit]) -> str:
    """Return the tail of what was printed; where several processes did, each one's under its number."""
    if len(exits) == 1:
        return exits[0].log
    room = LOG_CHARACTERS // len(exits)
    return "".join(
        "--- process %d\n%s\n" % (number, process.log[-room:].rstrip("\n"))
        for number, process in enumerate(exits, 1)
    )


def _plain(text: str) -> str:
    """Return a text that every encoding of Unicode can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
