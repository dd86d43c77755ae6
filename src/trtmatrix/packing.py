"""``pack``: writes all that a host without a network needs: images, wheels, suite, lock, with their digests."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix import __version__
from trtmatrix.context import Context, open_context, own_platform
from trtmatrix.core.bundle.manifest import write_size
from trtmatrix.core.config import InterpreterOrigin, Version, WheelsOrigin
from trtmatrix.core.errors import ExitCode, MachineryError, UsageError
from trtmatrix.core.expand import select_versions
from trtmatrix.core.pack import PackedImage, PackManifest, part_limit
from trtmatrix.effects.pack_parts import PartWriter, open_target, write_files, write_lists
from trtmatrix.effects.pack_suite import find_suite, program_root
from trtmatrix.effects.pack_wheels import Wheelhouse, wanted_pythons

SPARE = 1.02
"""What a stream has beside the layers' own bytes: heads, padding."""


def pack_command(args: argparse.Namespace) -> ExitCode:
    """Write a pack; with ``--records`` one of records for ``merge``."""
    context = open_context(args)
    if args.records:
        from trtmatrix.effects.record_pack import pack_records

        return pack_records(context, args)
    limit, pythons = part_limit(args.split), wanted_pythons(args.for_python)
    suite = find_suite(context.project)
    with open_target(args.to) as folder:
        packing = _Packing(context, folder)
        versions, images = packing.find_images()
        draft = PackManifest(
            pack=new_pack_id(), made=_now(), by=f"trtmatrix {__version__}", commit=suite.commit,
            changed=suite.changed, platform=own_platform(), pythons=pythons,
            versions=tuple(version.name for version in versions), parts=(), files=(), images=images,
        )  # fmt: skip
        packing.check_room()
        with tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder.parent) as scratch:
            wheels = packing.fetch_wheels(Path(scratch), versions, pythons)
            _tell("packing the suite and its wheels")
            with PartWriter(folder, draft.pack, "files", limit) as writer:
                files = write_files(writer, [*suite.files.items(), *wheels.files().items()])
        parts = [*writer.parts, *packing.save_images(draft.pack, limit)]
        manifest = replace(draft, parts=tuple(parts), files=files)
        digest = write_lists(folder, manifest)
    print(_told(args.to, manifest, digest))
    return ExitCode.AS_EXPECTED


class _Packing:
    """What the steps of one pack share."""

    def __init__(self, context: Context, folder: Path) -> None:
        self.context, self.folder = context, folder
        self.images: tuple[PackedImage, ...] = ()

    def find_images(self) -> tuple[list[Version], tuple[PackedImage, ...]]:
        """Return the versions that go along and their images; those named are pulled or built where missing."""
        context = self.context
        chosen = select_versions(context.matrix, context.selection)
        with_images = [v for v in chosen if v.runtime == "container"]
        held = self._held(with_images) if with_images else {}
        packed = [v for v in chosen if isinstance(v.origin, WheelsOrigin) or v.name in held]
        left_out = [v.name for v in with_images if v.name not in held]
        if left_out:
            _tell(f"NOT PACKED, as their images are not here: {', '.join(left_out)} (--trt VERSION pulls them)")
        if hosts := [v.name for v in chosen if isinstance(v.origin, InterpreterOrigin)]:
            _tell(f"NOT PACKED, as they are interpreters of this host: {', '.join(hosts)}")
        if not packed:
            raise UsageError("nothing to pack: no selected version is of wheels, or has its image here")
        return packed, self.images

    def _held(self, versions: Sequence[Version]) -> dict[str, str]:
        import docker

        from trtmatrix.effects.pack_images import Saver, image_of
        from trtmatrix.perform import Options, make_workshop
        from trtmatrix.scene import look_around
        ...
