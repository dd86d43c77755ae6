"""Exit codes, what ends however deaf it is, what is remembered by content; the guard of these tests."""

import itertools
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from conftest import RealWorldTouched

from trtmatrix.common.errors import ExitCode, combine_exit_codes
from trtmatrix.common.paths import recall


def test_the_first_of_the_order_stands_for_a_set_upgrades_codes_before_surprises() -> None:
    order = [2, 3, 11, 12, 10, 1, 4, 0]
    assert combine_exit_codes(set()) is ExitCode.AS_EXPECTED
    for codes in itertools.combinations(map(ExitCode, order), 2):
        assert combine_exit_codes({*codes}) is codes[0]


TWICE = """
import signal
from trtmatrix.common.errors import hear_signals
hear_signals()
try: signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt: signal.raise_signal(signal.SIGINT); print("ended whole")
"""
ELSEWHERE = """
import os, signal, threading, time
from concurrent.futures import ThreadPoolExecutor
from trtmatrix.run.tasks import finish
submit = ThreadPoolExecutor().submit
submit(lambda: (time.sleep(0.3), signal.pthread_kill(threading.get_ident(), signal.SIGINT)))
try: finish([submit(time.sleep, 30)])
except KeyboardInterrupt: os._exit(os.write(1, b"ended whole\\n") - 12)
"""
DEAF = """
import os, signal, time
from trtmatrix.common.errors import hear_signals
class Deaf:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000): pass
hear_signals()
Deaf()  # what is raised in a finalizer goes nowhere
try: time.sleep(15)
except KeyboardInterrupt: print("ended whole")
"""
STARTING = """
import os, signal, subprocess
from trtmatrix.common.processes import run_to_end
start = subprocess.Popen
def interrupted(*words, **options):
    child, _ = start(*words, **options), signal.raise_signal(signal.SIGINT)
    return child
subprocess.Popen = interrupted
try: run_to_end(["sleep", "60"], dict(os.environ), shown=True)
except KeyboardInterrupt: print("ended whole")
"""
TOO_LONG = """
import os
from trtmatrix.common.processes import run_to_end
assert run_to_end(["/nowhere/at-all"], {}) == (127, "/nowhere/at-all: No such file or directory")
if run_to_end(["sh", "-c", "sleep 60 & wait"], {}, 1.0, shown=True)[0] == 124: print("ended whole")
"""


@pytest.mark.parametrize("program", [TWICE, ELSEWHERE, DEAF, STARTING, TOO_LONG])
def test_a_signal_is_always_heard_and_what_was_started_ends_whole(program: str) -> None:
    words = [sys.executable, "-c", program]  # what is left would hold its standard error open
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert (done.stdout, done.stderr) == ("ended whole\n", "")


def recalled(folder: Path, value: str, kind: str = "k", content: str = "c") -> str:
    return recall(folder, kind, content, lambda: value)


def test_what_is_known_is_not_computed_again_and_another_kind_or_content_is(tmp_path: Path) -> None:
    assert [recalled(tmp_path, value) for value in ("old", "new", "newer")] == ["old"] * 3
    assert recalled(tmp_path, "new", kind="l") == recalled(tmp_path, "new", content="d") == "new"


def test_a_damaged_file_is_computed_and_written_anew(tmp_path: Path) -> None:
    recalled(tmp_path, "old")
    (file,) = (tmp_path / "recalled").iterdir()
    file.write_bytes(b'"ol')
    assert [recalled(tmp_path, value) for value in ("new", "newer")] == ["new"] * 2


REAL: list[Callable[[], object]] = [
    lambda: subprocess.run([sys.executable, "-m", "pip", "--version"], check=False),
    lambda: subprocess.run(["/usr/bin/docker", "ps"], check=False),
    lambda: docker.from_env(environment={}), lambda: venv.create("env"),
]  # fmt: skip


@pytest.mark.parametrize("start", REAL)
def test_the_guard_stops_what_is_real(start: Callable[[], object]) -> None:
    with pytest.raises(RealWorldTouched):
        start()
