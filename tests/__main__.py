"""``python -m tests``: the tests in three tiers, one line a suite.

Alone, the suites that need no container engine, in a few minutes. ``--all``: every suite that this host
allows. ``--require-all``: all of them, and one that cannot run is a failure, as in CI. What was left out is
named at the end with the reason. Names after the options select suites; ``--list`` shows them.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
COUNTS = r"(?m)^=*\s*((?:\d+ (?:passed|failed|errors?|skipped|deselected|warnings?)(?:, )?)+)"
"""What pytest closes with."""

PODMAN, CDI = "TRTMATRIX_TEST_PODMAN", "TRTMATRIX_TEST_CDI_ENGINE"
GRACE_SECONDS = 60  # what an interrupted suite may take to end what it has started


def _nothing() -> str:
    return ""


def _docker() -> str:
    import docker
    import docker.errors

    try:
        docker.from_env(timeout=10).ping()
    except docker.errors.DockerException as error:
        return f"no Docker engine answers: {str(error)[:120]}"
    built = subprocess.run([str(HERE.parent / "docker" / "test" / "build")], check=False)
    return "" if built.returncode == 0 else "the test image cannot be built: see docker/test/build"


def _programs(packages: str, *names: str) -> str:
    missing = [name for name in names if shutil.which(name) is None]
    return f"{', '.join(missing)} missing: apt-get install {packages}" if missing else ""


def _registry() -> str:
    packages = "docker-registry apache2-utils openssl"
    return _programs(packages, "docker-registry", "htpasswd", "openssl")


def _engine(variable: str, script: str) -> Callable[[], str]:
    """Return what says why tests over another engine cannot run, or nothing."""
    start = f'no such engine was started: eval "$({script} FOLDER)" starts one'
    return lambda: "" if variable in os.environ else start


def _pack() -> str:
    if os.geteuid():
        return "root is needed, for an engine in a network namespace of its own"
    return _programs("docker.io iproute2", "dockerd", "ip", "nsenter") or _docker()


def _faults() -> str:
    return "root is needed, for disks that are full or read-only" if os.geteuid() else _docker()


def _slurm() -> str:
    from tests.slurm.cluster import lacking

    return lacking() or _docker()


def _browser() -> str:
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install --group test"
    from tests.browser.chromium import find_chromium

    missing = "no chromium: apt-get install chromium, or name one by TRTMATRIX_TEST_CHROMIUM"
    return "" if find_chromium() else missing


def _torch() -> str:
    return "" if shutil.which("nox") or find_spec("nox") else "nox is not installed"


def _models() -> str:
    return _torch() or _docker()


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Some tests, what they need, and how long they may take, in seconds.

    ``quick``: one of those that run when nothing is asked for. ``engine``: the variable that names the socket
    of another engine, over which they run. ``waits``: they wait for others most of the time, so they run
    beside the rest.
    """

    name: str
    seconds: int
    command: tuple[str, ...]
    lacking: Callable[[], str] = _nothing
    quick: bool = False
    engine: str = ""
    waits: bool = False

    @property
    def environment(self) -> dict[str, str]:
        # Where Python may not keep bytecode, as in many images, each of thousands of processes compiles all.
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**own, "DOCKER_HOST": os.environ[self.engine]} if self.engine else own


PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
BOTH_CORES = (*PYTEST, "-n", "2", "--dist", "worksteal")  # where tests are many and small
BY_FILE = (*PYTEST, "-n", "2", "--dist", "loadfile")  # where the tests of a file share what is slow to make
WAITING = (*PYTEST, "-n", "3", "--dist", "loadfile")
"""Where they wait for containers or jobs most of the time, too."""

SUITES = (
    Suite(name="unit", seconds=1200, command=(*BOTH_CORES, "tests/unit"), quick=True),
    Suite(name="border", seconds=300, command=(*BOTH_CORES, "tests/border"), quick=True),
    Suite(name="nox", seconds=400, command=(*PYTEST, "tests/nox"), quick=True),
    Suite(name="numerics", seconds=400, command=(*BOTH_CORES, "tests/numerics")),
    Suite(name="slurm", seconds=1000, command=(*WAITING, "tests/slurm"), lacking=_slurm, waits=True),
    Suite(name="worker", seconds=500, command=(*PYTEST, "tests/worker"), lacking=_docker, waits=True),
    Suite(name="hostile", seconds=700, command=(*WAITING, "tests/hostile"), lacking=_docker, waits=True),
    Suite(name="faults", seconds=700, command=(*WAITING, "tests/faults"), lacking=_faults, waits=True),
    Suite(name="pack", seconds=600, command=(*PYTEST, "tests/pack"), lacking=_pack, waits=True),
    Suite(name="registry", seconds=300, command=(*BY_FILE, "tests/registry"), lacking=_registry, waits=True),
    Suite(
        name="cdi", seconds=150, command=(*PYTEST, "tests/cdi"), lacking=_engine(CDI, "tests/cdi/engine"),
        waits=True,
    ),
    Suite(name="probe", seconds=700, command=(*BY_FILE, "tests/probe")),
    Suite(
        name="containers", seconds=900, command=(*WAITING, "tests/containers"), lacking=_docker, waits=True
    ),
    Suite(
        name="podman", seconds=600, command=(*WAITING, "-m", "engines", "tests/containers"),
        lacking=_engine(PODMAN, "tests/podman/engine"), engine=PODMAN, waits=True,
    ),
    Suite(
        name="launchers", seconds=500, command=(*BOTH_CORES, "tests/launchers"), lacking=_docker, waits=True
    ),
    Suite(name="operators", seconds=600, command=(*PYTEST, "tests/operators"), lacking=_docker, waits=True),
    Suite(name="bundles", seconds=900, command=(*BY_FILE, "tests/bundles"), lacking=_docker, waits=True),
    Suite(name="browser", seconds=500, command=(*BY_FILE, "tests/browser"), lacking=_browser),
    Suite(
        name="torch", seconds=800, lacking=_torch,
        command=(sys.executable, "-m", "nox", "-s", "torch_tests", "--", "-n", "2", "tests/torch"),
    ),
    Suite(  # in the environment that the suite before has made
        name="models", seconds=700, lacking=_models,
        command=(sys.executable, "-m", "nox", "-R", "-s", "torch_tests", "--", *BY_FILE[4:], "tests/models"),
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a suite ended: ``left_out`` says why it did not run, ``said`` is the tests' own last line."""

    suite: Suite
    seconds: float
    passed: bool = False
    left_out: str = ""
    said: str = ""


def main() -> int:
    """Run the suites; returns 0 only where all that ran passed and nothing required was left out."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every suite that this host allows")
    parser.add_argument("--require-all", action="store_true", help="all; fail where a suite cannot run")
    parser.add_argument("--list", action="store_true", help="show the suites")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    args = parser.parse_args()
    unknown = set(args.suites) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in SUITES)}")
    if args.list:
        print("\n".join(f"{suite.name}: at most {suite.seconds} s" for suite in SUITES))
        return 0
    every = args.all or args.require_all
    chosen = [
        suite for suite in SUITES
        if (suite.name in args.suites if args.suites else every or suite.quick)
    ]  # fmt: skip
    # A shell that starts this in the background has interrupts ignored, and some tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    outcomes = run_suites(chosen, strict=args.require_all)
    return report(outcomes, time.monotonic() - started, strict=args.require_all)


def run_suites(chosen: Sequence[Suite], *, strict: bool) -> list[Outcome]:
    """Run suites in turn, those that mostly wait beside the others; a line is printed as each ends.

    Once the others are done, two that wait run side by side.
    """
    left, turn = list(chosen), threading.Lock()

    def run_lane(waits: bool) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while True:
            with turn:
                mine = [each for each in left if each.waits or not waits]
                if not mine:
                    return outcomes
                suite = min(mine, key=lambda each: each.waits is not waits)  # the first of its own kind
                left.remove(suite)
            outcomes.append(run_suite(suite, strict=strict))

    with ThreadPoolExecutor() as threads:
        futures = [threads.submit(run_lane, waits) for waits in (False, True)]
        try:
            return [outcome for future in as_completed(futures) for outcome in future.result()]
        except KeyboardInterrupt:  # as_completed waits here; the suites are in sessions of their own
            left.clear()
            for process in list(RUNNING):
                os.killpg(process.pid, signal.SIGINT)
            raise


RUNNING: set[subprocess.Popen[str]] = set()


def run_suite(suite: Suite, *, strict: bool) -> Outcome:
    """Run one suite and print its line; what it printed is shown where it failed."""
    started = time.monotonic()
    if reason := suite.lacking():
        outcome = Outcome(suite=suite, seconds=time.monotonic() - started, left_out=reason)
        print(f"{suite.name:12}         left out: {reason}", flush=True)
        return outcome
    extra = ("--require-pythons=3.8,3.10,3.12",) if strict and suite.name == "probe" else ()
    with tempfile.TemporaryFile("w+") as out:
        code = run_command([*suite.command, *extra], suite, out)
        out.seek(0)
        text = out.read()
    counts = re.findall(COUNTS, text)
    said = counts[-1].strip() if counts else ""
    seconds = time.monotonic() - started
    ended = "passed" if code == 0 else f"not done after {suite.seconds} s" if code is None else "FAILED"
    shown = f"\n{text}\n" if code != 0 else ""
    print(f"{shown}{suite.name:12} {seconds:5.0f} s {ended}: {said}", flush=True)
    return Outcome(suite=suite, seconds=seconds, passed=code == 0, said=said)


def run_command(words: Sequence[str], suite: Suite, out: TextIO) -> int | None:
    """Run a suite's command in a session of its own; returns its exit code, None where time ran out.

    Its folders are its own and removed by rm: pytest fails at folders thousands deep, which some tests make.
    """
    folders = tempfile.mkdtemp(prefix="t-")  # short: sockets lie in them
    words = [*words, f"--basetemp={folders}/b"] if "pytest" in words else words
    process = subprocess.Popen(
        words, cwd=HERE.parent, env=suite.environment,
        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, text=True,
    )  # fmt: skip
    RUNNING.add(process)
    try:
        return process.wait(timeout=suite.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)  # pytest takes down what it has set up
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None
    finally:
        RUNNING.discard(process)
        subprocess.run(["/bin/rm", "-rf", folders], check=False)


def report(outcomes: Sequence[Outcome], seconds: float, *, strict: bool) -> int:
    """Print what was left out and the counts; returns the exit code."""
    passed = [outcome for outcome in outcomes if outcome.passed]
    left_out = [outcome for outcome in outcomes if outcome.left_out]
    ran = {outcome.suite.name for outcome in outcomes if not outcome.left_out}
    rest = [suite.name for suite in SUITES if suite.name not in ran]
    print(f"\n{len(passed)} of {len(ran)} suites passed in {int(seconds) // 60}:{int(seconds) % 60:02d}")
    if rest:
        print(f"not run: {', '.join(rest)}")
        print("  all that this host allows: nox -s tests -- --all (--list shows how long each may take)")
    failed = len(ran) - len(passed) + (len(left_out) if strict else 0)
    print(f"{len(passed)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
