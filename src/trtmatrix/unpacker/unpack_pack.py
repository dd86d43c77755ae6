"""Checks every byte of the pack beside which it lies, then loads it: images, suite, wheels.

Any Python from 3.8 on runs it, and nothing else is needed: ``python3 -I unpack`` in the pack's folder. No
connection is opened but to the container engine's socket. ``--check`` stops after checking.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trtmatrix.unpacker.pack_check import (
    BLOCK,
    DAMAGED,
    FAILED,
    GLIBC,
    INTERRUPTED,
    USAGE,
    Joined,
    Refused,
    check_pack,
    digest_file,
    read_stream,
)  # fmt: skip
from trtmatrix.unpacker.pack_engine import (
    Engine,
    check_machine,
    check_platform,
    check_room,
    check_store,
    find_engine,
    load_images,
    may_use,
    missing_images,
)

if TYPE_CHECKING:
    from trtmatrix.unpacker.pack_check import Json


MARK = "made-by-trtmatrix-unpack"
"""The file in an environment that says whose it is."""


def check_target(into: Path, manifest: "Json") -> None:
    """Refuse a folder whose files differ from the pack's: what somebody changed is never overwritten."""
    names = [f["name"] for f in manifest["files"] if (into / f["name"]).exists()]
    digests = {f["name"]: f["sha256"] for f in manifest["files"]}
    changed = [name for name in names if digest_file(into / name) != digests[name]]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise Refused(
            f"{into}: has other files of the same names ({', '.join(changed[:5])}{more}): name an empty "
            "folder by --into", USAGE
        )  # fmt: skip
    need = 4 * sum(f["size"] for f in manifest["files"])  # the environment is made of the wheels, unpacked
    above = next(path for path in [into.absolute(), *into.absolute().parents] if path.is_dir())
    if (free := shutil.disk_usage(str(above)).free) < need:
        raise Refused(
            f"{into}: needs about {need / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free there", FAILED
        )


def write_files(folder: Path, manifest: "Json", into: Path) -> None:
    """Write suite and wheels, each file whole or not at all; those that are there are left."""
    wanted = {f["name"]: f["sha256"] for f in manifest["files"]}
    stream: Any = Joined(read_stream(folder, manifest, "files"))
    try:
        _write_members(stream, wanted, into)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise Refused(f"the pack's files are no tar that can be read: {error}", DAMAGED) from error
    if wanted:
        raise Refused(f"the pack lacks {', '.join(sorted(wanted)[:5])}", DAMAGED)


def _write_members(stream: Any, wanted: "dict[str, str]", into: Path) -> None:  # noqa: ANN401 - it has read()
    """Write the files of a tar, each of which must be wanted; what was there is taken out of ``wanted``."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isreg() else None
            if source is None or member.name not in wanted:
                raise Refused(f"the pack holds {member.name!a}, which its manifest does not name", DAMAGED)
            target = into / member.name
            if not target.exists():
                _write_file(source, target, wanted[member.name], 0o755 if member.mode & 0o100 else 0o644)
            del wanted[member.name]


def _write_file(source: "IO[bytes]", target: Path, digest: str, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    with partial.open("wb") as out:
        shutil.copyfileobj(source, out, BLOCK)
    if digest_file(partial) != digest:
        partial.unlink()
        raise Refused(f"{target} was not written as it is in the pack: is the disk sound?", FAILED)
    partial.chmod(mode)
    partial.replace(target)


def find_python(named: "str | None", pythons: "list[str]") -> str:
    """Return a Python that the wheels are for; :class:`Refused` where there is none."""
    code = "import os, sys, venv; print('%d.%d' % sys.version_info[:2], os.confstr('CS_GNU_LIBC_VERSION'))"
    tried = [named] if named else [sys.executable, *(f"python{version}" for version in pythons)]
    old = ""
    for python in filter(None, (shutil.which(each) for each in tried)):
        done = subprocess.run(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        version, _, libc = done.stdout.decode().strip().partition(" ")
        if version in pythons and is_new_enough(libc):
            return python
        old = f"; {python} has {libc or 'no glibc'}" if version in pythons else old
    raise Refused(
        f"the wheels of this pack are for Python {' or '.join(pythons)} and glibc {GLIBC} or later, and "
        f"{' and '.join(tried)} is none{old}: name one by --python PATH, pack again with --for-python X.Y, "
        "or --no-venv", USAGE
    )  # fmt: skip


def is_new_enough(libc: str) -> bool:
    """Whether a C library, as in ``glibc 2.36``, loads the wheels."""
    name, _, version = libc.partition(" ")
    numbers = version.split(".")
    wanted = [int(number) for number in GLIBC.split(".")]
    return name == "glibc" and all(map(str.isdigit, numbers)) and [int(n) for n in numbers] >= wanted


def check_environment(into: Path, python: str, manifest: "Json") -> None:
    """Refuse a ``.venv`` that this script did not make, or whose Python these wheels are not for."""
    folder = into / ".venv"
    if not os.path.lexists(str(folder)):
        return
    if not (folder / MARK).is_file():
        raise Refused(
            f"{folder}: is there, and this script did not make it: name an empty folder by --into, move it "
            "away, or --no-venv", USAGE
        )  # fmt: skip
    if any(folder.glob("complete-*")):
        try:
            find_python(str(folder / "bin" / "python"), manifest["pythons"])
        except Refused as refused:
            raise Refused(
                f"{folder}: is of another pack, for another Python than {python}: name an empty folder by "
                "--into, or move it away", USAGE
            ) from refused  # fmt: skip


def make_environment(python: str, into: Path, pack: str) -> Path:
    """Make the suite's environment from the wheels alone; returns its interpreter.

    One that another pack made whole is added to: what its user installed stays.
    """
    folder, wheels = into / ".venv", into / "wheelhouse"
    inner = folder / "bin" / "python"
    done = folder / f"complete-{pack}"
    if done.exists():
        return inner
    print("making the suite's environment", flush=True)
    if not any(folder.glob("complete-*")):
        if folder.exists():
            shutil.rmtree(str(folder))  # it has our mark, and making it was cut off
        folder.mkdir()
        (folder / MARK).touch()
        _run([python, "-m", "venv", "--without-pip", str(folder)])
    (pip,) = [str(file / "pip") for file in sorted(wheels.glob("pip-*.whl"))[-1:]]
    install = [str(inner), pip, "install", "--isolated", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    install += ["--disable-pip-version-check", "--require-hashes", f"--find-links={wheels}"]
    version = _run([str(inner), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    _run([*install, f"--requirement={wheels / f'suite-{version}.txt'}"])
    site = _run([str(inner), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    Path(site, "trtmatrix-suite.pth").write_text(f"{(into / 'src').absolute()}\n", encoding="utf-8")
    done.touch()
    return inner


def _run(command: "list[str]") -> str:
    code, said = run_alone(command)
    if code:
        raise Refused(f"{' '.join(command)} failed:\n{said[-1500:]}", FAILED)
    return said


def run_alone(command: "list[str]", seconds: float = 1800) -> "tuple[int, str]":
    """Run a command in a session of its own, which is gone however this ends; returns its code and words."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent(),  # noqa: PLW1509 - it is one call of the system's, and takes no lock
    )
    try:
        said = process.communicate(timeout=seconds)[0].decode("utf-8", "replace").strip()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        raise
    return process.returncode, said


def _end_with_parent() -> "Callable[[], object] | None":
    """Return what makes a child end with this process, also where that is killed; None where nothing does.

    Source: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda: prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


def unpack(args: argparse.Namespace) -> None:
    """Check all that can be known to fail, then load images, write the suite, make its environment."""
    folder, into = args.folder, args.into or Path("trtmatrix")
    inside = into.absolute().parent == folder.absolute()
    manifest = check_pack(folder, besides=into.name if inside else "")
    total = sum(part["size"] for part in manifest["parts"])
    print(
        f"the pack {manifest['pack']} is whole: {len(manifest['parts'])} parts, {total:,} bytes", flush=True
    )
    if args.check:
        return
    engine, why = choose_engine(args.no_images, manifest)
    check_target(into, manifest)
    python = "" if args.no_venv else find_wheels_python(args.python, into, manifest)
    if engine:
        check_platform(engine, manifest)
        missing = missing_images(engine, manifest)
        check_store(engine, missing)
        check_room(engine, manifest, missing)
        load_images(engine, folder, manifest, missing)
    write_files(folder, manifest, into)
    inner = make_environment(python, into, manifest["pack"]) if python else into / ".venv" / "bin" / "python"
    if manifest["images"] and not engine:
        print(f"THE IMAGES WERE NOT LOADED ({why}); start this again for them")
    print(f"next:\n  {next_command(into, inner.relative_to(into), manifest['versions'])}")


def choose_engine(no_images: bool, manifest: "Json") -> "tuple[Engine | None, str]":
    """Return the engine that is to have the images, or None and why there is none."""
    if no_images or not manifest["images"]:
        return None, "as asked for"
    engine = find_engine()
    if engine is None:
        return None, "no container engine's socket is here: start Docker or Podman"
    if not may_use(engine.path):
        return None, (
            f"this user has no rights on {engine.path}: sudo usermod -aG docker $USER and log in again, or "
            "start this by sudo"
        )
    return engine, ""


def find_wheels_python(named: "str | None", into: Path, manifest: "Json") -> str:
    """Return the Python of the environment, where this host and the folder can have one."""
    check_machine(manifest)
    python = find_python(named, manifest["pythons"])
    check_environment(into, python, manifest)
    return python


def next_command(into: Path, inner: Path, versions: "list[str]") -> str:
    """Return what a shell runs next, as it must be typed."""
    words = [str(inner), "-m", "trtmatrix", "run", "--offline", "--trt", ",".join(versions)]
    return f"cd {shlex.quote(str(into.absolute()))} && {' '.join(map(shlex.quote, words))}"


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="unpack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).absolute().parent
    parser.add_argument(
        "folder", nargs="?", type=Path, default=here, help="the pack's folder (default: this one)"
    )
    add = parser.add_argument
    add(
        "--into",
        type=Path,
        default=Path("trtmatrix"),
        metavar="DIR",
        help="where the suite goes (./trtmatrix)",
    )
    add("--check", action="store_true", help="check every byte, load nothing")
    add("--python", metavar="PATH", help="the Python that the suite is to run with")
    add("--no-images", action="store_true", help="leave the container engine alone")
    add("--no-venv", action="store_true", help="make no environment")
    return parser


def run(args: argparse.Namespace) -> int:
    """Do what the arguments ask for; returns an exit code as ``trtmatrix`` has them."""
    try:
        unpack(args)
    except Refused as refused:
        print(f"unpack: {refused}", file=sys.stderr)
        return refused.code
    except OSError as error:
        print(f"unpack: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.default_int_handler)
    sys.exit(run(make_parser().parse_args()))
