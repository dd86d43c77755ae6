"""Nothing private of host, environment, logs or graphs is in an archive, which still shows the failure."""

import json
import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from tests.bundles.archives import read_files
from tests.bundles.conftest import WRONG, Made
from trtmatrix.bugs.redact import ALLOWED, Redactor, allowed_facts, known_values
from trtmatrix.bugs.script import TEMPLATE
from trtmatrix.judge.record import parse_record
from trtmatrix.prepare.cases import CASE, SEAL, digest_known, sealed

PLANTED: Mapping[str, tuple[str, ...]] = {
    "user": ("wilhelmina", "Wilhelmina Fitzgerald", "wfitz-adm", "zbigniew"),
    "host": ("gpu-box-07", "gpu-box-07.lab.initech.example", "build.lab.initech.example", "cetus-node"),
    "home": ("/export/people/wilhelmina", "/home/zbigniew", "/Users/wfitz-adm", r"C:\Users\wfitz-adm"),
    "workspace": ("/data/hush-hush", "/mnt/raid/orbital", "/scratch/wf/x1", "/srv/ci/agent-7/_work"),
    "address": ("192.168.7.21", "10.44.3.9", "2001:db8::ff00:42:8329", "fe80::3e7c:3fff:fe1a:2b4d"),
    "mac": ("3c:7c:3f:1a:2b:4d", "02-42-AC-11-00-02", "3c7c.3f1a.2b4d", "98:03:9b:00:11:22:33:44"),
    "uuid": ("GPU-8a3c1f22-1b2c-3d4e-5f60-718293a4b5c6", "MIG-11111111-2222-3333-4444-555555555555",
             "4c4c4544-0042-3510-8054-b4c04f4a4d32", "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"),
    "serial": ("1654922009999", "PF3XQ1Z9", "CN-0J8ABC-74261", "d41d8cd98f00b204e9800998ecf8427e"),
    "token": ("ghp_0123456789abcdefABCD", "nvapi-AAAABBBBCCCCDDDD1111", "correct-horse-9",
              "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
    "email": ("wilhelmina@initech.example", "z.b+ci@mail.example.org", "ops@a.example", "x_y@b-c.org"),
    "variable": ("blue-falcon-17", "team=quantum-otter", "sekrit/registry/path", "Zorblax"),
}  # fmt: skip
"""No two of a kind that one rule alone would find."""

ENVIRONMENT: Mapping[str, str] = {
    "USER": "wilhelmina", "LOGNAME": "wfitz-adm", "SUDO_USER": "zbigniew",
    "USERNAME": "Wilhelmina Fitzgerald", "RUNS": "/scratch/wf/x1", "DB_PASSWORD": "correct-horse-9",
    "HOSTNAME": "gpu-box-07.lab.initech.example", "HOST": "cetus-node", "HOME": "/export/people/wilhelmina",
    "CI_WORKSPACE": "/srv/ci/agent-7/_work", "DATASETS": "/data/hush-hush:/mnt/raid/orbital",
    "MACHINE_SERIAL": "PF3XQ1Z9", "MACHINE_KEY": "d41d8cd98f00b204e9800998ecf8427e",
    "PROJECT": "blue-falcon-17", "LABELS": "team=quantum-otter", "REGISTRY_PATH": "sekrit/registry/path",
    "CODENAME": "Zorblax",
}  # fmt: skip
"""What such a host's environment says; the other secrets are known by how they look."""

_CALLED = {"1654922009999": "Serial Number : ", "CN-0J8ABC-74261": "board_serial="}
"""What stands before a secret that is known by its name alone."""


def all_planted() -> list[str]:
    return [secret for secrets in PLANTED.values() for secret in secrets]


def said(secret: str) -> str:
    return f"{_CALLED.get(secret, '')}{secret}"


def as_log() -> str:
    """A log in which every secret stands: between words, in quotes, at a line's start, joined to a path."""
    lines = [f'[W] at {said(one)}, "{said(one)}"\n{said(one)} end' for one in all_planted()]
    lines += [f"{path}/model.py:3: in forward" for path in PLANTED["workspace"]]
    return "\n".join([*lines, "max_abs 0.0041652523018369525 at TensorRT 10.7.0.23", ""])


@pytest.fixture
def spied(made: Made, tmp_path: Path) -> Made:
    """A copy of the project whose record and graph name private things wherever they can."""
    folder = tmp_path / "agent-7"
    shutil.copytree(made.project.folder, folder, symlinks=True)
    project = copy(made.project)
    project.folder, project.results = folder, folder / "results"
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
    old = model.graph.node[0].output[0]
    for number, node in enumerate(model.graph.node):
        node.doc_string = f"File /home/zbigniew/a.py, line 3\n{as_log()}"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=as_log())
        node.name = f"/home/zbigniew/block/{number}"
        for names in (node.input, node.output):
            names[:] = ["wilhelmina" if name == old else name for name in names]
    file.unlink()  # it may be a link to what other cases share
    onnx.save(model, file)


def test_none_of_44_planted_secrets_goes_out_and_the_failure_still_comes_back(spied: Made) -> None:
    words = [spied.cell, *spied.project.files, f"--to={spied.archive}", "--yes", "--json"]
    done = spied.call("make", *words, **{name: ENVIRONMENT[name] for name in ENVIRONMENT.keys() - {"HOME"}})
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
