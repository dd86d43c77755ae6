"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock; by digest."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix import __version__
from trtmatrix.common.archive import write_size
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.images.pack_content import Suite, Wheelhouse, find_suite, program_root, wanted_pythons
from trtmatrix.images.pack_format import (
    SCRATCH,
    PackedFile,
    PackedImage,
    PackManifest,
    PartWriter,
    open_target,
    part_limit,
    write_files,
    write_lists,
)
from trtmatrix.images.unpacker import BLOCK, GLIBC, WORD
from trtmatrix.launchers.wheelhouse import find_wheelhouse
from trtmatrix.plan.context import Context, open_context, own_platform
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.gpus import NO_GPU
from trtmatrix.suite.matrix import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.suite.plan import Launch

if TYPE_CHECKING:
    import docker

SPARE = 1.02
"""What a stream has beside the layers' own bytes: heads, padding."""

WHEELS_BYTES = 83_000_000
"""Bytes of the suite's own wheels: measured for Python 3.12. Those of versions are counted once here."""

PIECES = 32
"""Pieces of an engine's answer that are written at once."""


def pack_command(args: argparse.Namespace) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(args)
    if args.records:
        from trtmatrix.images.record_packs import pack_records

        return pack_records(context, args)
    limit, pythons = part_limit(args.split), wanted_pythons(args.for_python)
    suite = find_suite(context.project)
    for line in suite.told:
        _tell(line)
    with open_target(args.to) as folder:
        packing = _Packing(context, folder, suite)
        versions = packing.find_versions(len(pythons))
        draft = PackManifest(
            pack=f"{_now():%Y%m%dt%H%M%S}-{os.urandom(4).hex()}", made=_now().isoformat(timespec="seconds"),
            by=f"trtmatrix {__version__}", commit=suite.commit, changed=suite.changed,
            platform=own_platform(), pythons=pythons, versions=tuple(v.name for v in versions), parts=(),
            files=(), images=packing.images,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
            wheels = packing.fetch_wheels(Path(scratch), versions, pythons)
            packing.check_room(sum(file.stat().st_size for file in wheels.values()))
            with PartWriter(folder, "files", limit) as writer:
                files = write_files(writer, [*suite.files.items(), *wheels.items()])
        manifest = replace(draft, parts=(*writer.parts, *packing.save_images(limit)), files=files)
        digest = write_lists(folder, manifest)
    print(_told(args.to, manifest, digest))
    return ExitCode.AS_EXPECTED


class _Packing:
    """What the steps of one pack share: the versions, their images, and the engine that has these."""

    def __init__(self, context: Context, folder: Path, suite: Suite) -> None:
        self.context, self.folder, self.suite = context, folder, suite
        self.images: tuple[PackedImage, ...] = ()
        self.client: docker.DockerClient | None = None

    def find_versions(self, pythons: int) -> list[Version]:
        """Return the versions that go along; images of named ones are pulled or built where missing.

        ``pythons``: for how many there will be wheels; the room for all is looked at first.
        """
        chosen = select_versions(self.context.matrix, self.context.selection)
        check_words(chosen)
        wheels = 2 * WHEELS_BYTES * pythons  # as they come, and in the pack
        self.check_room(wheels)
        with_images = [v for v in chosen if v.runtime == "container"]
        held = self._hold_images(with_images, wheels) if with_images else {}
        if left_out := [v.name for v in with_images if v.name not in held]:
            names = ", ".join(left_out)
            _tell(f"NOT PACKED, as their images are not here: {names} (--trt VERSION pulls them)")
        if hosts := [v.name for v in chosen if isinstance(v.origin, InterpreterOrigin)]:
            _tell(f"NOT PACKED: {', '.join(hosts)}: interpreters of this host")
        packed = [v for v in chosen if isinstance(v.origin, WheelsOrigin) or v.name in held]
        if not packed:
            raise UsageError("nothing to pack: no selected version is of wheels, or has its image here")
        return packed

    def _hold_images(self, versions: Sequence[Version], wheels: int) -> dict[str, str]:
        """Return version → image ID of those that are here, and of named ones that are missing: had now.

        :class:`MachineryError` where one cannot be had; :class:`UsageError` where ``--offline`` forbids it.
        """
        from trtmatrix.launchers.engine import find_engine, open_client

        engine = find_engine(gpu_here=False, offline=self.context.offline)
        fetch = bool(self.context.selection.versions)
        if not engine.available:
            if fetch:
                raise MachineryError(f"no images can be packed: {engine.reason}")
            return {}
        found = {v.name: engine.held(v.origin) for v in versions if isinstance(v.origin, ImageOrigin)}
        held = {name: image for name, image in found.items() if image is not None}
        missing = [version for version in versions if version.name not in held] if fetch else []
        if missing and self.context.offline:
            names = ", ".join(version.name for version in missing)
            words = f"the images of {names} are not here; leave --offline out to pull them"
            raise UsageError(f"--offline: {words}")
        self.client = open_client(timeout=120)
        self.images = images_of(self.client, held, versions)
        self.check_room(wheels, self._locked_bytes(missing))
        if missing:
            held |= self._fetch(missing, engine.platform, engine.command)
            self.images = images_of(self.client, held, versions)
            self.check_room(wheels)
        return held

    def _fetch(self, versions: Sequence[Version], platform: str, command: str) -> dict[str, str]:
        """Pull or build images, as a run does it."""
        from trtmatrix.common.progress import open_progress
        from trtmatrix.launchers.engine import open_client
        from trtmatrix.launchers.engine_images import Images, builder_command
        from trtmatrix.launchers.image_use import NoUse

        project, progress = self.context.project, open_progress()
        try:
            images = Images(
                pull_note=progress.pull, note=progress.note, uses=NoUse(), platform=platform, command=command,
                builder=builder_command(project.image_builder, project.matrix),
            )  # fmt: skip
            found = {}
            for version in versions:
                made = isinstance(version.origin, ImageOrigin) and version.origin.build is not None
                launch = Launch(version=version, gpu=NO_GPU, cells=(), pull=not made, build=made)
                found[version.name] = images.make_ready(launch, open_client(timeout=120))
            return found
        finally:
            progress.close()

    def _locked_bytes(self, versions: Sequence[Version]) -> int:
        """Return the least that missing images take: what matrix.lock has of them, compressed."""
        names = {v.origin.image for v in versions if isinstance(v.origin, ImageOrigin)}
        known = self.context.lock.images
        locked = [known[name].of(own_platform()) for name in names & known.keys()]
        return sum({la.digest: la.size for each in locked if each for la in each.layers}.values())

    def check_room(self, wheels: int, missing: int = 0) -> None:
        """Refuse where a disk cannot hold the pack: nothing is written then. In bytes.

        ``missing``: the least of images that are to be pulled, which the engine is to hold too.
        """
        need = sum(file.stat().st_size for file in self.suite.files.values()) + wheels + missing
        rooms = {self.folder: need}
        if self.client is not None:
            histories = [self.client.images.get(image.id).history() for image in self.images]
            layers = int(bytes_of_layers(histories) * SPARE)
            rooms[self.folder] += layers
            root = Path(str(self.client.info().get("DockerRootDir") or ""))
            if root.is_dir():  # the engine is of this host, and writes a copy of what it saves first
                rooms[root] = layers + missing
        check_rooms(rooms)

    def fetch_wheels(
        self, scratch: Path, versions: Sequence[Version], pythons: Sequence[str]
    ) -> dict[str, Path]:
        """Return the wheels of the suite and of versions, by name."""
        own = find_wheelhouse(self.context.project.folder) if self.context.offline else None
        if self.context.offline and own is None:
            raise UsageError("--offline: there is no wheelhouse to take wheels from; leave --offline out")
        house = Wheelhouse(scratch / "wheels", own)
        for python in pythons:
            _tell(f"fetching the wheels for Python {python}")
            house.fetch_suite(program_root(), python)
            house.fetch_versions(versions, python)
        return house.files()

    def save_images(self, limit: int) -> tuple[PackedFile, ...]:
        """Write the images in one stream, in which layers that several share are once."""
        if self.client is None or not self.images:
            return ()
        _tell(f"saving {len(self.images)} images")
        with PartWriter(self.folder, "images", limit) as writer:
            for block in save_stream(self.client, self.images):
                writer.write(block)
        return tuple(writer.parts)


def images_of(
    client: docker.DockerClient, held: Mapping[str, str], versions: Sequence[Version]
) -> tuple[PackedImage, ...]:
    """Return what is to be saved, each image once, with its size. ``held``: version → image ID."""
    looked = {one: client.images.get(one).attrs for one in set(held.values())}
    tags = [tag for attrs in looked.values() for tag in attrs.get("RepoTags") or ()]
    tagged = {tag: str(client.images.get(tag).id) for tag in tags}
    return packed_images(held, {one: int(a["Size"]) for one, a in looked.items()}, versions, tagged)


def packed_images(
    held: Mapping[str, str], sizes: Mapping[str, int], versions: Sequence[Version], tagged: Mapping[str, str]
) -> tuple[PackedImage, ...]:
    """Return the images of versions, each once. ``held``: version → image ID; ``sizes``: by ID, in bytes.

    ``tagged``: name → ID, as the engine has them. An image that is not locked is known by its name alone,
    so it gets that on the other side; a locked one keeps the name that it has here.
    :class:`UsageError` where one could not be found again after loading.
    """
    found: dict[str, PackedImage] = {}
    for version in versions:
        origin = version.origin
        if not isinstance(origin, ImageOrigin):
            continue
        if "@" in origin.image and origin.pin is None:
            raise UsageError(
                f"{version.name}: {origin.image} is not in matrix.lock, and its digest does not survive "
                "docker save and load, so that no run would find it: nox -s lock -- --update --trt "
                f"{version.name}"
            )
        if version.name not in held:
            continue
        image_id = held[version.name]
        empty = PackedImage(id=image_id, names=(), versions=(), size=sizes[image_id])
        before = found.get(image_id, empty)
        keeps = origin.pin is None or tagged.get(origin.image) == image_id
        names = (*before.names, *([origin.image] if keeps else []))
        found[image_id] = replace(
            before, names=tuple(dict.fromkeys(names)), versions=(*before.versions, version.name),
            manifest=origin.pin.manifest if origin.pin else before.manifest,
        )  # fmt: skip
    return tuple(found.values())


def save_stream(client: docker.DockerClient, images: Sequence[PackedImage]) -> Iterator[bytes]:
    """Yield the tar of all images, as ``docker save`` writes it: by name where that must survive, else by ID.

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
        pieces: list[bytes] = []
        for piece in answer.raw.stream(BLOCK):  # engines send 32 kB at once
            pieces.append(piece)
            if len(pieces) == PIECES:
                yield b"".join(pieces)
                pieces.clear()
        yield b"".join(pieces)
    except requests.exceptions.RequestException as error:
        raise MachineryError(f"the engine cannot save {', '.join(names)}: {str(error)[:500]}") from error


def bytes_of_layers(histories: Iterable[Sequence[Mapping[str, Any]]]) -> int:
    """Return about how many bytes images have together: a layer that several share counts once.

    Each history is what an engine says of one image's layers: when and by what each was made, and its size.
    """
    layers = {(step.get("Created"), step.get("CreatedBy"), step["Size"]) for one in histories for step in one}
    return sum(size for _, _, size in layers)


def check_words(versions: Sequence[Version]) -> None:
    """Refuse names of versions and images that the other side would refuse."""
    names = [v.name for v in versions]
    names += [v.origin.image for v in versions if isinstance(v.origin, ImageOrigin)]
    if wrong := [ascii(name) for name in names if not WORD.fullmatch(name)]:
        raise UsageError(
            f"cannot be packed, name it otherwise in matrix.yaml: {', '.join(wrong)} (letters, digits and "
            ". _ - + alone)"
        )


def check_rooms(rooms: Mapping[Path, int]) -> None:
    """Refuse where a disk has less room than what folders on it need together, in bytes."""
    disks: dict[int, list[Path]] = {}
    for folder in rooms:
        disks.setdefault(folder.stat().st_dev, []).append(folder)
    for folders in disks.values():
        need, free = sum(rooms[folder] for folder in folders), shutil.disk_usage(folders[0]).free
        if free < need:
            copy = " (the engine writes a copy of what it saves first)" if len(folders) > 1 else ""
            raise MachineryError(
                f"{' and '.join(map(str, folders))}: about {write_size(need)} are needed{copy}, and "
                f"{write_size(free)} are free: name another disk by --to, fewer versions by --trt, or make "
                "room"
            )


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _told(folder: Path, manifest: PackManifest, digest: str) -> str:
    """Say what was written, and what comes next."""
    size = write_size(sum(part.size for part in manifest.parts))
    state = f"suite of {manifest.commit[:12]}" if manifest.commit else "suite"
    return "\n".join(
        [
            f"{folder}: {manifest.pack}, {len(manifest.parts)} parts, {size}",
            f"  versions  {', '.join(manifest.versions)}",
            f"  images    {len(manifest.images)}, for {manifest.platform}",
            f"  wheels    for Python {', '.join(manifest.pythons)}, glibc {GLIBC} or later",
            f"  {state}" + (", CHANGED since" if manifest.changed else ""),
            f"  sha256 of SHA256SUMS, which stands for all of it: {digest}",
            f"next, on the other host: python3 -I {shlex.quote(f'{folder.name}/unpack')}",
        ]
    )
