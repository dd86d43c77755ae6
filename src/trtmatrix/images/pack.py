"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock; by digest."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix import __version__
from trtmatrix.common.archive import write_size
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.images.pack_format import (
    PackedImage,
    PackManifest,
    PartWriter,
    open_target,
    part_limit,
    write_files,
    write_lists,
)
from trtmatrix.images.pack_suite import fetch_wheels, find_suite, wanted_pythons
from trtmatrix.images.unpacker import BLOCK, GLIBC
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.suite.model import NO_GPU
from trtmatrix.suite.plan import Launch, short_name

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """Those of ``pack``; ``split``: bytes of a part, 0 for no limit."""

    project: ProjectOptions
    to: Path
    split: int
    for_python: tuple[str, ...]
    records: bool


def pack_command(options: PackOptions) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(options.project)
    if options.records:
        from trtmatrix.images.record_packs import pack_records

        return pack_records(context, options.to)
    limit, pythons = part_limit(options.split), wanted_pythons(options.for_python)
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
            found = suite.files | fetch_wheels(Path(scratch), versions, pythons)
            with PartWriter(folder, "files", limit) as writer:
                write_files(writer, list(found.items()))
        parts = writer.parts
        if client is not None and images:
            _tell(f"saving {len(images)} images")
            with PartWriter(folder, "images", limit) as writer:
                for block in save_stream(client, images):
                    writer.write(block)
            parts = [*parts, *writer.parts]
        now = datetime.now(timezone.utc)
        manifest = PackManifest(
            pack=f"{now:%Y%m%dt%H%M%S}-{os.urandom(4).hex()}", made=now.isoformat(timespec="seconds"),
            by=f"trtmatrix {__version__}", commit=suite.commit, changed=suite.changed, parts=tuple(parts),
            platform=own_platform(), pythons=pythons, versions=tuple(v.name for v in versions),
            images=images,
        )  # fmt: skip
        digest = write_lists(folder, manifest)
    print(_told(options.to, manifest, digest))
    return ExitCode.AS_EXPECTED


def hold_images(
    context: Context, versions: Sequence[Version]
) -> tuple[docker.DockerClient | None, dict[str, str]]:
    """Return version → image ID of those that are here; what ``--trt`` names and is missing is had first.

    Also the engine's client, None where no version is in an image, or there is no engine.
    :class:`MachineryError` where one cannot be had.
    """
    from trtmatrix.common.progress import open_progress
    from trtmatrix.launchers.docker_engine import find_engine, open_client
    from trtmatrix.launchers.images import Images, builder_command
    from trtmatrix.launchers.pulls import Puller

    engine = find_engine(gpu_here=False) if versions else None
    if engine is None or not engine.available:
        if engine is not None and context.selection.versions:
            raise MachineryError(f"no images can be packed: {engine.reason}")
        return None, {}
    client, project = open_client(timeout=120), context.project
    found = {v.name: engine.held(v.origin) for v in versions if isinstance(v.origin, ImageOrigin)}
    held = {name: image for name, image in found.items() if image is not None}
    missing = [v for v in versions if v.name not in held] if context.selection.versions else []
    progress = open_progress()
    try:
        puller = Puller(
            pull_note=progress.pull, note=progress.note, platform=engine.platform, command=engine.command
        )
        builder = builder_command(project.image_builder, project.matrix)
        store = Images(cache=project.cache, puller=puller, builder=builder)
        for version in missing:
            made = isinstance(version.origin, ImageOrigin) and version.origin.build is not None
            launch = Launch(version=version, gpu=NO_GPU, cells=(), pull=not made, build=made)
            held[version.name] = store.make_ready(launch, client)
    finally:
        progress.close()
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
        attrs = client.images.get(image_id).attrs
        before = found.get(image_id) or PackedImage(id=image_id, names=(), versions=(), size=attrs["Size"])
        keeps = origin.pin is None or origin.image in map(short_name, attrs.get("RepoTags") or ())
        found[image_id] = replace(
            before, versions=(*before.versions, version.name),
            names=tuple(dict.fromkeys((*before.names, *([origin.image] if keeps else [])))),
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
        yield from iter(lambda: answer.raw.read(BLOCK), b"")
    except requests.exceptions.RequestException as error:
        raise MachineryError(f"the engine cannot save {', '.join(names)}: {str(error)[:500]}") from error


def _tell(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def _told(folder: Path, manifest: PackManifest, digest: str) -> str:
    """Say what was written, and what comes next."""
    size = write_size(sum(part.size for part in manifest.parts))
    return "\n".join(
        [
            f"{folder}: {manifest.pack}, {len(manifest.parts)} parts, {size}",
            f"  versions  {', '.join(manifest.versions)}",
            f"  images    {len(manifest.images)}, for {manifest.platform}",
            f"  wheels    for Python {', '.join(manifest.pythons)}, glibc {GLIBC} or later",
            f"  suite of {manifest.commit[:12]}" + (", CHANGED since" if manifest.changed else ""),
            f"  sha256 of SHA256SUMS, which stands for all of it: {digest}",
            f"next, on the other host: python3 -I {shlex.quote(f'{folder.name}/unpack')}",
        ]
    )
