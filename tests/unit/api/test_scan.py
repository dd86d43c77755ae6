"""The scan of code finds what it must in the corpus and in small pieces, and nothing that it must not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.code_corpus import certainty_of, corpus_changes, corpus_files, expected_uses, found_uses
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.api.compare import compare_surfaces, find_behaviours, find_older
from trtmatrix.api.scan import LARGEST, Scan, read_code, scan_code
from trtmatrix.api.section import read_change_table, read_store
from trtmatrix.api.types import ChangeKind, Kept

OLD, NEW, CHANGES = corpus_changes()
FILES = corpus_files()
BEHAVIOURS = (Kept(name="plans", note="build it again", names=("Runtime.deserialize_cuda_engine",)),)
TRT = "import tensorrt as trt\n"
PIECES = yaml.safe_load(Path(__file__).with_name("pieces.yaml").read_text(encoding="utf-8"))
GROWING = f"{TRT}if trt.__version__" + ".replace('.', '..')" * 60 + " < '9': pass\n"
ENGINE = f"{TRT}engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')\n"


def scan(text: str, name: str = "code.py", **others: str) -> Scan:
    files = {name: text, **{f"{key}.py": value for key, value in others.items()}}
    return scan_code(files, OLD, NEW, CHANGES)


@pytest.fixture(scope="module")
def whole() -> Scan:
    return scan_code(FILES, OLD, NEW, CHANGES, BEHAVIOURS)


# ---- the corpus ----


@pytest.mark.parametrize("name", FILES)
def test_corpus_file(name: str, whole: Scan) -> None:
    found = [each for each in found_uses(whole.uses) if each.file == name and each.change != "behaviour"]
    assert found == [each for each in expected_uses(FILES) if each.file == name]


def test_possible_uses_say_why_and_a_behaviour_is_told_once_a_report(whole: Scan) -> None:
    assert all(use.sure is not bool(use.why) and use.text for use in whole.uses)
    once = [use for use in whole.uses if use.change.kind is ChangeKind.BEHAVIOUR]
    assert [use.change.name for use in once] == ["plans"]


@pytest.mark.parametrize("piece", [*PIECES, {"a.py": GROWING}])
def test_a_piece_of_code(piece: Mapping[str, Any]) -> None:
    files = {name: ENGINE * (name == "code.py") + text for name, text in piece.items() if name != "uses"}
    found = [
        f"{use.line - 2 * (use.file == 'code.py')} {certainty_of(use)} {use.change.name}"
        for use in scan_code(files, OLD, NEW, CHANGES).uses
    ]
    assert found == piece.get("uses", [])


def test_cpp_is_searched_by_name_and_told_what_to_write_instead() -> None:
    instead = {
        "builder->setMaxWorkspaceSize(1);": "set_memory_pool_limit",
        "nvuffparser::createUffParser();": "OnnxParser",
        "engine->destroy();": "delete", "build(EngineCapability::kSAFE_GPU);": "EngineCapability.SAFETY",
        "n = e->getNbBindings();": "num_io_tensors",
    }  # fmt: skip
    surfaces, table = read_store(), read_change_table()
    changes = (*compare_surfaces(OLD, NEW, table), *find_older(surfaces.values(), OLD, NEW, table))
    text = "\n".join(['#include "NvInfer.h"', *instead, ""])
    found = scan_code({"a.cpp": text}, OLD, NEW, changes)
    assert [(use.line, use.sure) for use in found.uses] == [(n, False) for n in range(2, 7)]
    for use, words in zip(found.uses, instead.values(), strict=True):
        assert words in use.change.replacement
    assert found.unread[0][0] == "1 C++ file"
    assert not scan(text.replace("NvInfer", "Other"), "a.cpp").uses


def test_from_10_to_11() -> None:
    surfaces, table = read_store(), read_change_table()
    before, after = surfaces["10.8.0.43"], surfaces["11.4.0.106"]
    text = f"{ENGINE}for c in trt.get_plugin_registry().plugin_creator_list: print(c)\nengine = load()\n"
    found = scan_code(
        {"a.py": text + "r = trt.Runtime(0)\n" + "r.deserialize_cuda_engine(b'')\n" * 3},
        before, after, compare_surfaces(before, after, table), find_behaviours("10.8.0", "11.4.0", table),
    )  # fmt: skip
    named = [use.change.name for use in found.uses]
    assert named.count("IPluginRegistry.plugin_creator_list") == 1
    assert "Runtime.deserialize_cuda_engine" not in named  # a plan in memory is given as before
    assert len([use for use in found.uses if "A plan works with the release" in use.change.note]) == 1


# ---- files ----


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.py", "import tensorrt as trt\ntrt.Dims\nprint trt.Dims.num_bindings\n", "line 3"),
        ("a.py", "import tensorrt\nnum_bindings = " + "(" * 5000 + ")" * 5000, ""),
        ("a.py", f"import tensorrt as trt\nv = a{'.a' * 1500}.__version__\n", "recursion"),
        ("a.ipynb", "{", "no notebook"),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "def f(:"}]}', "cell 1"),
    ],
)
def test_what_does_not_parse_is_told_and_the_rest_is_read(name: str, text: str, reason: str) -> None:
    found = scan(text, name, other=f"{ENGINE}engine.num_bindings\n")
    assert [file for file, _ in found.unread] == [name]
    assert reason in found.unread[0][1]
    assert [use.file for use in found.uses] == ["other.py"]


def test_folder_is_read_without_what_is_not_its_own_or_cannot_matter(tmp_path: Path) -> None:
    left_out = [f"{tmp_path}/{name}" for name in (".git", "lib/site-packages", "node_modules", "venv")]
    for name in (*left_out, "env", "pkg"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.py").write_text(TRT)
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    (tmp_path / "run").write_text("#!/bin/sh\ntrtexec\n")
    (tmp_path / "other.py").write_text("import torch\n")
    found = read_code([tmp_path])
    assert sorted(found.texts) == [f"{tmp_path}/{name}" for name in ("env/a.py", "pkg/a.py", "run")]
    assert found.seen == 4
    assert sorted(name for name, _ in found.unread) == left_out


def test_links_large_and_unreadable_files_are_told(tmp_path: Path) -> None:
    trt = TRT.encode()
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "latin.py").write_bytes(trt + b"# caf\xe9\n")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + trt)
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(LARGEST + 1)
    found = read_code([tmp_path])
    assert found.texts == {f"{tmp_path}/bom.py": TRT, f"{tmp_path}/latin.py": f"{TRT}# caf\ufffd\n"}
    assert [name for name, _ in found.unread] == [f"{tmp_path}/large.py"]
    (tmp_path / "a.txt").write_text("x")
    told = [why for _, why in read_code([tmp_path / n for n in ("a.txt", "missing")]).unread]
    assert ["no kind" in why for why in told] == [True, False]


@given(
    st.text(max_size=200),
    st.sampled_from(["a.sh", "Dockerfile", "a.cpp", "a.ipynb", "a.py", "a.toml", "a.md"]),
)
def test_any_text_is_read_or_told(text: str, name: str) -> None:
    scan_code({name: text}, OLD, NEW, CHANGES)
