"""A child's output is read to its end, and only its tail is held; messages go to and fro unharmed."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.probe.jobs import MAIN, PROBE
from trtprobe.channel import identity, open_channels

CODE = """
import os, sys
sys.path.insert(0, {source!r})
import select
from trtprobe.processes import TAIL_BYTES, Child, Tail
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
    held.append(len(tail.kept))
child.kill()
print(tail.total, max(held) <= TAIL_BYTES, len(tail.close()) < TAIL_BYTES + 99)
"""


def test_the_tail_alone_is_held_in_memory() -> None:
    code = CODE.format(source=str(PROBE.parent))
    done = subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(512 * 65536), "True", "True"]


@pytest.mark.parametrize("sent", [b"no message", b"\xff\x00", b"[1, 2]", b"null", b"[" * 9999])
def test_what_a_cell_writes_to_the_connection_is_no_message_and_no_file_stays_open(sent: bytes) -> None:
    ours, theirs = open_channels()
    with Path(__file__).open() as file:
        before = len(list(Path("/proc/self/fd").iterdir()))
        theirs.connection.send(sent)
        socket.send_fds(theirs.connection, [sent], [file.fileno(), file.fileno()])
        assert theirs.send({"spec": 1}, file.fileno())
        ((message, handed),) = ours.take()
        assert message == {"spec": 1}
        assert handed is not None
        assert identity(handed) == identity(file.fileno())
        os.close(handed)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    theirs.close()
    assert ours.receive() is None
    ours.close()
