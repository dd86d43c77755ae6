"""Packs of a few bytes, as ``pack`` writes them, for the tests of both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from trtmatrix.core.pack import PackedImage, PackManifest
from trtmatrix.effects.pack_parts import PartWriter, open_target, write_files, write_lists

IMAGE_BYTES = bytes(range(256)) * 40
IMAGE = PackedImage(
    id=f"sha256:{'a' * 64}", names=("a/b:1",), versions=("onnxruntime-1.31.1",), size=len(IMAGE_BYTES)
)


def write_pack(
    folder: Path, *, pack: str = "20261122t000000-00000001", limit: int = 0,
    files: Mapping[str, bytes] | None = None, images: tuple[PackedImage, ...] = (IMAGE,),
) -> PackManifest:  # fmt: skip
    """Write a pack with these files, and an image's stream that no engine would load."""
    source = folder.parent / f"{folder.name}-source"
    source.mkdir(parents=True)
    found = []
    for number, (name, content) in enumerate((files or {"matrix.yaml": b"schema: 1\n"}).items()):
        (source / str(number)).write_bytes(content)
        found.append((name, source / str(number)))
    with open_target(folder):
        with PartWriter(folder, pack, "files", limit) as writer:
            packed = write_files(writer, found)
        parts = list(writer.parts)
        if images:
            with PartWriter(folder, pack, "images", limit) as writer:
                writer.write(IMAGE_BYTES)
            parts += writer.parts
        manifest = PackManifest(
            pack=pack, made="2026-11-22T00:00:00+00:00", by="trtmatrix 0", commit="", changed=False,
            platform="linux/amd64", pythons=("3.12",), versions=("onnxruntime-1.31.1",),
            parts=tuple(parts), files=packed, images=images,
        )  # fmt: skip
        write_lists(folder, manifest)
    return manifest


def tree_of(folder: Path) -> dict[str, str]:
    """Return every file below a folder with its digest."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
