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

from trtmatrix.common import errors
from trtmatrix.common.errors import PRECEDENCE, ConfigError, ExitCode, combine_exit_codes

SUBSETS = [set(subset) for n in range(len(ExitCode) + 1) for subset in itertools.combinations(ExitCode, n)]


def test_the_order_names_every_exit_code_once() -> None:
    assert sorted(PRECEDENCE) == sorted(ExitCode)


def test_the_order_is_2_3_1_4_0_and_upgrades_codes_before_surprises() -> None:
    assert [int(code) for code in PRECEDENCE if code is not ExitCode.INTERRUPTED] == [
        2, 3, 11, 12, 10, 1, 4, 0,
    ]  # fmt: skip


@pytest.mark.parametrize("codes", SUBSETS, ids=str)
def test_the_first_of_the_order_stands_for_a_set(codes: set[ExitCode]) -> None:
    chosen = combine_exit_codes(codes)
    assert chosen in (codes or {ExitCode.AS_EXPECTED})
    assert all(PRECEDENCE.index(chosen) <= PRECEDENCE.index(code) for code in codes)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TrtMatrixError, ExitCode.MACHINERY),
        (errors.UsageError, ExitCode.USAGE),
        (errors.ConfigError, ExitCode.USAGE),
        (errors.MachineryError, ExitCode.MACHINERY),
    ],
)
def test_each_fatal_error_has_its_exit_code(error: type[errors.TrtMatrixError], code: ExitCode) -> None:
    assert error.exit_code is code


def test_a_config_error_lists_all_its_problems() -> None:
    error = ConfigError(["a:1: x", "b:2: y"])
    assert error.problems == ["a:1: x", "b:2: y"]
    assert str(error) == "a:1: x\nb:2: y"


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
