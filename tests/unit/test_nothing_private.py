"""Secrets planted in environment, logs, paths, records, code, graphs: none is in a byte of the archive."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx
import onnxmodels
import pytest
from planting import HOST, PLANTED, all_planted, as_environment, as_log, as_record

from trtmatrix.core.bundle.manifest import LEFT_OUT, listing
from trtmatrix.core.redact import Private
from trtmatrix.effects.archive import Written, write_archive
from trtmatrix.effects.packing import Packed, Part, choose_parts, pack_parts
from trtmatrix.effects.unpack import read_archive


def model_with_notes() -> bytes:
    """A graph in whose notes all secrets stand, with a stack trace as torch's exporter writes it."""
    model = onnxmodels.mlp(width=8)
    model.doc_string = as_log()
    model.producer_name = "wilhelmina's exporter"
    model.metadata_props.add(key="run by", value="zbigniew")
    model.graph.doc_string = "/data/hush-hush"
    model.graph.node[0].doc_string = f"File /home/zbigniew/a.py, line 3\n  x = self.hidden(x)\n{as_log()}"
    content: bytes = model.SerializeToString()
    return content


def parts(folder: Path) -> list[Part]:
    """An archive's files, every one with all secrets, in the ways in which a part can be given."""
    log = folder / "log.txt"
    log.write_bytes(as_log().encode() + b"\xff\xfe no UTF-8\n")
    code = "\n".join(f"a{i} = {one!r}  # {one}" for i, one in enumerate(as_log().splitlines()))
    markdown = f"# by wilhelmina\n\n```\n{as_log()}```\n"
    return [
        Part(name="ISSUE.md", text=markdown),
        Part(name="environment.json", text=as_environment()),
        Part(name="record.json", data=as_record().encode()),
        Part(name="log.txt", file=log),
        Part(name="repro.py", text=code + "\n"),
        Part(name="reproduce.sh", text="\n".join(f"# {line}" for line in as_log().splitlines())),
        Part(name="image/Dockerfile", text=as_log()),
        Part(name="model.onnx", data=model_with_notes()),
        Part(name="inputs.npz", arrays={"x": np.arange(6.0)}),
        Part(name="others/wilhelmina-gpu-box-07.json", text="{}"),
        Part(name="engine.plan", data=b"\0" * 9, rank=3),
        Part(name="large.bin", data=np.random.RandomState(0).bytes(3_000_000), rank=9),
    ]


def written(folder: Path, name: str) -> tuple[Written, tuple[Packed, ...]]:
    choice = choose_parts(pack_parts(parts(folder), HOST), limit=2_000_000)
    target = folder / name
    return write_archive(target, choice.kept, HOST, left_out=choice.left_out), choice.kept


def test_at_least_forty_secrets_of_ten_kinds_are_planted() -> None:
    assert len(set(all_planted())) == 44
    assert set(PLANTED) == set(Private)
    for text in (as_log(), json.loads(as_record())["log"]):
        assert all(secret in text for secret in all_planted())


def test_none_is_found_in_the_archive(tmp_path: Path) -> None:
    archive, _ = written(tmp_path, "wilhelmina-10.7.0.tar.gz")
    packed = archive.file.read_bytes()
    plain = gzip.decompress(packed)  # heads with names and all contents
    variants = {form for one in all_planted() for form in (one, json.dumps(one)[1:-1], repr(one)[1:-1])}
    for secret in sorted(variants):
        for coding in ("utf-8", "utf-16-le"):
            assert secret.encode(coding) not in plain, secret
        assert secret.lower().encode() not in plain.lower(), secret
        assert secret.encode() not in packed
    assert b"10.7.0.23" in plain
    assert b"0.0041652523018369525" in plain


def test_what_is_left_can_be_read(tmp_path: Path) -> None:
    archive, _ = written(tmp_path, "wilhelmina-10.7.0.tar.gz")
    folder = read_archive(archive.file, tmp_path / "out")
    assert archive.folder == folder.name == "user-10.7.0"
    for name in ("environment.json", "record.json", LEFT_OUT):
        json.loads((folder / name).read_text(encoding="utf-8"))
    compile((folder / "repro.py").read_text(encoding="utf-8"), "repro.py", "exec")
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model)
    assert len(model.graph.node) == len(onnxmodels.mlp(width=8).graph.node)
    with np.load(folder / "inputs.npz") as inputs:
        assert np.array_equal(inputs["x"], np.arange(6.0))
    assert b"\xff\xfe no UTF-8" in (folder / "log.txt").read_bytes()
    assert "by [user]" in (folder / "ISSUE.md").read_text(encoding="utf-8")


def test_what_was_taken_out_is_told(tmp_path: Path) -> None:
    _, kept = written(tmp_path, "a.tar.gz")
    text = listing([one.item for one in kept])
    assert "nothing private was found" not in text
    for kind in Private:
        assert f"{kind.value} " in text.splitlines()[-1]


@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le"])
def test_a_file_that_is_no_text_is_told_of(coding: str) -> None:
    data = b"\0" + "built in /data/hush-hush by wilhelmina".encode(coding)
    (packed,) = pack_parts([Part(name="engine.plan", data=data)], HOST)
    assert packed.data == data
    assert [kind for kind in Private if any(kind.value in line for line in packed.item.told)] == [
        Private.USER,
        Private.WORKSPACE,
    ]


def test_names_of_arrays_are_told_of() -> None:
    (packed,) = pack_parts([Part(name="y.npz", arrays={"wilhelmina": np.zeros(1)})], HOST)
    assert "CAREFUL: the array wilhelmina" in packed.item.told[0]
