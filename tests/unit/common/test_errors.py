"""Exit codes, their precedence, and the guard of these tests."""

from __future__ import annotations

import itertools
import subprocess
import sys
import venv
from pathlib import Path

import docker
import pytest
from conftest import RealWorldTouched

from trtmatrix.common.errors import PRECEDENCE, ExitCode, combine_exit_codes


def test_the_order_is_2_3_1_4_0_and_upgrades_codes_before_surprises() -> None:
    assert [int(code) for code in PRECEDENCE if code is not ExitCode.INTERRUPTED] == [
        2, 3, 11, 12, 10, 1, 4, 0,
    ]  # fmt: skip


def test_the_first_of_the_order_stands_for_a_set() -> None:
    assert combine_exit_codes(set()) is ExitCode.AS_EXPECTED
    for codes in itertools.combinations(ExitCode, 2):
        assert combine_exit_codes({*codes}) is min(codes, key=PRECEDENCE.index)


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "pip", "--version"], "docker info", ["/usr/bin/docker", "ps"]]
)
def test_the_guard_stops_a_real_command(command: list[str] | str) -> None:
    with pytest.raises(RealWorldTouched):
        subprocess.run(command, check=False)


def test_the_guard_stops_a_real_engine_and_a_real_environment(tmp_path: Path) -> None:
    with pytest.raises(RealWorldTouched):
        docker.from_env()
    with pytest.raises(RealWorldTouched):
        venv.create(tmp_path / "env")
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0
