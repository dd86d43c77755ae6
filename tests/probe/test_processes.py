"""A child's output is read to its end, and only its tail is held."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.probe.jobs import MAIN, PROBE

CODE = """
import os, sys
sys.path.insert(0, {source!r})
from pathlib import Path
from trtprobe.processes import TAIL_BYTES, Child
def work():
    for _ in range(512):
        os.write(1, b"y" * 65536)
    return 5
child = Child(work, Path({folder!r}), [])
child._reader.join(30)
child.kill()
print(child.total, sum(map(len, child._chunks)) <= TAIL_BYTES + 65536, len(child.log()) < TAIL_BYTES + 99)
"""


def test_the_tail_alone_is_held_in_memory(tmp_path: Path) -> None:
    code = CODE.format(source=str(PROBE.parent), folder=str(tmp_path))
    done = subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(512 * 65536), "True", "True"]
