"""The committed JSON Schema is the one that the code gives, and editors can rely on it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from trtmatrix.cli import entry as cli

ROOT = Path(__file__).resolve().parents[3]
MATRIX = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
SCHEMA = (ROOT / "matrix.schema.json").read_text(encoding="utf-8")


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA))


def test_the_committed_schema_is_the_generated_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    remedy = "python -m trtmatrix schema > matrix.schema.json"
    assert capsys.readouterr().out == SCHEMA, f"renew it: {remedy}"


def test_the_schema_is_valid_and_the_matrix_names_it() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA))
    assert MATRIX.splitlines()[0] == "# yaml-language-server: $schema=matrix.schema.json"


def test_the_projects_matrix_is_valid() -> None:
    validator().validate(yaml.safe_load(MATRIX))


BROKEN: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "unknown key": (("versions", 0, "drivr"), {}),
    "unquoted number": (("versions", 0, "version"), 10.10),
    "name": (("versions", 0, "version"), "10.7.0 "),
    "two origins": (("versions", 0, "origin"), {"image": "a:1", "wheels": ["b"]}),
    "fact": (("versions", 0, "library"), {"value": "1.0", "known": "guessed", "source": "a"}),
    "addition": (("versions", 0, "addition"), "yes"),
    "sources": (("sources",), ["a"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_matrix_is_not_valid(name: str) -> None:
    (*parents, last), value = BROKEN[name]
    matrix = copy.deepcopy(yaml.safe_load(MATRIX))
    target = matrix
    for part in parents:
        target = target[part]
    target[last] = value
    assert not validator().is_valid(matrix)
