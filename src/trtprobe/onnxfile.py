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

INNER: Dict[str, Dict[int, str]] = {
    "model": {7: "graph", 25: "function"}, "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node"}, "node": {5: "attribute"}, "sparse tensor": {1: "tensor", 2: "tensor"},
    "attribute": {5: "tensor", 10: "tensor", 6: "graph", 11: "graph"}, "tensor": {13: "external data"},
}  # fmt: skip
"""What lies in each message, by the number of its field."""

IR_VERSION, GRAPH, OPSET_IMPORT, NODE = 1, 7, 8, 1
NODE_OUTPUT, NODE_NAME, OPERATOR, DOMAIN = 2, 3, 4, 7
ONNX = ("", "ai.onnx")
"""How ONNX's own operators' domain is called."""

Value = Union[int, memoryview]


class Node(NamedTuple):
    """A node of the graph: its name, operator and domain, and how many of its outputs are used."""

    name: str
    operator: str
    domain: str
    outputs: int = 1


class OnnxFile(NamedTuple):
    """``opsets`` by domain, the file format's ``ir`` version, the main graph's ``nodes`` in order.

    ``external``: the files beside it, by relative path, that hold weights. All is empty where it is no ONNX.
    """

    opsets: Dict[str, int]
    ir: int
    nodes: Tuple[Node, ...]
    external: Tuple[str, ...]

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators, 0 where it is not told."""
        return self.opsets.get("", self.opsets.get("ai.onnx", 0))


NOTHING = OnnxFile({}, 0, (), ())


class Model:
    """An ONNX file and the files with weights beside it, as a product takes it."""

    def __init__(self, path: Path) -> None:
        """Look into the file; ``BuildFailed`` where it, or a file that it names, is not there."""
        if not path.is_file():
            raise ends.BuildFailed("there is no model %s" % path.name)
        self.path = path
        self.onnx = read_onnx(path)
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
        folder = self.path.parent
        told: Dict[str, Any] = {}
        for place in (folder.parent, folder) if self.onnx.external else ():  # the parent: of ``others/``
            if (place / "case.json").is_file():
                told = json.loads((place / "case.json").read_text(encoding="utf-8"))
        for name in sorted(self.onnx.external):
            seen = (folder / name).stat()
            known = dict(told.get("external") or {}).get(name) or told.get("content") or seen.st_mtime_ns
            total.update(("\n%s %d %s" % (name, seen.st_size, known)).encode())
        return total.hexdigest()


def read_onnx(path: Path) -> OnnxFile:
    """Read an ONNX file as far as it is asked for here; :data:`NOTHING` where it is none.

    The file is mapped, and weights are skipped, whatever its size.
    """
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return _read_model(memoryview(mapped))  # unmapped with the last view of it
    except (OSError, ValueError, IndexError, RecursionError):
        return NOTHING


def _read_model(model: memoryview) -> OnnxFile:
    opsets: Dict[str, int] = {}
    nodes: List[Node] = []
    ir = 0
    for number, value in _fields(model):
        if number == IR_VERSION and isinstance(value, int):
            ir = value
        elif number == OPSET_IMPORT:
            pair = dict(_fields(value))
            version = pair.get(2, 0)
            opsets[_text(pair.get(1))] = version if isinstance(version, int) else 0
        elif number == GRAPH:
            nodes += [_node(node) for field, node in _fields(value) if field == NODE]
    return OnnxFile(opsets, ir, tuple(nodes), tuple(dict.fromkeys(_external_files("model", model))))


def _node(node: Value) -> Node:
    fields = [(n, value) for n, value in _fields(node) if n in {NODE_OUTPUT, NODE_NAME, OPERATOR, DOMAIN}]
    found, outputs = dict(fields), sum(n == NODE_OUTPUT and bool(_text(value)) for n, value in fields)
    name, operator, domain = (_text(found.get(number)) for number in (NODE_NAME, OPERATOR, DOMAIN))
    return Node(name, operator, domain, outputs)


def _external_files(kind: str, message: Value) -> Iterator[str]:
    """Yield the files with weights that a message of a kind names, wherever they hang in it."""
    for number, value in _fields(message):
        inner = INNER[kind].get(number)
        if inner == "external data":
            pair = dict(_fields(value))
            if _text(pair.get(1)) == "location":
                yield _text(pair.get(2))
        elif inner:
            yield from _external_files(inner, value)


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
