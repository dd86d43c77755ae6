"""What the probe must know of an ONNX file, read without onnx and without reading the weights in.

The fields' numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; how they are written:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

from trtprobe import ends

IN_MEMORY = 64 << 20
"""Bytes of a model that Python may hold; a larger one is left to the product, which reads its file."""

PIECE = 1 << 22
NO_WEIGHTS = {".onnx", ".json"}
"""How files beside a model end that are no weights of it."""

GRAPH, OPSET_IMPORT, NODE, NODE_NAME, OPERATOR = 7, 8, 1, 3, 4
ONNX = ("", "ai.onnx")
"""How ONNX's own operators' domain is called."""

Value = Union[int, memoryview]


class Node(NamedTuple):
    """A node of the graph."""

    name: str
    operator: str


class OnnxFile(NamedTuple):
    """``opsets`` by domain, and the main graph's ``nodes`` in order; both empty where it is no ONNX."""

    opsets: Dict[str, int]
    nodes: Tuple[Node, ...]

    def __str__(self) -> str:
        """``opset 17 with com.example 1``."""
        own = ["opset %d" % number for domain, number in self.opsets.items() if domain in ONNX]
        others = ["%s %d" % pair for pair in sorted(self.opsets.items()) if pair[0] not in ONNX]
        return " with ".join(filter(None, [*own, " and ".join(others)])) or "the graph"


class Model:
    """An ONNX file and the files with weights beside it, as a product takes it."""

    def __init__(self, path: Path) -> None:
        """``BuildFailed`` where there is no such file."""
        if not path.is_file():
            raise ends.BuildFailed("there is no model %s" % path.name)
        self.path, self.onnx = path, read_onnx(path)
        self.told: Dict[str, Any] = {}
        for place in (path.parent.parent, path.parent):  # the parent: of ``others/``
            if (place / "case.json").is_file():
                self.told = json.loads((place / "case.json").read_text(encoding="utf-8"))
        beside = [file.name for file in path.parent.iterdir() if file.suffix not in NO_WEIGHTS]
        named = {*beside, *(self.told.get("external") or {})}
        self.weights = [name for name in sorted(named) if (path.parent / name).is_file()]

    @property
    def must_stay_a_file(self) -> bool:
        """Whether the product must read it itself: its weights lie beside it, or it is large."""
        return bool(self.weights) or self.path.stat().st_size > IN_MEMORY

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
        for name in self.weights:
            seen = (self.path.parent / name).stat()
            known = dict(self.told.get("external") or {}).get(name) or self.told.get("content")
            total.update(("\n%s %d %s" % (name, seen.st_size, known or seen.st_mtime_ns)).encode())
        return total.hexdigest()


def read_onnx(path: Path) -> OnnxFile:
    """Read opsets and nodes of an ONNX file, whatever its size: it is mapped, and weights are skipped."""
    opsets: Dict[str, int] = {}
    nodes: List[Node] = []
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        for number, value in _fields(memoryview(mapped)):  # unmapped with the last view of it
            if number == OPSET_IMPORT:
                pair = dict(_fields(value))
                version = pair.get(2, 0)
                opsets[_text(pair.get(1))] = version if isinstance(version, int) else 0
            elif number == GRAPH:
                found = [dict(_fields(node)) for field, node in _fields(value) if field == NODE]
                nodes += [Node(_text(node.get(NODE_NAME)), _text(node.get(OPERATOR))) for node in found]
    except (OSError, ValueError, IndexError):
        return OnnxFile({}, ())
    return OnnxFile(opsets, tuple(nodes))


def _fields(message: Value) -> Iterator[Tuple[int, Value]]:
    """Yield each field of a message: its number, and an integer or the bytes; ``ValueError`` at nonsense."""
    if isinstance(message, int):
        raise ValueError("no message")  # noqa: TRY004 - as all that is no ONNX
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0 or kind not in {0, 1, 2, 5}:
            raise ValueError("no protobuf")
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(message, at)
        if at + size > end:
            raise ValueError("no protobuf: it ends too early")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> Tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("no protobuf: a number without an end")


def _text(value: Union[Value, None]) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""
