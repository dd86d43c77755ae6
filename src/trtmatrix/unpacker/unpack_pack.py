"""Checks every byte of the pack beside which it lies, then loads it: images, suite, wheels.

Any Python from 3.8 on runs it, and nothing else is needed: ``python3 unpack`` in the pack's folder. No
connection is opened but to the container engine's socket. ``--check`` stops after checking.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trtmatrix.unpacker.pack_check import (
    BLOCK,
    DAMAGED,
    FAILED,
    INTERRUPTED,
    USAGE,
    Joined,
    Refused,
    check_pack,
    digest_file,
    read_stream,
)  # fmt: skip
from trtmatrix.unpacker.pack_engine import check_room, find_engine, load_images, missing_images

if TYPE_CHECKING:
    from trtmatrix.unpacker.pack_check import Json


def check_target(into: Path, manifest: Json) -> None:
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


def write_files(folder: Path, manifest: Json, into: Path) -> None:
    """Write suite and wheels, each file whole or not at all; those that are there are left."""
    wanted = {f["name"]: f["sha256"] for f in manifest["files"]}
    stream: Any = Joined(read_stream(folder, manifest, "files"))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isreg() else None
            if source is None or member.name not in wanted:
                raise Refused(f"the pack holds {member.name!r}, which its manifest does not name", DAMAGED)
            target = into / member.name
            if not target.exists():
                _write_file(source, target, wanted[member.name], 0o755 if member.mode & 0o100 else 0o644)
            del wanted[member.name]
    if wanted:
        raise Refused(f"the pack lacks {', '.join(sorted(wanted)[:5])}", DAMAGED)


def _write_file(source: IO[bytes], target: Path, digest: str, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    with partial.open("wb") as out:
        shutil.copyfileobj(source, out, BLOCK)
    if digest_file(partial) != digest:
        raise Refused(f"{target} was not written as it is in the pack: is the disk sound?", FAILED)
    partial.chmod(mode)
    partial.replace(target)


def find_python(named: str | None, pythons: list[str]) -> str:
    """Return a Python that the wheels are for; :class:`Refused` where there is none."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    tried = [named] if named else [sys.executable, *(f"python{version}" for version in pythons)]
    for python in filter(None, (shutil.which(each) for each in tried)):
        done = subprocess.run(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        if done.stdout.decode().strip() in pythons:
            return python
    raise Refused(
        f"the wheels of this pack are for Python {' or '.join(pythons)}, and {' and '.join(tried)} is none: "
        "name one by --python PATH, pack again with --for-python X.Y, or --no-venv", USAGE
    )  # fmt: skip


def make_environment(python: str, into: Path, pack: str) -> Path:
    """Make the suite's environment from the wheels alone; returns its interpreter."""
    folder, wheels = into / ".venv", into / "wheelhouse"
    inner = folder / "bin" / "python"
    done = folder / f"complete-{pack}"
    if done.exists():
        return inner
    print("making the suite's environment", flush=True)
    shutil.rmtree(str(folder), ignore_errors=True)
    (pip,) = [str(file / "pip") for file in sorted(wheels.glob("pip-*.whl"))[-1:]]
    install = [str(inner), pip, "install", "--isolated", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    install += ["--disable-pip-version-check", "--require-hashes", f"--find-links={wheels}"]
    _run([python, "-m", "venv", "--without-pip", str(folder)])
    version = _run([str(inner), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    _run([*install, f"--requirement={wheels / f'suite-{version}.txt'}"])
    site = _run([str(inner), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    Path(site, "trtmatrix-suite.pth").write_text(f"{(into / 'src').absolute()}\n", encoding="utf-8")
    done.touch()
    return inner


def _run(command: list[str]) -> str:
    code, said = run_alone(command)
    if code:
        raise Refused(f"{' '.join(command)} failed:\n{said[-1500:]}", FAILED)
    return said


def run_alone(command: list[str], seconds: float = 1800) -> tuple[int, str]:
    """Run a command in a session of its own, which is gone however this ends; returns its code and words."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=seconds)[0].decode("utf-8", "replace").strip()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        raise
    return process.returncode, said


def unpack(args: argparse.Namespace) -> None:
    """Check all that can be known to fail, then load images, write the suite, make its environment."""
    folder, into = args.folder, args.into or Path("trtmatrix")
    manifest = check_pack(folder)
    total = sum(part["size"] for part in manifest["parts"])
    print(
        f"the pack {manifest['pack']} is whole: {len(manifest['parts'])} parts, {total:,} bytes", flush=True
    )
    if args.check:
        return
    engine = None if args.no_images or not manifest["images"] else find_engine()
    check_target(into, manifest)
    python = "" if args.no_venv else find_python(args.python, manifest["pythons"])
    if engine:
        missing = missing_images(engine, manifest)
        check_room(engine, manifest, missing)
        load_images(engine, folder, manifest, missing)
    write_files(folder, manifest, into)
    inner = make_environment(python, into, manifest["pack"]) if python else into / ".venv" / "bin" / "python"
    if manifest["images"] and not engine:
        why = (
            "as asked for"
            if args.no_images
            else "no container engine's socket is here: start Docker or Podman"
        )
        print(f"THE IMAGES WERE NOT LOADED ({why}); start this again for them")
    shown = inner.relative_to(into)
    print(f"next:\n  cd {into} && {shown} -m trtmatrix run --offline --trt {','.join(manifest['versions'])}")


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
