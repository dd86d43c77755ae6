"""Runs the probe's tests under every Python that the host has, and says loudly which it has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.jobs import find_compiler, make_driver
from tests.probe.pythons import WANTED, environment_of, find_pythons


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-pythons", default="", metavar="3.8,3.12",
        help="Python versions that must be there; others that are missing are only listed",
    )  # fmt: skip


def required(config: pytest.Config) -> list[str]:
    return [word.strip() for word in config.getoption("--require-pythons").split(",") if word.strip()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``version`` under the oldest and the newest Python that was found or is required.

    One that takes ``every`` is run under all; one that takes ``isolation`` in a worker under the oldest, in a
    process a cell under the newest.
    """
    names = metafunc.fixturenames
    if "version" in names:
        found, must = find_pythons(), required(metafunc.config)
        versions = [version for version in WANTED if version in found or version in must]
        versions += [version for version in must if version not in WANTED]
        versions = versions if "every" in names else [*dict.fromkeys(versions[:1] + versions[-1:])]
        if "isolation" in names:
            ways = [(versions[0], "worker"), (versions[-1], "process")]
            metafunc.parametrize(("version", "isolation"), ways, scope="module")
        else:
            metafunc.parametrize("version", versions, scope="module")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = [f"Python {version}" for version in WANTED if version not in find_pythons()]
    if find_compiler() is None:
        missing.append("a C compiler: nothing was run over the stand-in driver, no real bindings were read")
    if missing:
        terminalreporter.section("NOT TESTED on this host", sep="!", red=True, bold=True)
        terminalreporter.line("\n".join(missing))


@pytest.fixture(scope="module")
def every(version: str) -> Path:
    if version not in find_pythons():
        pytest.fail(f"Python {version} is required (--require-pythons) and was not found: put it on PATH")
    return find_pythons()[version]


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest, version: str) -> Path:
    return environment_of(version) if version in find_pythons() else Path(request.getfixturevalue("every"))


@pytest.fixture(scope="session")
def driver(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_compiler() is None:
        if required(pytestconfig):
            pytest.fail("no C compiler was found: install gcc, or set CC")
        pytest.skip("no C compiler")
    return make_driver(tmp_path_factory.mktemp("driver"))
