"""The committed JSON Schema is the one that the code gives, and editors can rely on it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from trtmatrix.cli import entry as cli

ROOT = Path(__file__).resolve().parents[3]
MATRIX = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
SCHEMA = (ROOT / "matrix.schema.json").read_text(encoding="utf-8")


def test_the_committed_schema_is_the_generated_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    remedy = "python -m trtmatrix schema > matrix.schema.json"
    assert capsys.readouterr().out == SCHEMA, f"renew it: {remedy}"


BROKEN: dict[str, tuple[str, str]] = {
    "nothing": ("", ""), "unknown key": ("    library:", "    libary:"),
    "unquoted number": ('version: "8.5.1.7"', "version: 8.5"), "guessed": ("known: read", "known: guessed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_it_accepts_the_project_s_matrix_which_names_it_and_none_that_is_broken(name: str) -> None:
    schema = json.loads(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert MATRIX.startswith("# yaml-language-server: $schema=matrix.schema.json\n")
    old, new = BROKEN[name]
    assert old in MATRIX
    matrix = yaml.load(MATRIX.replace(old, new, 1), yaml.CSafeLoader)
    assert jsonschema.Draft202012Validator(schema).is_valid(matrix) is (name == "nothing")
