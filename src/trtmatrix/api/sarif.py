"""The uses found in code as SARIF 2.1.0, by which code scanning shows the lines of a pull request."""

from __future__ import annotations

from posixpath import join, normpath, relpath
from typing import Any
from urllib.parse import quote

from trtmatrix import __version__
from trtmatrix.api.report import BY_NAME, say_kind
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, ChangeKind
from trtmatrix.common.jsontext import to_json

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
"""The folder that the command ran in; code scanning takes it for the repository's root."""


def render_sarif(section: ApiSection, before: str, after: str, root: str) -> str:
    """Return a log with a rule a changed name; ``root``: the folder that the command ran in, absolute.

    What must change is an error, changed behaviour a note, all else a warning; what was not read is a
    notification. A line of a notebook's cell is no line of its file: there the first line stands, and the
    cell in the message. Addresses are relative to the root; those of files outside of it are whole.
    """
    rules = dict[str, dict[str, Any]]()
    for change in (use.change for use in section.uses):
        instead = f"Instead: {change.replacement}. " if change.replacement else ""
        rules[_id(change)] = {
            "id": _id(change), "shortDescription": {"text": f"{change.name}: {change.kind.value}"},
            "help": {"text": f"{instead}{change.note}".strip() or change.source or change.name},
            **({"helpUri": change.url} if change.url else {}),
        }  # fmt: skip
    index = list(rules)
    results = [
        {**_result(use, _locate(use.file, root)), "ruleIndex": index.index(_id(use.change))}
        for use in sorted(section.uses, key=lambda use: use.rank)
    ]
    unread = []
    for file, why in section.unread:
        where = {"physicalLocation": {"artifactLocation": _locate(file, root)}}
        located = {} if why.startswith(BY_NAME) else {"locations": [where]}
        unread.append({"level": "warning", "message": {"text": f"{file}: {why}"}, **located})
    run = {
        "tool": {"driver": {"name": "trtmatrix", "version": __version__, "rules": list(rules.values())}},
        "automationDetails": {"id": f"TensorRT {before} to {after}"},
        "invocations": [{"executionSuccessful": not section.lacking, "toolExecutionNotifications": unread}],
        "originalUriBaseIds": {ROOT: {"uri": f"file://{quote(root)}/"}},
        "results": results,
    }
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _id(change: ApiChange) -> str:
    return f"{change.kind.value}/{change.name}"


def _result(use: ApiUse, artifact: dict[str, str]) -> dict[str, Any]:
    change, cell = use.change, f"Cell {use.cell}, line {use.line}: " if use.cell else ""
    text = "; ".join(filter(None, (f"{cell}{change.name}: {say_kind(use)}", use.why, change.note)))
    text += f". Instead: {change.replacement}" if change.replacement else ""
    minor = "note" if change.kind is ChangeKind.BEHAVIOUR else "warning"
    region = {"startLine": 1 if use.cell else use.line, "snippet": {"text": use.text}}
    return {
        "ruleId": _id(change), "level": "error" if use.must_change else minor, "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }  # fmt: skip


def _locate(file: str, root: str) -> dict[str, str]:
    """Return where a file is, by its path from the root where it lies below."""
    whole = normpath(join(root, file))
    if not whole.startswith(f"{normpath(root)}/"):
        return {"uri": f"file://{quote(whole)}"}
    return {"uri": quote(relpath(whole, root)), "uriBaseId": ROOT}
