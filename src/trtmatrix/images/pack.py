"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock; by digest.

``unpack.sh`` is the script that goes along and reads it on the other side.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.archive import digest_of, sums_text
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.options import flag, many, value
from trtmatrix.common.paths import Project, whole_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.text import counted, write_size
from trtmatrix.launchers.wheels import download_wheels, index_options, target_options, without_passwords
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.matrix import ImageOrigin, Version, WheelsOrigin
from trtmatrix.suite.model import NO_GPU
from trtmatrix.suite.plan import Engine, Launch, short_name

if TYPE_CHECKING:
    import docker

SCHEMA = 4
SOURCE = Path(__file__).with_name("unpack.sh")
MANIFEST, SUMS, SCRIPT = "manifest.txt", "SHA256SUMS", "unpack"
FILES, IMAGES = "files.tar", "images.tar"  # suite and wheels; the images as ``docker save`` writes them
EXTRAS = ("model", "minimise")
TOOLS = ("nox[uv]>=2025.2.9", "hatchling", "editables")
"""What the suite's sessions need beside the suite's own requirements: nox, and what installs the suite."""
GLIBC = "2.28"
"""What the other host is taken to have: any distribution since 2018, https://peps.python.org/pep-0600/."""
SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """Those of ``pack``."""

    project: ProjectOptions
    to: Path = value("--to DIR", "where to write: a new folder", required=True)
    for_python: tuple[str, ...] = many("--for-python X.Y", "a Python version of the other host, for its "
        "wheels; may be repeated (default: this one's)")  # fmt: skip
    records: bool = flag("--records", "pack all local records, for merge")


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image: ``id`` is what the engine that saved it calls it, ``names`` are given back after loading.

    ``manifest``: the digest that it was pulled by (empty where it is none of a registry's or not locked).
    """

    id: str
    names: tuple[str, ...] = ()
    manifest: str = ""


def pack_command(options: PackOptions) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(options.project)
    if options.records:
        from trtmatrix.images.merge import pack_records

        return pack_records(context, options.to)
    pythons = list(dict.fromkeys(options.for_python)) or [f"{sys.version_info[0]}.{sys.version_info[1]}"]
    if wrong := [python for python in pythons if not re.fullmatch(r"3\.[1-9]\d", python)]:
        raise UsageError(f"--for-python {wrong[0]}: name one such as 3.12; the suite needs 3.10 or later")
    if context.offline:
        raise UsageError("pack fetches wheels, which --offline forbids: leave it out, or pack --records")
    if options.to.exists():
        raise UsageError(f"--to {options.to}: is there already: name a new folder")
    files, commit = find_suite(context.project)
    with whole_folder(options.to) as folder:
        told = write_pack(folder, context, files, commit, pythons)
    size = write_size(sum(file.stat().st_size for file in options.to.iterdir()))
    next_ = f"next, on the other host: sh {shlex.quote(f'{options.to.name}/unpack')}"
    print("\n".join([f"{options.to}: {size}", *(f"  {line}" for line in told), next_]))
    return ExitCode.AS_EXPECTED


def write_pack(
    folder: Path, context: Context, files: dict[str, Path], commit: str, pythons: Sequence[str]
) -> list[str]:
    """Write the files of a pack into an empty folder; returns what is told of it."""
    chosen = select_versions(context.matrix, context.selection)
    versions, held, client = hold_images(context, chosen)
    images = images_of(client, held, versions) if client else ()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        write_tar(folder / FILES, files | fetch_wheels(Path(scratch), versions, pythons))
    if client is not None and images:
        _tell(f"saving {counted(len(images), 'image')}")
        save_images(client, images, folder / IMAGES)
    names, platform = [version.name for version in versions], own_platform()
    facts = [
        ("pack", f"{datetime.now(timezone.utc):%Y%m%dt%H%M%S}-{os.urandom(4).hex()}"), ("commit", commit),
        ("platform", platform), *(("python", each) for each in pythons), *(("version", n) for n in names),
    ]  # fmt: skip
    digest = write_lists(folder, facts, images)
    return [
        f"versions  {', '.join(names)}", f"images    {len(images)}, for {platform}",
        f"wheels    for Python {', '.join(pythons)}, glibc {GLIBC} or later",
        f"suite of {commit[:12]}{', CHANGED since' if commit.endswith('-dirty') else ''}",
        f"sha256 of SHA256SUMS, which stands for all of it: {digest}",
    ]  # fmt: skip


# --- The suite: what git tracks, with the user's own matrix and repros


def find_suite(project: Project) -> tuple[dict[str, Path], str]:
    """Return the files of this checkout, with the matrix, lock and repros that this call works with.

    By the names that they get on the other side; and the commit that they are of, with ``-dirty`` behind it
    where they are not those of that commit. What git does not track stays here: records measured on this
    host, caches, environments, keys. Of the user's own it is told. :class:`UsageError` where git fails.
    """
    root = program_root()
    # The matrix and the repros are those of this call, which may lie elsewhere.
    files = {name: root / name for name in _git(root, "ls-files", "-z") if not name.startswith("repros/")}
    files |= {f"repros/{name}": project.repros / name for name in _git(project.repros, "ls-files", "-z")}
    for file in sorted({*project.repros.glob("*.py")} - set(files.values())):
        _tell(f"NOT PACKED: {file}: git does not track it: git add takes it along")
    for file in (file for file in files.values() if file.is_symlink()):
        _tell(f"NOT PACKED: {file}: a link")
    own = {"matrix.yaml": project.matrix.resolve(), "matrix.lock": project.lock.resolve()}
    files = {name: f for name, f in (files | own).items() if f.is_file() and not f.is_symlink()}
    if not any(re.fullmatch(r"repros/[^/]*\.py", name) for name in files):
        raise UsageError(f"{project.repros}: no repro that can be packed: git add those that are to go along")
    (commit,) = _git(root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    ours = (project.repros.resolve(), own["matrix.yaml"]) == (root / "repros", root / "matrix.yaml")
    return files, commit if ours else f"{commit.removesuffix('-dirty')}-dirty"


def program_root() -> Path:
    """Return the checkout that this program runs from."""
    root = PACKAGES["trtmatrix"].resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        raise UsageError(
            f"the suite cannot be packed: {PACKAGES['trtmatrix']} was installed without its checkout\n"
            "  run this in a checkout: nox -s pack -- --to DIR"
        )
    return root


def _git(folder: Path, *words: str) -> list[str]:
    """Return the lines that git says of a folder's checkout; :class:`UsageError` where it says nothing."""
    code, said = run_to_end(["git", "-C", str(folder), *words], os.environ)
    if code:
        trust = f"git config --global --add safe.directory {shlex.quote(str(folder))}"
        raise UsageError(
            f"{folder}: git cannot say which files are the suite's: {said.strip() or 'git failed'}\n"
            f"  pack from a checkout with a commit, as the user whose it is, or: {trust}"
        )
    return said.replace("\0", "\n").splitlines()


def fetch_wheels(folder: Path, versions: Iterable[Version], pythons: Iterable[str]) -> dict[str, Path]:
    """Fetch the wheels of the suite, nox included, and of versions; returns them by their names in the pack.

    The suite's pins stay beside them as ``suite-X.Y.txt``.
    """
    wheels, scratch = folder / "wheels", folder / "requirements"
    wheels.mkdir(parents=True)
    scratch.mkdir()
    own = [version.origin.wheels for version in versions if isinstance(version.origin, WheelsOrigin)]
    suite = [*(f"--extra={extra}" for extra in EXTRAS), str(program_root() / "pyproject.toml")]
    for python in pythons:
        _tell(f"fetching the wheels for Python {python}")
        pins = _pin(suite, TOOLS, python, scratch)
        shutil.copyfile(pins, wheels / f"suite-{python}.txt")
        for file in [pins, *(_pin([], each, python, scratch) for each in own)]:
            what = ["--require-hashes", f"--requirement={file}"]
            download_wheels(what, target_options(python, GLIBC), wheels)
    return {f"wheelhouse/{file.name}": file for file in sorted(wheels.iterdir())}


def _pin(words: Sequence[str], requirements: Iterable[str], python: str, scratch: Path) -> Path:
    """Pin what is wanted, for a Python that need not be here; returns the file of pins with hashes."""
    number = len(list(scratch.iterdir()))
    wanted, pins = scratch / f"{number}.in", scratch / f"{number}.txt"
    wanted.write_text("".join(f"{one}\n" for one in requirements), encoding="utf-8")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += [f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28"]
    command += ["--only-binary=:all:", "--generate-hashes", *words, str(wanted), f"--output-file={pins}"]
    command += index_options()
    code, said = run_to_end(command, os.environ, SECONDS)
    if code:
        raise MachineryError(
            f"the wheels for Python {python} cannot be resolved: {without_passwords(said)[-1500:]}\n"
            f"  try it by hand: {without_passwords(shlex.join(command))}"
        )
    return pins


# --- Images


def hold_images(
    context: Context, chosen: Sequence[Version]
) -> tuple[list[Version], dict[str, str], docker.DockerClient | None]:
    """Return the versions of wheels and those whose image is here, with version → image ID of these.

    Also the engine's client, None where none is needed or here. What ``--trt`` names and is missing is had
    first (:class:`MachineryError` where it cannot be); what does not go along is told.
    """
    from trtmatrix.common.progress import open_progress
    from trtmatrix.launchers.containers import Images
    from trtmatrix.launchers.docker_engine import find_engine, open_client

    packed, held, project = list[Version](), dict[str, str](), context.project
    in_images, named = any(v.runtime == "container" for v in chosen), context.selection.versions
    engine = find_engine(gpu_here=False) if in_images else Engine(available=False)
    if in_images and named and not engine.available:
        raise MachineryError(f"no images can be packed: {engine.reason}")
    client = open_client(timeout=120) if engine.available else None
    with contextlib.closing(open_progress()) as progress:
        builder = (str(project.image_builder), f"--matrix={project.matrix}")
        store = Images(engine, progress, builder=builder)
        for version in chosen:
            name, origin = version.name, version.origin
            if isinstance(origin, ImageOrigin) and client is not None:
                if (image := engine.held(origin)) is not None:
                    held[name] = image
                elif named:
                    made = origin.build is not None and project.image_builder is not None
                    launch = Launch(version=version, gpu=NO_GPU, cells=(), pull=not made, build=made)
                    held[name] = store.make_ready(launch, client)
            if isinstance(origin, WheelsOrigin) or name in held:
                packed.append(version)
            else:
                absent = f"its image is not here (--trt {name} pulls it)"
                why = absent if isinstance(origin, ImageOrigin) else "an interpreter of this host"
                _tell(f"NOT PACKED: {name}: {why}")
    if not packed:
        raise UsageError("nothing to pack: no selected version is of wheels, or has its image here")
    return packed, held, client


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
        before = found.get(image_id) or PackedImage(id=image_id)
        tags = map(short_name, client.images.get(image_id).attrs.get("RepoTags") or ())
        names = [*before.names, *([origin.image] if origin.pin is None or origin.image in tags else [])]
        manifest = origin.pin.manifest if origin.pin else before.manifest
        found[image_id] = replace(before, names=tuple(dict.fromkeys(names)), manifest=manifest)
    return tuple(found.values())


def save_images(client: docker.DockerClient, images: Sequence[PackedImage], file: Path) -> None:
    """Write all images as ``docker save`` does: by name where that must survive, else by ID.

    Source: ImageGetAll of https://docs.docker.com/reference/api/engine/. :class:`MachineryError`: it fails.
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


def write_lists(folder: Path, facts: Iterable[tuple[str, str]], images: Iterable[PackedImage]) -> str:
    """Write the script, the manifest, and the digests of all.

    The manifest has a fact a line, as a shell reads it, and of each image ID, manifest and names. Returns the
    SHA-256 of the list of digests: it stands for the whole pack.
    """
    lines = [f"{name} {value}" for name, value in (("schema", str(SCHEMA)), *facts)]
    lines += [" ".join(("image", i.id, i.manifest or "-", *i.names)) for i in images]
    (folder / MANIFEST).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shutil.copyfile(SOURCE, folder / SCRIPT)
    (folder / SCRIPT).chmod(0o755)
    sums = sums_text({file.name: digest_of(file) for file in folder.iterdir()})
    (folder / SUMS).write_text(sums, encoding="utf-8")
    return sha256(sums.encode()).hexdigest()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
