"""What the probe must know of an ONNX file, read without onnx and without reading the weights in.

The fields' numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; how they are written:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple, Union

Value = Union[int, memoryview]

# ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto
IR_VERSION, GRAPH, OPSET_IMPORT, FUNCTIONS = 1, 7, 8, 25
NODE, INITIALIZER, SPARSE_INITIALIZER = 1, 5, 15
NODE_OUTPUT, NODE_NAME, OPERATOR, ATTRIBUTE, DOMAIN = 2, 3, 4, 5, 7
TENSOR, SUBGRAPH, TENSORS, SUBGRAPHS = 5, 6, 10, 11
EXTERNAL_DATA = 13
ONNX = ("", "ai.onnx")
"""How ONNX's own operators' domain is called."""


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
    external: Dict[str, None] = {}
    ir = 0
    for number, value in _fields(model):
        if number == IR_VERSION and isinstance(value, int):
            ir = value
        elif number == OPSET_IMPORT:
            pair = dict(_fields(_message(value)))
            opsets[_text(pair.get(1))] = _number(pair.get(2, 0))
        elif number == GRAPH:
            nodes += [_node(_message(node)) for field, node in _fields(_message(value)) if field == NODE]
            external.update(dict.fromkeys(_graph_files(_message(value))))
        elif number == FUNCTIONS:
            for field, node in _fields(_message(value)):
                if field == 7:
                    external.update(dict.fromkeys(_node_files(_message(node))))
    return OnnxFile(opsets, ir, tuple(nodes), tuple(external))


def _node(node: memoryview) -> Node:
    fields = [(n, value) for n, value in _fields(node) if n in {NODE_OUTPUT, NODE_NAME, OPERATOR, DOMAIN}]
    found, outputs = dict(fields), sum(n == NODE_OUTPUT and bool(_text(value)) for n, value in fields)
    name, operator, domain = (_text(found.get(number)) for number in (NODE_NAME, OPERATOR, DOMAIN))
    return Node(name, operator, domain, outputs)


def _graph_files(graph: memoryview) -> Iterator[str]:
    """Yield the files of a graph's weights, and of the graphs inside its nodes."""
    for number, value in _fields(graph):
        if number == INITIALIZER:
            yield from _tensor_files(_message(value))
        elif number == SPARSE_INITIALIZER:
            for _, part in _fields(_message(value)):
                if isinstance(part, memoryview):
                    yield from _tensor_files(part)
        elif number == NODE:
            yield from _node_files(_message(value))


def _node_files(node: memoryview) -> Iterator[str]:
    for number, attribute in _fields(node):
        if number != ATTRIBUTE:
            continue
        for field, value in _fields(_message(attribute)):
            if field in {TENSOR, TENSORS}:
                yield from _tensor_files(_message(value))
            elif field in {SUBGRAPH, SUBGRAPHS}:
                yield from _graph_files(_message(value))


def _tensor_files(tensor: memoryview) -> Iterator[str]:
    for number, value in _fields(tensor):
        if number == EXTERNAL_DATA:
            pair = dict(_fields(_message(value)))
            if _text(pair.get(1)) == "location":
                yield _text(pair.get(2))


def _fields(message: memoryview) -> Iterator[Tuple[int, Value]]:
    """Yield each field of a message: its number, and an integer or the bytes; ``ValueError`` at nonsense."""
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
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no protobuf: a number without an end")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("no message")  # noqa: TRY004 - as all that is no ONNX
    return value


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Union[Value, None]) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""
