"""A child's output is read to its end, and only its tail is held."""

from __future__ import annotations

import subprocess

from tests.probe.jobs import MAIN, PROBE

CODE = """
import os, sys
sys.path.insert(0, {source!r})
import select
from trtprobe.pool import TAIL_BYTES, Tail
from trtprobe.processes import Child
tail, held = Tail(), []
def work():
    for _ in range(512):
        os.write(tail.writing, b"y" * 65536)
    return 5
child = Child(work, tail.writing, [])
tail.hand_over()
while tail.open:
    select.select([tail], [], [])
    tail.take()
    held.append(sum(map(len, tail._chunks)))
child.kill()
print(tail.total, max(held) <= TAIL_BYTES + 65536, len(tail.close()) < TAIL_BYTES + 99)
"""


def test_the_tail_alone_is_held_in_memory() -> None:
    code = CODE.format(source=str(PROBE.parent))
    done = subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(512 * 65536), "True", "True"]
