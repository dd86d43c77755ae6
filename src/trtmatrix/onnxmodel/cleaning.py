"""Takes private notes out of a graph's bytes: exporters write stack traces and paths of files into them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import ModelProto, NodeProto

from trtmatrix.core.redact import Private, Secrets, redact
from trtmatrix.onnxmodel.walk import all_graphs, all_nodes, all_tensors

NOTES = ("doc_string", "producer_name", "producer_version")
"""Fields that say where a graph comes from, and change nothing of what it computes."""


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """A graph's bytes: the same ones where nothing was taken out.

    ``renamed``: files with its weights, old name → new. ``told``: private text that stays, in sentences.
    """

    content: bytes
    taken: Mapping[Private, int] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def clean_graph(content: bytes, secrets: Secrets) -> Cleaned:
    """Return a graph without notes that hold private text; what is no graph is returned as it is, and told.

    A note goes whole: beside a path it may hold lines of somebody's code. Names of nodes and tensors, and
    texts that the graph computes with, stay: to change them would make it another graph.
    """
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # noqa: BLE001 - protobuf's own, which has no types
        return Cleaned(content=content, told=("CAREFUL: it is no ONNX file: it was not looked into",))
    taken: Counter[Private] = Counter()
    for message in _messages(model):
        _clean_notes(message, secrets, taken)
    renamed = _rename_weights(model, secrets, taken)
    told = tuple(_tell(model, secrets))
    if not taken:
        return Cleaned(content=content, told=told)
    return Cleaned(
        content=model.SerializeToString(deterministic=True), taken=dict(taken), told=told, renamed=renamed
    )


def _messages(message: Any) -> Iterator[Any]:  # noqa: ANN401 - of protobuf
    """Yield a message and all those inside of it that may hold notes."""
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        for inner in (value,) if hasattr(value, "ListFields") else value:
            yield from _messages(inner)


def _clean_notes(message: Any, secrets: Secrets, taken: Counter[Private]) -> None:  # noqa: ANN401 - of protobuf
    fields = message.DESCRIPTOR.fields_by_name
    for name in NOTES:
        if name in fields and (found := redact(getattr(message, name), secrets).counts):
            message.ClearField(name)
            taken.update(found)
    if "metadata_props" not in fields:
        return
    for entry in list(message.metadata_props):
        if found := redact(f"{entry.key}: {entry.value}", secrets).counts:
            message.metadata_props.remove(entry)
            taken.update(found)


def _rename_weights(model: ModelProto, secrets: Secrets, taken: Counter[Private]) -> dict[str, str]:
    """Give files with weights whose names are private other names."""
    renamed: dict[str, str] = {}
    for tensor in all_tensors(model):
        for entry in tensor.external_data:
            if entry.key != "location":
                continue
            if entry.value not in renamed and (found := redact(entry.value, secrets).counts):
                renamed[entry.value] = f"weights-{len(renamed)}.data"
                taken.update(found)
            entry.value = renamed.get(entry.value, entry.value)
    return renamed


def _tell(model: ModelProto, secrets: Secrets) -> Iterator[str]:
    """Say which names and texts hold something private."""
    names = dict.fromkeys(_names(model))
    for name in names:
        if redact(name, secrets).counts:
            yield f"CAREFUL: the name {name} in the graph holds something private, and stays"
    texts = [text for node in all_nodes(model) for text in _texts(node)]
    texts += [text for tensor in all_tensors(model) for text in tensor.string_data]
    count = sum(bool(redact(text.decode("utf-8", "replace"), secrets).counts) for text in texts)
    if count:
        yield f"CAREFUL: {count} texts that the graph computes with hold something private, and stay"


def _names(model: ModelProto) -> Iterator[str]:
    for graph in all_graphs(model.graph):
        yield graph.name
        for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            yield info.name
    for node in all_nodes(model):
        yield from (node.name, node.domain, node.op_type, *node.input, *node.output)


def _texts(node: NodeProto) -> Iterator[bytes]:
    for attribute in node.attribute:
        yield attribute.s
        yield from attribute.strings
