"""Checks every byte of the pack beside which it lies, then loads it: images, suite, wheels.

Any Python from 3.8 on runs it, with its standard library alone: ``python3 -I unpack`` in the pack's folder.
Images are loaded by the host's ``docker`` or ``podman``; nothing else is started that a network could be
reached by. ``--check`` stops after checking.
"""

import sys

if __name__ == "__main__" and not sys.flags.isolated:
    del sys.path[0]  # what lies beside this script is nobody's code

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

Json = Dict[str, Any]

SCHEMA = 4
BLOCK = 1 << 20
MANIFEST, SUMS, SCRIPT = "manifest.json", "SHA256SUMS", "unpack"
FILES, IMAGES = "files.tar", "images.tar"
"""Suite and wheels; the images as ``docker save`` writes them."""
TEXT = 1 << 26
"""Bytes that a list or manifest may have."""
GLIBC = "2.28"
"""What the other host is taken to have: any distribution since 2018, https://peps.python.org/pep-0600/."""

MARK = "made-by-trtmatrix-unpack"
"""The file in an environment that says whose it is, and which pack made it whole."""

VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
"""What a Python is asked for its version by."""

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
DAMAGED, USAGE, FAILED, INTERRUPTED = 1, 2, 3, 130
ANSWER = 60.0
"""Seconds that an engine has for an answer."""


class Refused(Exception):
    """What ends this program: words for the user, and an exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


# --- Whether every byte is as it was written


def check_pack(folder: Path) -> Json:
    """Return the manifest of a pack; :class:`Refused` names every file that is not as it was written.

    Folders beside its files may be there: what a system makes on a disk, or what was unpacked.
    """
    if not (folder / MANIFEST).is_file():
        raise Refused(
            f"{folder}: no {MANIFEST}: this is no pack, or writing it was cut off: pack again", DAMAGED
        )
    try:
        sums, manifest = parse_sums(read_text(folder / SUMS)), parse_manifest(read_text(folder / MANIFEST))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{folder}: {SUMS} or {MANIFEST} cannot be used: {error!r}", DAMAGED) from error
    if set(sums) != {MANIFEST, SCRIPT, FILES, *([IMAGES] if manifest["images"] else [])}:
        raise Refused(f"{folder}: {SUMS} and {MANIFEST} do not name the same files", DAMAGED)
    found = {path.name for path in folder.iterdir() if not path.is_dir()} - {SUMS, *sums}
    problems = [f"{name!a} is extra: it is none of this pack's, move it away" for name in sorted(found)]
    for name in sums:
        digest = digest_file(folder / name)
        if not digest:
            problems.append(f"{name} is missing, or cannot be read")
        elif digest != sums[name]:
            problems.append(f"{name} differs: sha256 {digest}, not {sums[name]}")
    if problems:
        lines = "".join(f"\n  {one}" for one in problems)
        raise Refused(
            f"{folder}: is not the pack {manifest['pack']} as it was made; nothing was loaded:{lines}\n"
            "  copy what is named again from where the pack was made, then start this once more", DAMAGED
        )  # fmt: skip
    return manifest


def parse_manifest(text: str) -> Json:
    """Read a pack's manifest; ``ValueError`` (KeyError, TypeError) where it is none."""
    data = json.loads(text)
    if data["schema"] != SCHEMA:
        raise ValueError(f"it is of schema {data['schema']}, and this program reads {SCHEMA}")
    texts = [data["pack"], data["platform"], *data["versions"], *data["pythons"]]
    for image in data["images"]:
        texts += [image["id"], image["manifest"], *image["names"], *image["versions"]]
    if not all(type(text) is str and text.isprintable() for text in texts):
        raise ValueError("a part of it is no text")
    return dict(data)


def parse_sums(text: str) -> Dict[str, str]:
    """Read what ``sha256sum`` writes: name → digest; ``ValueError`` names the line that is none."""
    found: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        digest, _, name = line.partition("  ")
        if not re.fullmatch(r"[0-9a-f]{64}", digest) or name in found:
            raise ValueError(f"line {number} of {SUMS} is no digest of a file, or names one again")
        found[name] = digest
    return found


def open_plain(file: Path) -> IO[bytes]:
    """Open a regular file; ``OSError`` where it is a link, or what one would wait for, as a FIFO."""
    descriptor = os.open(str(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    stream = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise OSError(f"{file} is no regular file")
    return stream


def read_text(file: Path) -> str:
    """Return a text of at most :data:`TEXT` bytes."""
    with open_plain(file) as stream:
        content = stream.read(TEXT + 1)
    if len(content) > TEXT:
        raise ValueError(f"{file.name} has more than {TEXT:,} bytes")
    return content.decode("utf-8")


def is_plain(name: str) -> bool:
    """Whether a name is relative, plain, and leads nowhere else."""
    good = name.isprintable() and "\\" not in name and ":" not in name
    return good and not {"", ".", ".."} & set(name.split("/"))


def digest_of(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what is left of a stream."""
    total = hashlib.sha256()
    for block in iter(lambda: stream.read(BLOCK), b""):
        total.update(block)
    return total.hexdigest()


def digest_file(file: Path) -> str:
    """Return the SHA-256 of a regular file, or nothing where it cannot be read."""
    try:
        with open_plain(file) as stream:
            return digest_of(stream)
    except OSError:
        return ""


# --- Images, by the host's engine


def find_engine() -> Tuple[str, str, str]:
    """Return the command of the engine that is to have the images and its platform, or why there is none."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise Refused(
            f"DOCKER_HOST={host} is reached over a network, and this opens no connection: unset it, set it "
            "to unix://SOCKET, or --no-images", USAGE
        )  # fmt: skip
    why = "neither docker nor podman is installed here"
    for command in filter(None, map(shutil.which, ("docker", "podman"))):
        code, said = call([command, "info", "--format={{json .}}"], ANSWER)
        with contextlib.suppress(ValueError):  # not what an engine says
            if code == 0:
                info = json.loads(said[said.index("{") :])
                podman = info.get("host") or {}
                machine = str(info.get("Architecture") or podman.get("arch") or "")
                system = info.get("OSType") or podman.get("os") or "linux"
                return command, f"{system}/{MACHINES.get(machine, machine)}", ""
        why = (
            f"{command} does not answer this user: start it; for rights, sudo usermod -aG docker $USER and "
            f"log in again, or start this by sudo: {said.strip()[-200:]!a}"
        )
    return "", "", why


def id_of(engine: str, image: str) -> str:
    """Return the ID of an image by its ID or name, nothing where it is not here."""
    code, said = call([engine, "image", "inspect", "--format={{.Id}}", image], ANSWER)
    return f"sha256:{said.strip().rpartition(':')[2]}" if code == 0 else ""


def held(engine: str, image: Json) -> str:
    """Return the ID that an engine has a pack's image under, or nothing.

    Docker's own store calls an image by its configuration, containerd's by its manifest. Source:
    https://docs.docker.com/engine/storage/containerd/.
    """
    ids = sorted({image["id"], image["manifest"]} - {""})
    return next((one for one in ids if id_of(engine, one) == one), "")


def check_names(engine: str, manifest: Json) -> None:
    """Refuse to load images whose names others have here."""
    for image in manifest["images"]:
        for name in image["names"]:
            here = id_of(engine, name)
            if here and here not in {image["id"], image["manifest"]}:
                raise Refused(
                    f"{name} is another image here ({here[:19]}), and loading would take its name: remove or "
                    f"rename it first: docker tag {name} OTHER && docker rmi {name}", USAGE
                )  # fmt: skip


def load_images(engine: str, folder: Path, manifest: Json) -> None:
    """Load the images, compare their IDs with the manifest's, and give them their names."""
    if not all(held(engine, image) for image in manifest["images"]):
        print("loading the images", flush=True)
        run([engine, "load", "--quiet", f"--input={folder / IMAGES}"])
    for image in manifest["images"]:
        here = held(engine, image)
        if not here:
            raise Refused(
                f"the engine loaded the images, but none has the ID {image['id']} of "
                f"{', '.join(image['versions'])}: perhaps only one of both engines has containerd's image "
                'store: switch it on or off here ("features": {"containerd-snapshotter": …} in daemon.json)',
                FAILED
            )  # fmt: skip
        for name in image["names"]:
            if not id_of(engine, name):
                run([engine, "tag", here, name], ANSWER)
        print(f"  {here[:19]}  {', '.join(image['names'] or image['versions'])}", flush=True)


def check_platform(what: str, found: str, wanted: str, way_out: str) -> None:
    """Refuse images or wheels of another platform than this host's."""
    if found.split("/")[:2] != wanted.split("/")[:2]:
        raise Refused(
            f"the {what} of this pack are for {wanted}, and this host's are of {found}: pack on a host of "
            f"that platform, or {way_out}", USAGE
        )  # fmt: skip


# --- The suite and its environment


def read_files(folder: Path) -> Iterator[Tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield each file of the suite and each wheel, with its content; anything else is refused."""
    try:
        with open_plain(folder / FILES) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                if source is None or not is_plain(member.name):
                    raise Refused(f"the pack holds {member.name!a}, which is no plain file", DAMAGED)
                yield member, source
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise Refused(f"the pack's files are no tar that can be read: {error}", DAMAGED) from error


def check_target(folder: Path, into: Path) -> None:
    """Refuse a folder whose files differ from the pack's: what somebody changed is never overwritten."""
    changed = []
    for member, source in read_files(folder):
        target = into / member.name
        if os.path.lexists(str(target)) and digest_file(target) != digest_of(source):
            changed.append(member.name)
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise Refused(
            f"{into}: has other files of the same names ({', '.join(changed[:5])}{more}): name an empty "
            "folder by --into", USAGE
        )  # fmt: skip


def write_files(folder: Path, into: Path) -> None:
    """Write suite and wheels, each file whole or not at all; those that are there are left."""
    for member, source in read_files(folder):
        target = into / member.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            with partial.open("wb") as out:
                shutil.copyfileobj(source, out, BLOCK)
            partial.chmod(0o755 if member.mode & 0o100 else 0o644)
            partial.replace(target)


def find_python(named: Optional[str], pythons: List[str]) -> str:
    """Return a Python that the wheels are for; :class:`Refused` where there is none."""
    tried = [named] if named else [sys.executable, *(f"python{version}" for version in pythons)]
    for python in filter(None, map(shutil.which, tried)):
        if call([python, "-c", f"import venv; {VERSION}"])[1].strip() in pythons:
            return python
    raise Refused(
        f"the wheels of this pack are for Python {' or '.join(pythons)} with its venv, and "
        f"{' and '.join(tried)} is none: name one by --python PATH, pack again with --for-python X.Y, or "
        "--no-venv", USAGE
    )  # fmt: skip


def make_environment(python: str, into: Path, pack: str) -> None:
    """Make the suite's environment from the wheels alone; its mark names the pack once it is whole.

    One of another pack, or one that was cut off, is made anew.
    """
    folder, wheels = into / ".venv", into / "wheelhouse"
    mark = folder / MARK
    if mark.exists() and mark.read_text() == pack:
        return
    print("making the suite's environment", flush=True)
    if folder.exists():
        shutil.rmtree(str(folder))
    folder.mkdir()
    mark.touch()
    run([python, "-m", "venv", "--without-pip", str(folder)])
    inner, pip = str(folder / "bin" / "python"), str(max(wheels.glob("pip-*.whl")) / "pip")
    install = [inner, pip, "install", "--isolated", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    install += ["--disable-pip-version-check", "--require-hashes", f"--find-links={wheels}"]
    version = run([inner, "-c", VERSION])
    run([*install, f"--requirement={wheels / f'suite-{version}.txt'}"])
    site = run([inner, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    Path(site, "trtmatrix-suite.pth").write_text(f"{(into / 'src').absolute()}\n", encoding="utf-8")
    mark.write_text(pack)


def call(command: List[str], seconds: Optional[float] = None) -> Tuple[int, str]:
    """Run a command to its end; returns its code and words: its warnings only where it fails."""
    pipe = subprocess.PIPE
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(f"{' '.join(command)}: no answer within {seconds:g} s", FAILED) from error
    said = done.stdout + done.stderr if done.returncode else done.stdout
    return done.returncode, said.decode("utf-8", "replace")


def run(command: List[str], seconds: Optional[float] = None) -> str:
    """Run a command that must end well; returns what it said."""
    code, said = call(command, seconds)
    if code:
        raise Refused(f"{' '.join(command)} failed:\n{said[-1500:]}", FAILED)
    return said.strip()


# --- The command line


@dataclass(frozen=True)
class UnpackOptions:
    """What the command line says: see :func:`make_parser`."""

    folder: Path
    into: Optional[Path]
    check: bool
    python: Optional[str]
    no_images: bool
    no_venv: bool


def unpack(options: UnpackOptions) -> None:
    """Check all that can be known to fail, then load images, write the suite, make its environment."""
    folder, into = options.folder, options.into or Path("trtmatrix")
    manifest = check_pack(folder)
    print(f"the pack {manifest['pack']} is whole", flush=True)
    if options.check:
        return
    wanted = manifest["images"] and not options.no_images
    engine, system, why = find_engine() if wanted else ("", "", "as asked for")
    if engine:
        check_platform("images", system, manifest["platform"], "--no-images")
        check_names(engine, manifest)
    check_target(folder, into)
    python = ""
    if not options.no_venv:
        own = f"{platform.system().lower()}/{MACHINES.get(platform.machine(), platform.machine().lower())}"
        check_platform("wheels", own, manifest["platform"], "--no-venv")
        python, venv = find_python(options.python, manifest["pythons"]), into / ".venv"
        if os.path.lexists(str(venv)) and not (venv / MARK).is_file():
            raise Refused(
                f"{venv}: is there, and this script did not make it: name an empty folder by --into, move it "
                "away, or --no-venv", USAGE
            )  # fmt: skip
    if engine:
        load_images(engine, folder, manifest)
    write_files(folder, into)
    if python:
        make_environment(python, into, manifest["pack"])
    if manifest["images"] and not engine:
        print(f"THE IMAGES WERE NOT LOADED ({why}); start this again for them")
    run = f".venv/bin/python -m trtmatrix run --offline --trt {shlex.quote(','.join(manifest['versions']))}"
    print(f"next:\n  cd {shlex.quote(str(into.absolute()))} && {run}")


def unpack_command(options: UnpackOptions) -> int:
    """Do what the options ask for; returns an exit code as ``trtmatrix`` has them."""
    try:
        unpack(options)
    except Refused as refused:
        print(f"unpack: {refused}", file=sys.stderr)
        return refused.code
    except OSError as error:
        print(f"unpack: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the command line of the script itself; that of ``trtmatrix unpack`` has the same options."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="unpack", description=__doc__, formatter_class=words)
    here = Path(__file__).absolute().parent
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=here, help="the pack's folder (default: this one)")
    add("--into", type=Path, metavar="DIR", help="where the suite goes (default: ./trtmatrix)")
    add("--check", action="store_true", help="check every byte, load nothing")
    add("--python", metavar="PATH", help="the Python that the suite is to run with")
    add("--no-images", action="store_true", help="leave the container engine alone")
    add("--no-venv", action="store_true", help="make no environment")
    return parser


if __name__ == "__main__":
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.default_int_handler)
    sys.exit(unpack_command(UnpackOptions(**vars(make_parser().parse_args()))))
