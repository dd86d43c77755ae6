# /// script
# requires-python = ">=3.10"
# dependencies = ["nox[uv]>=2025.2.9", "pyyaml>=6.0.1"]
# ///
"""The door: each session is one call of ``python -m trtmatrix``, which works without nox too."""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path

import nox.command
import yaml

import nox

BENCHMARKS = ("speed", "verdicts")
"""Those that ``nox -s bench`` runs; the others make what these and the tests need."""

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["matrix"]
nox.options.reuse_venv = "yes"


def _told_pip(option: str) -> str:
    """Return what pip is told in an option by a variable or its files, of which uv reads none."""
    home, files = Path.home(), configparser.ConfigParser(interpolation=None, strict=False)
    own = os.environ.get("PIP_CONFIG_FILE", os.devnull)
    files.read([own, "/etc/pip.conf", home / ".pip/pip.conf", home / ".config/pip/pip.conf"])
    told = files.get("install", option, fallback=files.get("global", option, fallback=""))
    return os.environ.get(f"PIP_{option.replace('-', '_').upper()}", told)


def _backend() -> str:
    """Return uv, which is quick, unless pip is told to look elsewhere."""
    alone = _told_pip("no-index").lower() in ("1", "true", "yes", "on", "t", "y")
    elsewhere = alone or _told_pip("index-url")
    return "virtualenv" if elsewhere else "uv|virtualenv"


nox.options.default_venv_backend = _backend()


def _versions() -> list[str]:
    """Read the names of the versions; a broken file is explained by the session itself."""
    try:
        entries = yaml.safe_load(Path("matrix.yaml").read_text(encoding="utf-8"))["versions"]
        return [str(entry["version"]) for entry in entries]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        print(f"noxfile: matrix.yaml lists no versions: {error}", file=sys.stderr)
        return []


VERSIONS = _versions()


def _tell_of_the_dashes() -> None:
    """Give the right line where nox takes for a session what is trtmatrix's: ``nox -s check my.onnx``."""
    words = sys.argv[1:]
    if "-s" in words and "--" not in words:
        session, *more = [*words[words.index("-s") + 1 :], ""]
        if more[:-1] and not more[0].startswith("-") and not callable(globals().get(more[0].split("(")[0])):
            print(
                f"noxfile: for trtmatrix, after --: nox -s {session} -- {' '.join(more).strip()}",
                file=sys.stderr,
            )


def _group(name: str) -> list[str]:
    """Return a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), name))


def _call(session: nox.Session, *words: str) -> None:
    """Call trtmatrix and end nox with its exit code: nox alone would turn every code into 1."""
    wanted = [name for name in ("tensorrt", "torch") if f"--extra={name}" in words]
    words = tuple(word for word in words if word.removeprefix("--extra=") not in wanted)
    if words[0] == "minimise" or any(word.startswith("--model") for word in words):
        wanted.append("model")  # ONNX Runtime, for the reference of a model of one's own
    if words[0] == "minimise":
        wanted.append("minimise")
    session.install("-e", f".[{','.join(wanted)}]" if wanted else ".")
    _python(session, "-m", "trtmatrix", *words)


def _benchmarks() -> list[str]:
    """Return what can be run in the folder bench: modules that say so, and packages."""
    modules = [file for file in Path("bench").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")]
    packages = [file.parent for file in Path("bench").glob("*/__main__.py")]
    return sorted(path.stem for path in [*modules, *packages])


def _python(session: nox.Session, *words: str) -> None:
    """Run Python and end nox with its exit code, which the program leaves in a file.

    An interrupted run on a cluster waits until its jobs are gone: nox must not kill it meanwhile.
    """
    file = Path(session.create_tmp()).resolve() / f"exit-code-{os.getpid()}"
    file.unlink(missing_ok=True)
    done = session.run(
        "python", *words, env={"TRTMATRIX_EXIT_CODE_FILE": str(file)},
        success_codes=range(256), interrupt_timeout=240.0, terminate_timeout=60.0,
    )  # fmt: skip
    if done is None:  # --install-only
        return
    code = int(file.read_text()) if file.exists() else 3
    file.unlink(missing_ok=True)
    if code:
        session.log(f"python {' '.join(words[:2])} ended with exit code {code} (--help says what it means)")
        raise SystemExit(code)


@nox.session
def matrix(session: nox.Session) -> None:
    """Run everything that can be run here and print the tables."""
    _call(session, "run", *session.posargs)


@nox.session
@nox.parametrize("version", VERSIONS, ids=VERSIONS)
def version(session: nox.Session, version: str) -> None:
    """Run one version: nox -s "version(10.7.0)"."""
    _call(session, "run", "--trt", version, *session.posargs)


@nox.session
def table(session: nox.Session) -> None:
    """Print the tables from stored records."""
    _call(session, "table", *session.posargs)


@nox.session
def doctor(session: nox.Session) -> None:
    """Say what was found here, what that lets run, and what to do about the rest."""
    _call(session, "doctor", *session.posargs)


@nox.session
def upgrade(session: nox.Session) -> None:
    """Say whether to upgrade, with evidence: nox -s upgrade -- --from 8.6.1 --to 10.8.0 --gpu L4."""
    _call(session, "upgrade", *session.posargs)


@nox.session
def check(session: nox.Session) -> None:
    """Name a model's nodes that a version gets wrong: nox -s check -- my.onnx --trt 8.6.1,10.8.0."""
    _call(session, "check", *session.posargs)


@nox.session
def operators(session: nox.Session) -> None:
    """Run ONNX's own tests of its operators on versions: nox -s operators -- --trt 8.6.0."""
    _call(session, "operators", *session.posargs)


@nox.session
def report(session: nox.Session) -> None:
    """Write the whole matrix as one page with filters."""
    _call(session, "report", *session.posargs)


@nox.session
def bundle(session: nox.Session) -> None:
    """Make or verify the archive of a failing cell: nox -s bundle -- make CELL."""
    _call(session, "bundle", *session.posargs)


@nox.session
def bisect(session: nox.Session) -> None:
    """Find the version that a failure came in with: nox -s bisect -- --case CASE."""
    _call(session, "bisect", *session.posargs)


@nox.session
def minimise(session: nox.Session) -> None:
    """Find the smallest graph that still fails in the same way: nox -s minimise -- CELL."""
    _call(session, "minimise", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Ask the registry which digests the images' tags stand for; --update writes matrix.lock."""
    _call(session, "lock", *session.posargs)


@nox.session
def pack(session: nox.Session) -> None:
    """Write all that a host without a network needs: nox -s pack -- --trt 10.7.0,10.8.0 --to DIR."""
    _call(session, "pack", *session.posargs)


@nox.session
def merge(session: nox.Session) -> None:
    """Take in records that were made elsewhere: nox -s merge -- FILES."""
    _call(session, "merge", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks of speed and of verdicts, or one of the folder bench: nox -s bench -- NAME."""
    name, *words = session.posargs or [""]
    known = _benchmarks()
    if name and name not in known:
        session.error(f"there is no benchmark {name}: known are {', '.join(known)}")
    session.install("-e", ".")
    missed = []
    for each in [name] if name else BENCHMARKS:  # all of them, also after one that missed a goal
        try:
            session.run("python", "-m", f"bench.{each}", *words)
        except nox.command.CommandFailed:
            missed.append(each)
    if missed:
        session.error(f"a goal was missed, or it could not be measured: {', '.join(missed)}")


@nox.session
def image(session: nox.Session) -> None:
    """Make the image of a version whose origin is wheels on a base: nox -s image -- 8.6.0."""
    session.install("-e", ".")
    _python(session, "docker/wheels/build", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need no container engine; --all: all that this host allows."""
    session.install("-e", ".", *_group("test"))
    session.run("python", "-m", "tests", *session.posargs)


@nox.session(venv_backend=_backend() if _told_pip("find-links") else "virtualenv")
def torch_tests(session: nox.Session) -> None:
    """Run the tests that need torch (for the CPU): tests/torch, and tests/models in real containers.

    Where pip finds torch is pip's to know; a folder of wheels is told to uv.
    """
    links = [f"--find-links={place}" for place in _told_pip("find-links").split()]
    session.install("-e", ".", *_group("test"), *_group("torch"), *links)
    session.run("python", "-m", "pytest", "-q", *(session.posargs or ("tests/torch", "tests/models")))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and layers, Dockerfiles and shell scripts."""
    session.install("-e", ".", *_group("lint"), *_group("test"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports")
    session.run("hadolint", "docker/test/Dockerfile", "docker/wheels/Dockerfile")
    session.run("shellcheck", "docker/test/build", "docker/wheels/base", "src/trtmatrix/images/unpack.sh")
    session.run("shellcheck", "tests/cdi/engine", "tests/podman/engine", ".ci/run", "docker/slurm/epilog")


_tell_of_the_dashes()
