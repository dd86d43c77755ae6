"""Why a parser refuses a graph, in words for people: the opset, the operator, the node."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Sequence, Type

from trtprobe import ends
from trtprobe.onnxfile import Node, OnnxFile

UNKNOWN_OPERATOR = re.compile(r"Plugin not found|No importer registered|not supported in TensorRT-RTX")
"""What TensorRT's parser says of an operator that is neither ONNX's, as far as it knows, nor a plugin's."""

MORE_OUTPUTS = re.compile(r"support mo[dr]e than 1 outputs")
"""What it says of an operator of which it has the first output only; TensorRT-RTX 1.7 misspells it so."""

WHILE_PARSING = re.compile(r'While parsing node number \d+ \[(\S+) -> "')
"""How the parser's log names the operator at which it stops."""

ORT_VERSION = re.compile(r"Unsupported model IR version|ONNX Runtime only \*guarantees\* support")
ORT_LIMIT = re.compile(r"support for domain ai\.onnx is till (opset \d+)|max supported (IR version): (\d+)")
ORT_PLACE = re.compile(
    r"Load model from \S+ failed: ?|/\S+/onnxruntime/core/\S+:\d+ .*?\)(?: const)? (?=[A-Z])"
)
"""What an error tells of the file's place and of the source's, which differ from run to run."""

ORT_OPERATOR = re.compile(
    r"([\w.:-]+?)\(?-?\d*\)? is not a registered function/op|No Op registered for (\S+)"
    r"|Could not find an implementation for (\w+)|Failed to find kernel for (\w+)"
)


class Refused(NamedTuple):
    """One of a parser's errors."""

    code: str
    text: str
    node: Node


def read_errors(parser: Any, onnx: OnnxFile, logged: Sequence[str]) -> List[Refused]:
    """Return the errors of TensorRT's parser.

    Which node it was: bindings from 10.0 on tell; before, the log names the operator, and the file the node
    at the error's index, which is right unless it is inside of another node.
    """
    named = [found for text in logged for found in WHILE_PARSING.findall(text)]
    errors = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, operator = (str(getattr(error, word, str)()) for word in ("node_name", "node_operator"))
        operator = operator or (named[index] if index < len(named) else "")
        at, code = getattr(error, "node", int)(), getattr(error, "code", str)()
        beside = onnx.nodes[at] if 0 <= at < len(onnx.nodes) else Node("", "")
        if beside.operator == operator or not operator:
            name, operator = name or beside.name, beside.operator
        errors.append(Refused(str(getattr(code, "name", code)), str(error), Node(name, operator)))
    return errors


def parser_end(version: str, onnx: OnnxFile, errors: Sequence[Refused]) -> ends.CellEnd:
    """Return how a cell ends whose graph TensorRT's parser refuses.

    What the version does not have is no failure of the build: an operator that it does not know, or what it
    calls unsupported.
    """
    said = "the parser refused the graph: " + "; ".join(dict.fromkeys(error.text for error in errors))
    unknown = [error.node for error in errors if UNKNOWN_OPERATOR.search(error.text)]
    unsupported = [error.node for error in errors if error.code.startswith("UNSUPPORTED")]
    kind: Type[ends.CellEnd] = ends.Unsupported if unknown or unsupported else ends.BuildFailed
    why = "no importer for" if unknown else "it does not support"
    nodes = _list([node for node in unknown or unsupported if node.operator])
    if nodes and any(MORE_OUTPUTS.search(error.text) for error in errors):
        why += " more than one output of"
    head = "%s cannot parse %s: %s %s; " % (version, onnx, why, nodes) if nodes else ""
    return kind((head + said)[:2000])


def onnxruntime_end(version: str, onnx: OnnxFile, text: str) -> ends.CellEnd:
    """Return how a cell ends whose graph ONNX Runtime refuses with a text."""
    text = ORT_PLACE.sub("", text)
    if ORT_VERSION.search(text):
        limit = ORT_LIMIT.search(text)  # where it tells, the rest of its words says no more
        most = ", only up to %s" % " ".join(filter(None, limit.groups())) if limit else "; " + text
        return ends.Unsupported(("ONNX Runtime %s cannot read %s%s" % (version, onnx, most))[:2000])
    found = ORT_OPERATOR.search(text)
    if found is None:
        return ends.BuildFailed(text[:2000])
    operator = re.split(r"::|:|\.", next(filter(None, found.groups()), ""))[-1]
    nodes = _list([node for node in onnx.nodes if node.operator == operator]) or operator
    head = "ONNX Runtime %s cannot run %s: it has no operator %s; " % (version, onnx, nodes)
    return ends.Unsupported((head + text)[:2000])


def _list(nodes: Sequence[Node], most: int = 4) -> str:
    """Return ``LayerNormalization (node /ln/LayerNormalization)`` for each of the first operators."""
    first: Dict[str, str] = {}
    for node in nodes:
        first.setdefault(node.operator, " (node %s)" % node.name if node.name else "")
    words = [operator + name for operator, name in first.items()]
    more = ["and %d more" % (len(words) - most)] if len(words) > most else []
    return ", ".join([*words[:most], *more])
