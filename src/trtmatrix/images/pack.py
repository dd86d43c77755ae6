"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock; by digest.

``unpack.sh`` is the script that goes along and reads it on the other side; ``unpack`` runs our own copy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix import __version__
from trtmatrix.common.archive import digest_of, sums_text, write_size
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.paths import whole_file
from trtmatrix.common.text import counted
from trtmatrix.images.pack_suite import GLIBC, fetch_wheels, find_suite, wanted_pythons
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.suite.model import NO_GPU
from trtmatrix.suite.plan import Launch, short_name

if TYPE_CHECKING:
    import docker

SCHEMA = 4
SOURCE = Path(__file__).with_name("unpack.sh")
MANIFEST, SUMS, SCRIPT = "manifest.txt", "SHA256SUMS", "unpack"
FILES, IMAGES = "files.tar", "images.tar"
"""Suite and wheels; the images as ``docker save`` writes them."""
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """Those of ``pack``."""

    project: ProjectOptions
    to: Path
    for_python: tuple[str, ...]
    records: bool


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image: ``id`` is what the engine that saved it calls it, ``names`` are given back after loading.

    ``versions``: those that run in it; ``manifest``: the digest that it was pulled by (empty where it is none
    of a registry's or not locked).
    """

    id: str
    names: tuple[str, ...]
    versions: tuple[str, ...]
    manifest: str = ""


@dataclass(frozen=True, kw_only=True)
class PackManifest:
    """What ``manifest.txt`` says. ``made``: UTC, ISO 8601; ``commit``: of the suite.

    ``changed``: the suite's files are not those of that commit; ``pythons``: those that wheels are for.
    """

    pack: str
    made: str
    by: str
    commit: str
    changed: bool
    platform: str
    pythons: tuple[str, ...]
    versions: tuple[str, ...]
    images: tuple[PackedImage, ...]

    @property
    def text(self) -> str:
        """A fact a line, as a shell reads it; of an image ID, manifest and names."""
        lines = [f"schema {SCHEMA}", f"pack {self.pack}", f"made {self.made}", f"by {self.by}"]
        lines += [f"commit {self.commit}", f"changed {'yes' if self.changed else 'no'}"]
        lines += [f"platform {self.platform}", *(f"python {each}" for each in self.pythons)]
        lines += [f"version {each}" for each in self.versions]
        lines += [" ".join(("image", i.id, i.manifest or "-", *i.names)) for i in self.images]
        return "".join(f"{line}\n" for line in lines)


def pack_command(options: PackOptions) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(options.project)
    if options.records:
        from trtmatrix.images.merge import pack_records

        return pack_records(context, options.to)
    pythons = wanted_pythons(options.for_python)
    if context.offline:
        raise UsageError("pack fetches wheels, which --offline forbids: leave it out, or pack --records")
    suite = find_suite(context.project)
    _tell(*(f"NOT PACKED: {line}" for line in suite.left_out))
    chosen = select_versions(context.matrix, context.selection)
    with open_target(options.to) as folder:
        client, held = hold_images(context, [v for v in chosen if v.runtime == "container"])
        versions = packed_versions(chosen, held)
        images = images_of(client, held, versions) if client else ()
        with tempfile.TemporaryDirectory(prefix=".trtmatrix-wheels-", dir=folder) as scratch:
            write_tar(folder / FILES, suite.files | fetch_wheels(Path(scratch), versions, pythons))
        if client is not None and images:
            _tell(f"saving {counted(len(images), 'image')}")
            save_images(client, images, folder / IMAGES)
        now = datetime.now(timezone.utc)
        manifest = PackManifest(
            pack=f"{now:%Y%m%dt%H%M%S}-{os.urandom(4).hex()}", made=now.isoformat(timespec="seconds"),
            by=f"trtmatrix {__version__}", commit=suite.commit, changed=suite.changed,
            platform=own_platform(), pythons=pythons, versions=tuple(v.name for v in versions),
            images=images,
        )  # fmt: skip
        digest = write_lists(folder, manifest)
    size = write_size(sum(file.stat().st_size for file in options.to.iterdir() if file.is_file()))
    print(f"""\
{options.to}: {manifest.pack}, {size}
  versions  {", ".join(manifest.versions)}
  images    {len(images)}, for {manifest.platform}
  wheels    for Python {", ".join(pythons)}, glibc {GLIBC} or later
  suite of {suite.commit[:12]}{", CHANGED since" if suite.changed else ""}
  sha256 of SHA256SUMS, which stands for all of it: {digest}
next, on the other host: sh {shlex.quote(f"{options.to.name}/unpack")}""")
    return ExitCode.AS_EXPECTED


@contextlib.contextmanager
def open_target(folder: Path) -> Iterator[Path]:
    """Make a pack's folder, in which no file may be; where this ends in an error, nothing stays in it.

    Folders may be there: systems make some at the root of a disk, such as ``lost+found``.
    """
    if folder.exists() and (not folder.is_dir() or any(not path.is_dir() for path in folder.iterdir())):
        words = "a pack is written into a new or empty folder, and this is none"
        raise UsageError(f"--to {folder}: {words}: remove what is in it (a killed pack may have left it)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException as error:
        for path in folder.iterdir() if folder.is_dir() else ():
            if not path.is_dir():
                path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
        if isinstance(error, OSError):
            hint = ": name another disk by --to, or make room" if error.errno in FULL else ""
            words = f"{error.strerror or error}{hint}; nothing is left of it"
            raise MachineryError(f"--to {folder}: the pack cannot be written: {words}") from error
        raise


def hold_images(
    context: Context, versions: Sequence[Version]
) -> tuple[docker.DockerClient | None, dict[str, str]]:
    """Return version → image ID of those that are here; what ``--trt`` names and is missing is had first.

    Also the engine's client, None where no version is in an image, or there is no engine.
    :class:`MachineryError` where one cannot be had.
    """
    from trtmatrix.common.progress import open_progress
    from trtmatrix.launchers.docker_engine import find_engine, open_client
    from trtmatrix.launchers.images import open_images
    from trtmatrix.plan.lockfile import base_origin

    named, held = context.selection.versions, dict[str, str]()
    engine = find_engine(gpu_here=False) if versions else None
    if engine is None or not engine.available:
        if engine is not None and named:
            raise MachineryError(f"no images can be packed: {engine.reason}")
        return None, held
    client = open_client(timeout=120)
    with contextlib.closing(open_progress()) as progress:
        store = open_images(
            context.project, engine, progress,
            base_of=lambda base: base_origin(base, context.lock, engine.platform, context.matrix.registry),
        )  # fmt: skip
        for version, origin in [(v, v.origin) for v in versions if isinstance(v.origin, ImageOrigin)]:
            if (image := engine.held(origin)) is not None:
                held[version.name] = image
            elif named:
                made = origin.build is not None and context.project.image_builder is not None
                launch = Launch(version=version, gpu=NO_GPU, cells=(), pull=not made, build=made)
                held[version.name] = store.make_ready(launch, client)
    return client, held


def images_of(
    client: docker.DockerClient, held: Mapping[str, str], versions: Sequence[Version]
) -> tuple[PackedImage, ...]:
    """Return what is to be saved, each image once. ``held``: version → image ID.

    An image that is not locked is known by its name alone, so it gets that on the other side; a locked one
    keeps the name that it has here. :class:`UsageError` where one could not be found again after loading.
    """
    found: dict[str, PackedImage] = {}
    for version in versions:
        origin, image_id = version.origin, held.get(version.name, "")
        if not isinstance(origin, ImageOrigin):
            continue
        if "@" in origin.image and origin.pin is None:
            raise UsageError(
                f"{version.name}: {origin.image} is not in matrix.lock, and its digest does not survive "
                "docker save and load, so that no run would find it: nox -s lock -- --update --trt "
                f"{version.name}"
            )
        if not image_id:
            continue
        tags = map(short_name, client.images.get(image_id).attrs.get("RepoTags") or ())
        names = [origin.image] if origin.pin is None or origin.image in tags else []
        before = found.get(image_id) or PackedImage(id=image_id, names=(), versions=())
        found[image_id] = replace(
            before, versions=(*before.versions, version.name),
            names=tuple(dict.fromkeys((*before.names, *names))),
            manifest=origin.pin.manifest if origin.pin else before.manifest,
        )  # fmt: skip
    return tuple(found.values())


def packed_versions(chosen: Iterable[Version], held: Mapping[str, str]) -> list[Version]:
    """Return the versions of wheels and those whose image is here; what does not go along is told."""
    packed = []
    for version in chosen:
        if isinstance(version.origin, WheelsOrigin) or version.name in held:
            packed.append(version)
        elif isinstance(version.origin, InterpreterOrigin):
            _tell(f"NOT PACKED: {version.name}: an interpreter of this host")
        else:
            _tell(f"NOT PACKED: {version.name}: its image is not here (--trt {version.name} pulls it)")
    if not packed:
        raise UsageError("nothing to pack: no selected version is of wheels, or has its image here")
    return packed


def save_images(client: docker.DockerClient, images: Sequence[PackedImage], file: Path) -> None:
    """Write all images as ``docker save`` does: by name where that must survive, else by ID.

    Source: ImageGetAll of https://docs.docker.com/reference/api/engine/. :class:`MachineryError` where the
    engine fails.
    """
    import requests.exceptions

    tags = {image.id: client.images.get(image.id).tags for image in images}
    names = [next((n for n in image.names if n in tags[image.id]), image.id) for image in images]
    api = client.api
    try:
        answer = api.get(f"{api.base_url}/images/get", params={"names": names}, stream=True, timeout=None)
        answer.raise_for_status()
        with file.open("xb") as out:
            for block in iter(lambda: answer.raw.read(1 << 20), b""):
                out.write(block)
    except requests.exceptions.RequestException as error:
        raise MachineryError(f"the engine cannot save {', '.join(names)}: {str(error)[:500]}") from error


def write_tar(target: Path, files: Mapping[str, Path]) -> None:
    """Write files as a tar, by name; no owner and no time goes along."""
    with tarfile.open(target, mode="x", format=tarfile.PAX_FORMAT) as archive:
        for name, file in sorted(files.items()):
            with file.open("rb") as stream:
                facts = os.fstat(stream.fileno())
                info = tarfile.TarInfo(name)
                info.size, info.mode = facts.st_size, 0o755 if facts.st_mode & 0o100 else 0o644
                archive.addfile(info, stream)


def write_lists(folder: Path, manifest: PackManifest) -> str:
    """Write the script, the digests of all, and last the manifest: without it nothing is taken for a pack.

    Returns the SHA-256 of the list of digests, which stands for the whole pack.
    """
    texts = {SCRIPT: SOURCE.read_text(encoding="utf-8"), MANIFEST: manifest.text}
    digests = {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}
    for name in (FILES, *([IMAGES] if manifest.images else [])):
        digests[name] = digest_of(folder / name)
        with (folder / name).open("rb") as stream:
            os.fsync(stream.fileno())
    texts[SUMS] = sums_text(digests)
    for name in (SCRIPT, SUMS, MANIFEST):
        with whole_file(folder / name, 0o755 if name == SCRIPT else 0o644) as out:
            out.write(texts[name].encode())
    return sha256(texts[SUMS].encode()).hexdigest()


def _tell(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class UnpackOptions:
    """What the command line says, as the script takes it."""

    folder: Path
    into: Path | None = None
    check: bool = False
    python: str | None = None
    no_images: bool = False
    no_venv: bool = False


def unpack_command(options: UnpackOptions) -> int:
    """Run the script; returns its exit code."""
    words = ["/bin/sh", str(SOURCE), str(options.folder.absolute())]
    words += [f"--into={options.into}"] if options.into else []
    words += [f"--python={options.python}"] if options.python else []
    flags = {"--check": options.check, "--no-images": options.no_images, "--no-venv": options.no_venv}
    return subprocess.run([*words, *(flag for flag, on in flags.items() if on)], check=False).returncode
