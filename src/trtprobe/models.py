"""A model as a product takes it: from its bytes or from its file, and a key that stands for its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict

from trtprobe import ends
from trtprobe.onnxfile import OnnxFile, read_onnx

IN_MEMORY = 64 << 20
"""Bytes of a model that Python may hold; a larger one is left to the product, which reads its file."""

PIECE = 1 << 22


class Model:
    """An ONNX file and the files with weights beside it."""

    def __init__(self, path: Path) -> None:
        """Look into the file; ``BuildFailed`` where it, or a file that it names, is not there."""
        if not path.is_file():
            raise ends.BuildFailed("there is no model %s" % path.name)
        self.path = path
        self.onnx: OnnxFile = read_onnx(path)
        missing = [name for name in self.onnx.external if not (path.parent / name).is_file()]
        if missing:
            raise ends.BuildFailed(
                "the model's weights are in %s, which is not beside it: copy %s along with the model"
                % (", ".join(missing[:5]), "it" if len(missing) == 1 else "them")
            )

    @property
    def must_stay_a_file(self) -> bool:
        """Whether the product must read it itself: its weights lie beside it, or it is large."""
        return bool(self.onnx.external) or self.path.stat().st_size > IN_MEMORY

    def key(self) -> str:
        """Return a digest of the model's file and of what is known of those with weights beside it.

        Those are not read, they may hold many gigabytes: each counts by its name, size and digest, as
        ``case.json`` tells it (``external``: name: SHA-256; else ``content``, which covers all of a case),
        and by the time it was changed where nothing tells.
        """
        total = hashlib.sha256()
        with self.path.open("rb") as stream:
            for piece in iter(lambda: stream.read(PIECE), b""):
                total.update(piece)
        told = _told(self.path.parent) if self.onnx.external else {}
        for name in sorted(self.onnx.external):
            seen = (self.path.parent / name).stat()
            known = dict(told.get("external") or {}).get(name) or told.get("content") or seen.st_mtime_ns
            total.update(("\n%s %d %s" % (name, seen.st_size, known)).encode())
        return total.hexdigest()


def _told(folder: Path) -> Dict[str, Any]:
    """Return the ``case.json`` of the model's folder or of the one above it (``others/``)."""
    for place in (folder, folder.parent):
        if (place / "case.json").is_file():
            told: Dict[str, Any] = json.loads((place / "case.json").read_text(encoding="utf-8"))
            return told
    return {}
