"""Several models of one's own: models.yaml with its mistakes, folders, files, and what they share."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.model.listing import find_models, parse_listing
from trtmatrix.model.own_model import ModelOptions

DOCS = Path(__file__).parents[3] / "docs"
USUAL = ModelOptions(precision="fp16", check=Path("usual.py"))
GOOD = """\
schema: 1
models:
  - file: a.onnx
  - {name: b, file: deep/b.onnx, inputs: deep/samples, precision: fp32, atol: 0.1, check: accept.py,
     max_slowdown: 1.5, tags: [nightly], profile: {ids: "1x16:4x128:8x512"}}
  - {file: c.onnx, performance: false, tags: [nightly, slow]}
"""
BROKEN = """\
schema: 1
models:
  - {name: a, fil: a.onnx}
  - {file: b.onnx, precision: fp8, max_slowdown: 0.9}
  - {file: c.onnx, profile: {k: 1:3:5}, tags: nightly}
"""


def names(folder: Path, *places: Path, tags: tuple[str, ...] = ()) -> list[str]:
    return [one.model.name for one in find_models(places or [folder], USUAL, 1.1, tags)]


def test_what_a_list_does_not_say_the_command_line_says(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(GOOD)
    a, b, c = find_models([tmp_path], USUAL, 1.1)
    assert (a.model.name, a.model.model, a.model.inputs) == ("a", tmp_path / "a.onnx", None)
    assert (a.model.precision, a.model.check, a.max_slowdown) == ("fp16", Path("usual.py"), 1.1)
    assert (b.model.model, b.model.inputs) == (tmp_path / "deep/b.onnx", tmp_path / "deep/samples")
    assert (b.model.precision, b.model.atol, b.model.rtol) == ("fp32", 0.1, None)
    assert (b.model.check, b.max_slowdown) == (tmp_path / "accept.py", 1.5)
    assert b.model.profile == ("ids=1x16:4x128:8x512",)
    assert c.max_slowdown == 0, "its performance is left out"
    assert names(tmp_path, tags=("slow",)) == ["c"]
    with pytest.raises(UsageError, match="no model has it; tags are: nightly, slow"):
        names(tmp_path, tags=("weekly",))


def test_all_mistakes_are_told_at_once_with_line_and_suggestion() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_listing(BROKEN, "models.yaml")
    told = str(raised.value)
    for line, words in (
        (3, "unknown key; perhaps you meant 'file'"), (3, "is missing: write file here"),
        (4, "'fp8' is not one of 'tf32', 'fp32' or 'fp16'"), (4, "greater than or equal to 1"),
        (5, '1:3:5 without quotes is no text to YAML but 3785: write "1:3:5"'), (5, "must be a list"),
    ):  # fmt: skip
        found = [row for row in told.splitlines() if row.startswith(f"models.yaml:{line}:")]
        assert any(words in row for row in found), words


def test_a_folder_has_files_or_a_folder_for_each_model_with_inputs_beside(tmp_path: Path) -> None:
    (tmp_path / "vit" / "inputs").mkdir(parents=True)
    for file in ("plain.onnx", "fed.onnx", "vit/model.onnx"):
        (tmp_path / file).touch()
    for file in ("fed.npz", "vit/inputs/0.npz"):
        np.savez(tmp_path / file, x=np.zeros(1))
    found = {one.model.name: one.model.inputs for one in find_models([tmp_path], USUAL, 1.1)}
    assert found == {"plain": None, "fed": tmp_path / "fed.npz", "vit": tmp_path / "vit" / "inputs"}
    assert names(tmp_path, tmp_path / "plain.onnx", tmp_path / "vit" / "model.onnx") == ["plain", "vit"]
    with pytest.raises(UsageError, match="plain stands twice"):
        names(tmp_path, tmp_path, tmp_path / "plain.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no model is there: put NAME\.onnx"):
        names(tmp_path / "empty")


def test_the_schema_is_the_one_that_the_code_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema", "--models"]) == 0
    shipped = (DOCS / "models.schema.json").read_text()
    assert capsys.readouterr().out == shipped, "python -m trtmatrix schema --models > docs/models.schema.json"
    jsonschema.Draft202012Validator.check_schema(json.loads(shipped))


def test_only_a_command_that_takes_several_models_takes_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--model", "a.onnx", "--model", "b.onnx"]) == 2
    assert "--model b.onnx: one model at a time" in capsys.readouterr().err
    words = ["upgrade", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4", "--model", "a.onnx", "--model"]
    assert cli.run([*words, "b.onnx", "--inputs", "x.npz"]) == 2
    told = capsys.readouterr().err
    assert "--inputs is about your own model: of several, models.yaml says it of each" in told
    assert "--models b.onnx: there is no such file" in told


def test_the_list_in_the_documents_can_be_read() -> None:
    block = (DOCS / "upgrade.md").read_text().partition("schema: 1\nmodels:")[2].partition("```")[0]
    listing = parse_listing(f"schema: 1\nmodels:{block}")
    assert [one.name or one.file for one in listing.models] == ["vit.onnx", "encoder", "detector.onnx"]
