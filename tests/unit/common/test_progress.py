"""Progress: a block that fits a terminal, a line now and then without one, and every line in the log."""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from trtmatrix.common import progress as module
from trtmatrix.common.progress import Progress

WORK = """
import sys, time
from pathlib import Path
from trtmatrix.common.progress import open_progress

progress = open_progress(log=Path(sys.argv[1]), full="--full" in sys.argv)
progress.note("trtmatrix: 40 tests to run; nothing to fetch")
progress.begin("tests", 40)
progress.begin("cases prepared", 3)
progress.now("worker", f"sdpa-scale/{'long-' * 30}tf32@10.7.0#l4")
progress.pull("nvcr.io/nvidia/pytorch:24.03-py3", "abc Downloading", 3_100_000_000, 9_400_000_000)
for number in range(20):
    progress.step("tests", f"case-{number}: PASS")
time.sleep(0.6)
progress.now("worker")
progress.close()
"""


def in_a_terminal(columns: int, log: Path, *words: str) -> str:
    """Return what a terminal of so many columns is sent by ``WORK``."""
    pid, end = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm-256color"
        os.environ["COLUMNS"] = str(columns)
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-c", WORK, str(log), *words])  # noqa: S606 - no shell
    sent = b""
    try:
        while part := os.read(end, 65536):
            sent += part
    except OSError:  # the other end is closed
        pass
    assert os.waitpid(pid, 0)[1] == 0, sent.decode()
    os.close(end)
    return sent.decode()


@pytest.mark.parametrize("columns", [60, 160])
def test_a_terminal_has_one_block_that_fits_and_goes(columns: int, tmp_path: Path) -> None:
    sent = in_a_terminal(columns, tmp_path / "log.txt")
    assert "\x1b[" in sent  # it is drawn over
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent))]
    assert max(map(len, lines)) <= columns
    assert any(re.search(r"━━.* 20/40 tests · 0:0\d", line) for line in lines)
    assert any("0/3 cases prepared" in line for line in lines)
    assert any(line.startswith("pulling nvcr.io/nvidia/pytorch:24.03-py3: 3.1 GB") for line in lines)
    assert any(line.startswith("now: sdpa-scale/long-") for line in lines)
    assert not any("PASS" in line for line in lines)
    assert "  [20/40] case-19: PASS\n" in (tmp_path / "log.txt").read_text()


def test_full_has_a_line_for_each_step_also_in_a_terminal(tmp_path: Path) -> None:
    sent = in_a_terminal(80, tmp_path / "log.txt", "--full")
    assert "\x1b[" not in sent
    assert sent.count(": PASS") == 20


def test_the_block_is_drawn_while_somebody_is_about_to_say_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, ours, waits = threading.Event(), threading.current_thread(), list[bool]()

    def clock() -> float:
        """Tell the time to who draws, and to us, who hold a lock then, only after the next drawing."""
        if threading.current_thread() is ours:
            waits.append(drawn.wait(5))
        drawn.set()
        return 0.0

    drawn.set()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    progress = Progress(io.StringIO(), live=True)
    progress.begin("tests", 2)
    drawn.clear()
    progress.begin("cases prepared", 2)
    progress.close()
    assert all(waits)


def test_without_a_terminal_lines_are_few_and_the_log_has_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, stream, log = [0.0], io.StringIO(), tmp_path / "new" / "log.txt"
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = Progress(stream, log=log)
    progress.begin("tests", 1000)
    progress.now("worker", "sdpa-scale/tf32@10.7.0#l4")
    for number in range(1000):
        now[0] += 0.3
        progress.step("tests", f"case-{number}: PASS")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert 15 <= len(lines) <= 20
    assert lines[0] == "50 of 1000 tests in 0:15, about 5 min left; now sdpa-scale/tf32@10.7.0#l4"
    assert log.read_text().count(": PASS") == 1000


def test_quiet_says_notes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(sys.stderr, quiet=True)
    progress.begin("tests", 1)
    progress.step("tests", "a: PASS")
    progress.note("removed")
    assert capsys.readouterr().err == "removed\n"


def test_who_does_not_read_and_a_log_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    full = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115 - a device, closed below
    progress = Progress(
        io.TextIOWrapper(full, write_through=True), log=tmp_path / "file" / "l.txt", full=True
    )
    progress.begin("tests", 1)
    progress.step("tests", "a: PASS")
    progress.close()
    full.close()
    progress = Progress(io.StringIO(), log=tmp_path / "l.txt")
    progress.note("loading \udcff.tar")  # of a name that is not UTF-8
    progress.close()
    assert (tmp_path / "l.txt").read_text() == "loading ?.tar\n"
