"""Nothing private of host, environment, logs or graphs is in an archive, which still shows the failure."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from tests.bundles.archives import read_files
from tests.bundles.conftest import WRONG, Made
from tests.bundles.planting import ENVIRONMENT, all_planted, as_log, said
from tests.models.conftest import Project
from trtmatrix.bugs.redact import ALLOWED, Redactor, allowed_facts, known_values
from trtmatrix.bugs.script import TEMPLATE
from trtmatrix.judge.record import parse_record
from trtmatrix.prepare.cases import CASE, SEAL, digest_known, sealed


@pytest.fixture
def spied(made: Made, tmp_path: Path) -> Made:
    """A copy of the project whose record and graph name private things wherever they can."""
    folder = tmp_path / "agent-7"
    shutil.copytree(made.project.folder, folder, symlinks=True)
    project = object.__new__(Project)
    project.folder, project.results, project.repros = folder, folder / "results", made.project.repros
    other = replace(made, project=project, archive=folder / "a.tar.gz")
    file = other.record(WRONG)
    record = json.loads(file.read_text())
    record["log"] = as_log()
    record["environment"] = {f"V{number}": said(secret) for number, secret in enumerate(all_planted())}
    record["environment"]["NVIDIA_TF32_OVERRIDE"] = "/home/zbigniew"
    record["observed"].update(libcuda="/home/zbigniew/lib/libcuda.so.1", cudnn="cetus-node", torch="Zorblax")
    record["gpu"]["host"] = "gpu-box-07"
    file.write_text(json.dumps(record))
    for model in folder.rglob("model.onnx"):
        if model.parent.parent.name == "cases":
            spoil(model)
            reseal(model)
    return other


def reseal(model: Path) -> None:
    """Let a prepared case be as if it had been prepared with this graph."""
    case = model.parent / CASE
    facts = json.loads(case.read_text())
    facts["files"][model.name] = digest_known(model)
    del facts[SEAL]
    case.chmod(0o644)
    case.write_text(json.dumps(sealed(facts)))


def spoil(file: Path) -> None:
    """Write secrets into a graph's notes and names, as exporters do."""
    model = onnx.load(file)
    model.doc_string, model.producer_name = as_log(), "wilhelmina's exporter"
    model.metadata_props.add(key="run by", value="zbigniew")
    for number, node in enumerate(model.graph.node):
        node.doc_string = f"File /home/zbigniew/a.py, line 3\n{as_log()}"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=as_log())
        node.name = f"/home/zbigniew/block/{number}"
    old = model.graph.node[0].output[0]
    for node in model.graph.node:
        node.input[:] = ["wilhelmina" if name == old else name for name in node.input]
        node.output[:] = ["wilhelmina" if name == old else name for name in node.output]
    file.unlink()  # it may be a link to what other cases share
    onnx.save(model, file)


def test_none_of_44_planted_secrets_goes_out_and_the_failure_still_comes_back(spied: Made) -> None:
    words = [spied.cell, *spied.project.files, f"--to={spied.archive}", "--yes", "--json"]
    done = spied.call(
        "make", *words, **{name: value for name, value in ENVIRONMENT.items() if name != "HOME"}
    )
    assert done.code == 0, done.told
    assert done.data["verify"]["verified"]
    assert len(set(all_planted())) == 44
    files = read_files(spied.archive)
    graph = onnx.load_from_string(files["model.onnx"])
    assert not any(node.doc_string for node in graph.graph.node)
    whole = b"\n".join([*files.values(), *(name.encode() for name in files)])
    assert [secret for secret in all_planted() if secret.encode() in whole] == []
    assert str(spied.project.folder).encode() not in whole
    assert "Taken out as private:" in done.told
    assert "model.onnx: " in done.told


def test_none_is_left_in_a_text_that_goes_out_as_a_failure_s_own_words() -> None:
    redactor = Redactor(known=known_values(environment=ENVIRONMENT), keep=frozenset(["10.7.0.23"]))
    text = redactor.clean("ISSUE.md", as_log())
    assert [secret for secret in all_planted() if secret.lower() in text.lower()] == []
    assert "at TensorRT 10.7.0.23" in text
    assert "0.0041652523018369525" in text
    assert "user name" in redactor.told("ISSUE.md")


@pytest.mark.parametrize("text", [
    "While parsing node number 3 [Softmax -> '/attn/Softmax_output_0']: could not find any supported formats",
    "Error Code 10: Internal Error (Could not find any implementation for node {ForeignNode[a.b...c_12]}.)",
    "/usr/lib/x86_64-linux-gnu/libnvinfer.so.8: CUDA error 700 at 10.8.0, max |y - r| 1.5e-3, 12:30:05",
    TEMPLATE.read_text(),
])  # fmt: skip
def test_what_a_maintainer_needs_stays(text: str) -> None:
    ordinary = {"USER": "root", "MODE": "release", "JOBS": "16", "CUDA_VERSION": "12.1.1"}
    known = known_values(environment={**ENVIRONMENT, **ordinary})
    assert not {"root", "release", "16", "12.1.1"} & set(known), "words that everybody uses are no secrets"
    names = frozenset(["/attn/Softmax_output_0"])
    assert Redactor(known=known, keep=names).clean("ISSUE.md", text) == text


def test_of_a_record_only_what_is_known_to_be_harmless_goes_out(spied: Made) -> None:
    """The copy's record has private things in fields that go out as well as in others."""
    facts = allowed_facts(parse_record(spied.record(WRONG).read_text(), "record.json"))
    assert set(facts) <= set(ALLOWED)
    assert {"cudnn", "torch", "libcuda", "host"} & set(facts) == set()
    assert facts["library"] == "1.31.1"
