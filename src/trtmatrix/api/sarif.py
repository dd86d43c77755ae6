"""The uses found in code as SARIF 2.1.0, by which code scanning shows the lines of a pull request."""

from __future__ import annotations

from posixpath import isabs, join, normpath, relpath
from typing import Any
from urllib.parse import quote

from trtmatrix import __version__
from trtmatrix.api.report import say_kind
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, ChangeKind
from trtmatrix.common.jsontext import to_json

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_sarif(section: ApiSection, before: str, after: str, root: str) -> str:
    """Return a log with a rule a changed name; ``root``: the folder that addresses are relative to.

    What must change is an error, changed behaviour a note, all else a warning. A line of a notebook's cell
    is no line of its file: there the first line stands, and the cell in the message.
    """
    rules = {_id(use.change): _rule(use.change) for use in section.uses}
    index = list(rules)
    results = [
        {**_result(use, _address(use.file, section.code, root)), "ruleIndex": index.index(_id(use.change))}
        for use in sorted(section.uses, key=lambda use: use.rank)
    ]
    driver = {"name": "trtmatrix", "version": __version__, "rules": list(rules.values())}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"TensorRT {before} to {after}"},
        "results": results,
    }
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _id(change: ApiChange) -> str:
    return f"{change.kind.value}/{change.name}"


def _rule(change: ApiChange) -> dict[str, Any]:
    instead = f"Instead: {change.replacement}. " if change.replacement else ""
    return {
        "id": _id(change), "shortDescription": {"text": f"{change.name}: {change.kind.value}"},
        "help": {"text": f"{instead}{change.note}".strip() or change.source or change.name},
        **({"helpUri": change.url} if change.url else {}),
    }  # fmt: skip


def _result(use: ApiUse, address: str) -> dict[str, Any]:
    change, cell = use.change, f"Cell {use.cell}, line {use.line}: " if use.cell else ""
    text = "; ".join(filter(None, (f"{cell}{change.name}: {say_kind(use)}", use.why, change.note)))
    text += f". Instead: {change.replacement}" if change.replacement else ""
    minor = "note" if change.kind is ChangeKind.BEHAVIOUR else "warning"
    region = {"startLine": 1 if use.cell else use.line, "snippet": {"text": use.text}}
    location = {"artifactLocation": {"uri": quote(address)}, "region": region}
    return {
        "ruleId": _id(change), "level": "error" if use.must_change else minor,
        "message": {"text": text}, "locations": [{"physicalLocation": location}],
    }  # fmt: skip


def _address(file: str, code: tuple[str, ...], root: str) -> str:
    """Return a file's path from the root; of several folders it begins with the name of its own."""
    path, (first, _, rest) = file, file.partition("/")
    for folder in code:
        name = normpath(folder).rpartition("/")[2]
        if len(code) == 1:
            path = folder if name == file else join(folder, file)
        elif first == name and rest:
            path = join(folder, rest)
            break
    return relpath(path, root) if isabs(path) else normpath(path)
