"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock; by digest."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix import __version__
from trtmatrix.context import Context, open_context, own_platform
from trtmatrix.core.config import ImageOrigin, InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.core.errors import ExitCode, MachineryError, UsageError
from trtmatrix.core.expand import select_versions
from trtmatrix.core.pack import PackedImage, PackedPart, PackManifest, part_limit
from trtmatrix.effects.archive import write_size
from trtmatrix.effects.pack_parts import SCRATCH, PartWriter, open_target, write_files, write_lists
from trtmatrix.effects.pack_suite import Suite, find_suite, program_root
from trtmatrix.effects.pack_wheels import Wheelhouse, wanted_pythons
from trtmatrix.effects.wheelhouse import find_wheelhouse
from trtmatrix.unpacker.pack_check import GLIBC, IMAGE_NAME, VERSION

if TYPE_CHECKING:
    from trtmatrix.effects.pack_images import Saver

SPARE = 1.02
"""What a stream has beside the layers' own bytes: heads, padding."""

WHEELS_BYTES = 83_000_000
"""Bytes of the suite's own wheels: measured for Python 3.12. Those of versions are counted once here."""


def pack_command(args: argparse.Namespace) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(args)
    if args.records:
        from trtmatrix.record_packing import pack_records

        return pack_records(context, args)
    limit, pythons = part_limit(args.split), wanted_pythons(args.for_python)
    suite = find_suite(context.project)
    for line in suite.told:
        _tell(line)
    with open_target(args.to) as folder:
        packing = _Packing(context, folder, suite)
        versions = packing.find_versions(len(pythons))
        draft = PackManifest(
            pack=new_pack_id(), made=_now().isoformat(timespec="seconds"), by=f"trtmatrix {__version__}",
            commit=suite.commit, changed=suite.changed, platform=own_platform(), pythons=pythons,
            versions=tuple(v.name for v in versions), parts=(), files=(), images=packing.images,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
            wheels = packing.fetch_wheels(Path(scratch), versions, pythons)
            packing.check_room(sum(file.stat().st_size for file in wheels.values()))
            with PartWriter(folder, draft.pack, "files", limit) as writer:
                files = write_files(writer, [*suite.files.items(), *wheels.items()])
        parts = (*writer.parts, *packing.save_images(draft.pack, limit))
        manifest = replace(draft, parts=parts, files=files)
        digest = write_lists(folder, manifest)
    print(_told(args.to, manifest, digest))
    return ExitCode.AS_EXPECTED


class _Packing:
    """What the steps of one pack share: the versions, their images, and the engine that has these."""

    def __init__(self, context: Context, folder: Path, suite: Suite) -> None:
        self.context, self.folder, self.suite = context, folder, suite
        self.images: tuple[PackedImage, ...] = ()
        self.saver: Saver | None = None

    def find_versions(self, pythons: int) -> list[Version]:
        """Return the versions that go along; images of named ones are pulled or built where missing.

        ``pythons``: for how many there will be wheels; the room for all is looked at first.
        """
        chosen = select_versions(self.context.matrix, self.context.selection)
        check_words(chosen)
        wheels = 2 * WHEELS_BYTES * pythons  # as they come, and in the pack
        self.check_room(wheels)
        with_images = [v for v in chosen if v.runtime == "container"]
        held = self._hold(with_images, wheels) if with_images else {}
        if left_out := [v.name for v in with_images if v.name not in held]:
            _tell(
                f"NOT PACKED, as their images are not here: {', '.join(left_out)} (--trt VERSION pulls them)"
            )
        if hosts := [v.name for v in chosen if isinstance(v.origin, InterpreterOrigin)]:
            _tell(f"NOT PACKED: {', '.join(hosts)}: interpreters of this host")
        packed = [v for v in chosen if isinstance(v.origin, WheelsOrigin) or v.name in held]
        if not packed:
            raise UsageError("nothing to pack: no selected version is of wheels, or has its image here")
        return packed

    def _hold(self, versions: Sequence[Version], wheels: int) -> dict[str, str]:
        """Return the ID of each version's image that is here or can be had."""
        from trtmatrix.effects.engine import open_client
        from trtmatrix.effects.pack_images import Saver
        from trtmatrix.pack_holding import hold_images

        def look(held: Mapping[str, str], missing: Sequence[Version]) -> None:
            if held:
                self.saver = Saver(open_client(timeout=120))
                self.images = self.saver.images(dict(held), versions)
            self.check_room(wheels, self._locked_bytes(missing))

        fetch = bool(self.context.selection.versions)
        held = hold_images(self.context, versions, fetch=fetch, before=look)
        look(held, ())
        return held

    def _locked_bytes(self, versions: Sequence[Version]) -> int:
        """Return the least that missing images take: what matrix.lock has of them, compressed."""
        names = {v.origin.image for v in versions if isinstance(v.origin, ImageOrigin)}
        locked = [
            self.context.lock.images[name].of(own_platform())
            for name in names & self.context.lock.images.keys()
        ]
        return sum({la.digest: la.size for each in locked if each for la in each.layers}.values())

    def check_room(self, wheels: int, missing: int = 0) -> None:
        """Refuse where a disk cannot hold the pack: nothing is written then. In bytes.

        ``missing``: the least of images that are to be pulled, which the engine is to hold too.
        """
        need = sum(file.stat().st_size for file in self.suite.files.values()) + wheels + missing
        rooms = {self.folder: need}
        if self.saver is not None:
            layers = int(self.saver.size(self.images) * SPARE)
            rooms[self.folder] += layers
            root = self.saver.root()
            if root.is_dir():  # the engine is of this host
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

    def save_images(self, pack: str, limit: int) -> tuple[PackedPart, ...]:
        """Write the images in one stream."""
        if self.saver is None:
            return ()
        _tell(f"saving {len(self.images)} images")
        with PartWriter(self.folder, pack, "images", limit) as writer:
            for block in self.saver.stream(self.images):
                writer.write(block)
        return tuple(writer.parts)


def check_words(versions: Sequence[Version]) -> None:
    """Refuse names of versions and images that the other side would refuse."""
    names = [v.name for v in versions if not VERSION.fullmatch(v.name)]
    images = [v.origin.image for v in versions if isinstance(v.origin, ImageOrigin)]
    if wrong := [*names, *(image for image in images if not IMAGE_NAME.fullmatch(image))]:
        raise UsageError(
            f"cannot be packed, name it otherwise in matrix.yaml: {', '.join(map(ascii, wrong))} (letters, "
            "digits and . _ - + alone)"
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


def new_pack_id() -> str:
    """Return an id that sorts by time and that no other pack has."""
    return f"{_now():%Y%m%dt%H%M%S}-{os.urandom(4).hex()}"


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
