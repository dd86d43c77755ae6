"""``python -m tests``: every suite that this host allows, in turn, each within its time budget.

What a host does not allow is listed loudly at the end; ``--require-all`` makes it a failure, as CI
does. Names after the options select suites; ``--list`` shows them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
TIMED_OUT = 124


def _nothing() -> str:
    return ""


def _docker() -> str:
    """Return why the container tests cannot run, or nothing."""
    import docker
    import docker.errors

    try:
        docker.from_env(timeout=10).ping()
    except docker.errors.DockerException as error:
        return f"no Docker engine answers: {str(error)[:120]}"
    built = subprocess.run([str(HERE.parent / "docker" / "test" / "build")], check=False)
    return "" if built.returncode == 0 else "the test image cannot be built: see docker/test/build"


def _registry() -> str:
    """Return why the tests against registries cannot run, or nothing."""
    missing = [name for name in ("docker-registry", "htpasswd", "openssl") if shutil.which(name) is None]
    packages = "docker-registry apache2-utils openssl"
    return f"{', '.join(missing)} missing: apt-get install {packages}" if missing else ""


def _podman() -> str:
    """Return why the container tests cannot run over Podman, or nothing."""
    named = "TRTMATRIX_TEST_PODMAN" in os.environ
    return "" if named else 'no Podman was started: eval "$(tests/podman/engine FOLDER)" starts one'


def _pack() -> str:
    """Return why packs cannot be carried between two engines, or nothing."""
    if os.geteuid():
        return "root is needed, for an engine in a network namespace of its own"
    missing = [name for name in ("dockerd", "ip", "nsenter") if shutil.which(name) is None]
    return f"{', '.join(missing)} missing: apt-get install docker.io iproute2" if missing else _docker()


def _slurm() -> str:
    """Return why no cluster can be started here, or nothing."""
    from tests.slurm.cluster import lacking

    return lacking() or _docker()


def _cdi() -> str:
    """Return why the tests with a device by CDI cannot run, or nothing."""
    named = "TRTMATRIX_TEST_CDI_ENGINE" in os.environ
    return "" if named else 'no engine with CDI was started: eval "$(tests/cdi/engine FOLDER)" starts one'


def _browser() -> str:
    """Return why the pages cannot be opened in a browser, or nothing."""
    if not _importable("playwright"):
        return "playwright is not installed: pip install --group test"
    from tests.browser.chromium import find_chromium

    return (
        ""
        if find_chromium()
        else "no chromium: apt-get install chromium, or name one by TRTMATRIX_TEST_CHROMIUM"
    )


def _torch() -> str:
    """Return why the comparison with torch's own export cannot run, or nothing."""
    return "" if shutil.which("nox") or _importable("nox") else "nox is not installed"


def _models() -> str:
    """Return why exported models cannot be run in containers, or nothing."""
    return _torch() or _docker()


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Some tests, what they need, and how long they may take, in seconds.

    ``engine``: the variable that names the socket of another engine, over which they run. ``beside``: they
    wait for others most of the time, so they run at the same time as the suite of that name.
    """

    name: str
    seconds: int
    command: tuple[str, ...]
    lacking: Callable[[], str] = _nothing
    engine: str = ""
    beside: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that its processes get."""
        return {**os.environ, "DOCKER_HOST": os.environ[self.engine]} if self.engine else dict(os.environ)


PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
BOTH_CORES = (*PYTEST, "-n", "2", "--dist", "worksteal")
"""Where tests are many and small."""

BY_FILE = (*PYTEST, "-n", "2", "--dist", "loadfile")
"""Where the tests of a file share what is slow to make."""

SUITES = (
    Suite(name="unit", seconds=720, command=(*BOTH_CORES, "tests/unit")),
    Suite(name="probe", seconds=540, command=(*BOTH_CORES, "tests/probe")),
    Suite(name="registry", seconds=120, command=(*PYTEST, "tests/registry"), lacking=_registry),
    Suite(name="containers", seconds=480, command=(*BY_FILE, "tests/containers"), lacking=_docker),
    Suite(
        name="podman", seconds=600, command=(*BY_FILE, "tests/containers"), lacking=_podman,
        engine="TRTMATRIX_TEST_PODMAN",
    ),
    Suite(name="launchers", seconds=180, command=(*BOTH_CORES, "tests/launchers"), lacking=_docker),
    Suite(name="pack", seconds=600, command=(*PYTEST, "tests/pack"), lacking=_pack),
    Suite(name="slurm", seconds=480, command=(*PYTEST, "tests/slurm"), lacking=_slurm, beside="podman"),
    Suite(name="bundles", seconds=480, command=(*BY_FILE, "tests/bundles"), lacking=_docker),
    Suite(name="worker", seconds=420, command=(*BY_FILE, "tests/worker"), lacking=_docker),
    Suite(name="cdi", seconds=90, command=(*PYTEST, "tests/cdi"), lacking=_cdi),
    Suite(name="browser", seconds=300, command=(*BY_FILE, "tests/browser"), lacking=_browser),
    Suite(name="nox", seconds=240, command=(*PYTEST, "tests/nox")),
    Suite(
        name="torch", seconds=330, lacking=_torch,
        command=(sys.executable, "-m", "nox", "-s", "torch_tests", "--", "-n", "2"),
    ),
    Suite(
        name="models", seconds=600, lacking=_models,
        command=(sys.executable, "-m", "nox", "-s", "model_tests"),
    ),
)  # fmt: skip


def main() -> int:
    """Run the suites; returns 0 only where all that ran passed and nothing required was left out."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--require-all", action="store_true", help="fail where a suite cannot run")
    parser.add_argument("--list", action="store_true", help="show the suites")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    args = parser.parse_args()
    unknown = set(args.suites) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in SUITES)}")
    if args.list:
        print("\n".join(f"{suite.name}: at most {suite.seconds} s" for suite in SUITES))
        return 0
    chosen = [suite for suite in SUITES if not args.suites or suite.name in args.suites]
    # A shell that starts this in the background has interrupts ignored, and some tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return report(run_suites(chosen, strict=args.require_all), strict=args.require_all)


Outcome = tuple[Suite, str, float]
"""A suite with how it ended and how long it took, in seconds."""


def run_suites(chosen: Sequence[Suite], *, strict: bool) -> list[Outcome]:
    """Run suites in turn, those that belong beside another one together with that one."""
    hosts = {suite.name for suite in chosen}
    outcomes: list[Outcome] = []
    for suite in chosen:
        if suite.beside in hosts:
            continue
        with ThreadPoolExecutor() as threads, contextlib.ExitStack() as files:
            aside = []
            for other in (other for other in chosen if other.beside == suite.name):
                out = files.enter_context(tempfile.TemporaryFile("w+"))
                aside.append((other, out, threads.submit(run_suite, other, strict=strict, out=out)))
            outcomes.append((suite, *run_suite(suite, strict=strict)))
            for other, out, future in aside:
                outcomes.append((other, *future.result()))
                out.seek(0)
                print(out.read(), flush=True)
    return outcomes


def run_suite(suite: Suite, *, strict: bool, out: TextIO | None = None) -> tuple[str, float]:
    """Run one suite; returns how it ended and how long it took. ``out``: where it writes to, not here."""
    print(f"\n=== {suite.name} ===", file=out, flush=True)
    started = time.monotonic()
    if reason := suite.lacking():
        return f"LEFT OUT: {reason}", time.monotonic() - started
    extra = ("--require-pythons=3.8,3.10,3.12",) if strict and suite.name == "probe" else ()
    try:
        done = subprocess.run(
            [*suite.command, *extra],
            cwd=HERE.parent,
            env=suite.environment,
            check=False,
            timeout=suite.seconds,
            stdout=out,
            stderr=None if out is None else subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        return f"FAILED: not done after {suite.seconds} s", time.monotonic() - started
    ended = "passed" if done.returncode == 0 else f"FAILED with code {done.returncode}"
    return ended, time.monotonic() - started


def report(outcomes: Sequence[Outcome], *, strict: bool) -> int:
    """Print how each suite ended and return the exit code."""
    print("\n=== suites ===")
    for suite, ended, seconds in outcomes:
        print(f"{suite.name:12} {seconds:6.0f} s  {ended}")
    failed = [suite.name for suite, ended, _ in outcomes if ended.startswith("FAILED")]
    left_out = [suite.name for suite, ended, _ in outcomes if ended.startswith("LEFT OUT")]
    if left_out:
        print(f"NOT RUN on this host: {', '.join(left_out)}" + (" (all were required)" if strict else ""))
    good = len(outcomes) - len(failed) - len(left_out)
    print(f"{good} passed, {len(failed) + (len(left_out) if strict else 0)} failed")
    return 1 if failed or (strict and left_out) else 0


if __name__ == "__main__":
    sys.exit(main())
