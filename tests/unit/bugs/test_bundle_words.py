"""Bundles: what is private, when a failure counts as come back, and the archive that is kept."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnxmodels import FLOAT, make_model, node

from trtmatrix.bugs import verify
from trtmatrix.bugs.redact import Redactor, clean_graph, known_values
from trtmatrix.bugs.script import TEMPLATE, read_recorded, six_digits
from trtmatrix.bugs.verify import Place, compare, verify_archive
from trtmatrix.cli import entry as cli
from trtmatrix.common.archive import read_archive, write_archive


def test_a_setting_that_is_a_word_of_the_program_is_no_secret() -> None:
    values = known_values(environment={"UV_KEYRING_PROVIDER": "subprocess", "API_TOKEN": "hunter2hunter2"})
    assert "subprocess" not in values
    text = "import subprocess  # hunter2hunter2"
    assert Redactor(known=values).clean("repro.py", text).startswith("import subprocess  # [")


@pytest.mark.parametrize(
    ("recorded", "said", "same"),
    [  # absurd numbers are the same whatever their size, another shape is not
        ((1.1e16, 1.7e16), "3.0, right up to 1, wrong from 2", True),
        ((0.5, 0.6), "4.9, right up to 1, wrong from 2", True),
        ((0.5, 0.6), "900, right up to 1, wrong from 2", False),
        ((1.5, float("nan")), "nan, right up to 1, wrong from 2", True),
        ((0.5, 0.6), "wrong shape: (1,) instead of (2,)", False),
    ],
)
def test_what_is_the_recorded_failure(recorded: tuple[float, float], said: str, same: bool) -> None:
    seen = {"wrong": {"y": six_digits(recorded)}}
    told = read_recorded(f"RECORDED: Dict[str, Any] = {seen}  # what was seen\n")
    assert (list(compare(told, f"\ny: {said}: WRONG\nrecorded: {{}}\n")) == []) is same


@pytest.mark.parametrize("value", [2.0, 0.1, 1e300, float("inf")])
def test_a_number_of_numpy_s_is_a_literal(value: float) -> None:
    assert float(ast.literal_eval(repr(six_digits([np.float64(value)])))[0]) == value


@pytest.mark.parametrize(
    ("wrong", "number"), [({"y": (1, 2)}, "abc"), (["y"], "1"), ({"y": 3}, "1"), ({"y": ("a", "b")}, "1")]
)
def test_an_archive_of_others_that_says_anything_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any, number: str
) -> None:
    script = f"RECORDED: Dict[str, Any] = { {'wrong': wrong} }  # what was seen, and where\n"
    write_archive(tmp_path / "a.tar.gz", {"repro.py": script.encode()})
    said = f"\ny: {number}, right up to 1, wrong from 2: WRONG\nrecorded: \n"
    monkeypatch.setattr(verify, "_run", lambda *_: (1, said))
    found = verify_archive(tmp_path / "a.tar.gz", 1.0, Place(wheels=("none",)))
    assert not found.verified
    assert found.problems == ("repro.py records or prints what no archive of bundle make does",)


def planted() -> ModelProto:
    """A model with a secret in every note that ONNX has: graph, branch, function, node, value and tensor."""
    inner = helper.make_graph(
        [node("Relu", "x", "z")], "g", [], [helper.make_tensor_value_info("z", FLOAT, [2])]
    )
    nodes = [node("Cast", "c", "b", to=9), node("If", "b", "h", then_branch=inner, else_branch=inner)]
    nodes.append(helper.make_node("Twice", ["h"], ["y"], domain="own"))
    inputs = {"x": (FLOAT, [2]), "c": (FLOAT, [])}
    model = make_model(nodes, inputs, {"y": (FLOAT, [2])}, {"w": np.ones(2, np.float32)}, domains=["own"])
    body = [node("Relu", "a", "alice_inner"), node("Add", "alice_inner alice_inner", "o")]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "Twice", ["a"], ["o"], body, opset))
    model.functions[0].node[0].name = "alice/node"
    branch = model.graph.node[1].attribute[0]
    noted = (
        model, model.graph, model.graph.node[0], model.graph.input[0], model.graph.output[0],
        model.graph.initializer[0], branch.g, branch.g.node[0], branch.g.output[0], model.functions[0],
        model.functions[0].node[0],
    )  # fmt: skip
    for part in noted:
        part.doc_string = "alice"
        part.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="/home/alice/net.py, line 3: alice()")
    branch.doc_string = model.producer_name = model.domain = "alice"
    model.graph.value_info.append(helper.make_tensor_value_info("alice", FLOAT, [2]))
    return model


def test_no_note_of_a_graph_goes_out_wherever_it_stands() -> None:
    model = planted()
    before = model.SerializeToString()
    assert before.count(b"alice") > 30
    assert clean_graph(model, Redactor(known={"alice": "user name"}), "model.onnx") == {
        "alice_inner": "tensor_0"
    }
    assert b"alice" not in model.SerializeToString()
    assert [n.op_type for n in model.graph.node] == ["Cast", "If", "Twice"]
    assert model.functions[0].node[1].input[:] == model.functions[0].node[0].output[:] * 2


def test_a_cell_without_a_record_is_told_with_the_command_that_runs_the_same_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "my net.onnx"
    inputs = {"x": (FLOAT, [2])}
    model.write_bytes(make_model([node("Relu", "x", "y")], inputs, {"y": (FLOAT, [2])}).SerializeToString())
    options = [f"--model={model}", "--precision=fp32", f"--cache={tmp_path}", f"--results={tmp_path}"]
    make = ["bundle", "make", "--yes", "--no-verify", *options]
    assert cli.run([*make, "a/b@8.6.0#nvidia-h200"]) == 2
    cell = capsys.readouterr().err.partition("known: ")[2].partition(" (")[0]
    stored = [word for word in make if not word.startswith(("--model", "--precision"))]
    for words, named in ((make, f"'{model}' --precision fp32"), (stored, "FILE")):
        assert cli.run([*words, f"{cell}@8.6.0#nvidia-h200"]) == 2
        assert f"run --trt 8.6.0 --model {named} --gpu nvidia-h200 --rerun" in capsys.readouterr().err


FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "bundle"
ARCHIVE = FOLDER / "wrong-scale-tf32-8.6.0.tar.gz"


def test_it_unpacks_and_its_script_is_the_template_with_other_constants(tmp_path: Path) -> None:
    top = read_archive(ARCHIVE, tmp_path / "out")
    assert (top / "ISSUE.md").read_bytes() == (FOLDER / "ISSUE.md").read_bytes()
    script, template = (file.read_text(encoding="utf-8") for file in (top / "repro.py", TEMPLATE))
    assert len(script.splitlines()) == len(template.splitlines()) <= 120
    lines = zip(script.splitlines(), template.splitlines(), strict=True)
    differ = [one for one, other in lines if one != other]
    assert {line.partition(":")[0].partition(" =")[0] for line in differ} == {"RECORDED", "LIMITS"}
    assert read_recorded(script)["gpu"] == "NVIDIA H200"
