"""How a cell's process ended: from what is seen outside and what it wrote itself."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from trtprobe import ends
from trtprobe.cell import SO_FAR, which_build
from trtprobe.processes import Child

RESULT = "result.json"

Cut = Tuple[str, str]
"""How a process that was cut off is said to have ended, and the words."""


class Exit(NamedTuple):
    """A process that has ended."""

    ended: str
    detail: str
    result: Dict[str, Any]
    code: Optional[int]
    oom_kills: int
    log: str


def judge_exit(child: Child, spec: Dict[str, Any], folder: Path, cut: Optional[Cut], oom: int) -> Exit:
    """Say how a process ended; where it wrote no result, with what it had written so far."""
    result = _load(folder / RESULT) or {}
    so_far = result or _load(folder / SO_FAR) or {}
    if cut is not None:
        ended, detail = cut[0], which_build(spec, so_far) + cut[1]
    elif result and not child.code:
        ended, detail = result["ended"], result["detail"]
        if oom and ended not in {ends.RAN, ends.BUILT}:
            ended, detail = ends.OUT_OF_HOST_MEMORY, "%s (%d killed for memory)" % (detail, oom)
    elif oom:
        text = "killed by the kernel: the memory limit was reached"
        ended, detail = ends.OUT_OF_HOST_MEMORY, which_build(spec, so_far) + text
    else:
        ended, detail = ends.CRASHED, which_build(spec, so_far) + _exit_words(child.code or 0, bool(result))
    return Exit(ended, detail, so_far, child.code, oom, child.log())


def _exit_words(code: int, finished: bool) -> str:
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
