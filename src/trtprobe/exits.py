"""How a cell's process ended: from what is seen outside and what it wrote itself."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from trtprobe import ends
from trtprobe.cell import RESULT, SO_FAR, which_build

Cut = Tuple[str, str]
"""How a process that was cut off is said to have ended, and the words."""


class Seen(NamedTuple):
    """What is seen of a cell's process from outside: an exit code of 0 also where it lives on."""

    cut: Optional[Cut]
    code: Optional[int]
    oom_kills: int
    log: str
    worker: Dict[str, Any]


class Exit(NamedTuple):
    """A cell that has ended in one process. ``worker``: the record's words of that process."""

    ended: str
    detail: str
    result: Dict[str, Any]
    code: Optional[int]
    oom_kills: int
    log: str
    worker: Dict[str, Any]


def judge_exit(spec: Dict[str, Any], folder: Path, seen: Seen) -> Exit:
    """Say how a cell ended; where it wrote no result, with what it had written so far."""
    result = _load(folder / RESULT) or {}
    so_far = result or _load(folder / SO_FAR) or {}
    if seen.cut is not None:
        ended, detail = seen.cut[0], which_build(spec, so_far) + seen.cut[1]
    elif result and not seen.code:
        ended, detail = result["ended"], result["detail"]
        if seen.oom_kills and ended not in {ends.RAN, ends.BUILT}:
            ended, detail = ends.OUT_OF_HOST_MEMORY, "%s (%d killed for memory)" % (detail, seen.oom_kills)
    elif seen.oom_kills:
        text = "killed by the kernel: the memory limit was reached"
        ended, detail = ends.OUT_OF_HOST_MEMORY, which_build(spec, so_far) + text
    else:
        ended, detail = ends.CRASHED, which_build(spec, so_far) + exit_words(seen.code or 0, bool(result))
    return Exit(ended, detail, so_far, seen.code, seen.oom_kills, seen.log, seen.worker)


def exit_words(code: int, finished: bool) -> str:
    """Say how a process ended by its exit code (negative: the signal)."""
    when = " after the cell had finished" if finished else ""
    if code < 0:
        try:
            return "killed by %s%s" % (signal.Signals(-code).name, when)
        except ValueError:
            return "killed by signal %d%s" % (-code, when)
    return "exited with code %d%s" % (code, when)


def _load(path: Path) -> Optional[Dict[str, Any]]:
    try:
        data: Dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return data
