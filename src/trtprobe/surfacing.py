"""``python trtprobe surface MODULE FILE``: imports bindings and writes their surface; a process of its own.

The supervisor calls it after the last cell where the host asked for it: so it disturbs no cell, and
whatever the import does to its process is nobody's trouble. It needs no NumPy.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

from trtprobe.surface import read_surface

FILE = "surface.json"
SECONDS = 60.0
"""More than the import takes from a cold disk; then it is given up, until the next run asks again."""


def main(argv: List[str]) -> int:
    """Write the surface of a module to a file."""
    module, file = argv
    surface = read_surface(importlib.import_module(module))
    surface["origin"] = {"python": "%d.%d" % sys.version_info[:2]}
    partial = Path(file + ".partial")
    partial.write_text(json.dumps(surface, sort_keys=True), encoding="utf-8")
    partial.replace(file)  # whole or not at all
    return 0


def leave_surface(job: Dict[str, Any], out: Path) -> None:
    """Leave ``surface.json`` in a folder where the job asks for one; failing is told and no trouble."""
    module = job.get("surface")
    if not module:
        return
    command = [sys.executable, "-B", str(Path(__file__).resolve().parent), "surface", module, str(out / FILE)]
    try:
        subprocess.run(command, check=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        print("the surface of %s was not read: %s" % (module, error), flush=True)
