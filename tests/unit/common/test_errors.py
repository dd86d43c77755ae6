"""Exit codes, their precedence, and the guard of these tests."""

from __future__ import annotations

import itertools
import subprocess
import sys
import venv
from collections.abc import Callable

import docker
import pytest
from conftest import RealWorldTouched

from trtmatrix.common.errors import PRECEDENCE, ExitCode, combine_exit_codes


def test_the_first_of_the_order_stands_for_a_set_upgrades_codes_before_surprises() -> None:
    order = [int(code) for code in PRECEDENCE if code is not ExitCode.INTERRUPTED]
    assert order == [2, 3, 11, 12, 10, 1, 4, 0]
    assert combine_exit_codes(set()) is ExitCode.AS_EXPECTED
    for codes in itertools.combinations(ExitCode, 2):
        assert combine_exit_codes({*codes}) is min(codes, key=PRECEDENCE.index)


REAL: list[Callable[[], object]] = [
    lambda: subprocess.run([sys.executable, "-m", "pip", "--version"], check=False),
    lambda: subprocess.run(["/usr/bin/docker", "ps"], check=False),
    lambda: docker.from_env(environment={}),
    lambda: venv.create("env"),
]


@pytest.mark.parametrize("start", REAL)
def test_the_guard_stops_what_is_real(start: Callable[[], object]) -> None:
    with pytest.raises(RealWorldTouched):
        start()
