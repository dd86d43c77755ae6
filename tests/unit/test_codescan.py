"""The scan of code finds what it must in the corpus, and nothing that it must not."""

from __future__ import annotations

import pytest
from bench.code_corpus import AFTER, corpus_changes, corpus_files, expected_uses, found_uses
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.api import ApiUse, Certainty, ChangeKind
from trtmatrix.core.codescan import FileKind, Scan, kind_of_file, scan_code

SURFACE, CHANGES, BEHAVIOURS = corpus_changes()
FILES = corpus_files()


def scan(text: str, name: str = "code.py", after: str = AFTER, **others: str) -> Scan:
    files = {name: text, **{f"{key}.py": value for key, value in others.items()}}
    return scan_code(files, SURFACE, CHANGES, BEHAVIOURS, after)


def told(found: Scan) -> list[tuple[int, str, str]]:
    return [(use.line, use.certainty.value, use.change.name) for use in found.uses]


@pytest.fixture(scope="module")
def whole() -> Scan:
    return scan_code(FILES, SURFACE, CHANGES, BEHAVIOURS, AFTER)


@pytest.mark.parametrize("name", FILES)
def test_corpus_file(name: str, whole: Scan) -> None:
    found = [each for each in found_uses(whole.uses) if each.file == name]
    assert found == [each for each in expected_uses(FILES) if each.file == name]


def test_corpus_is_large_enough() -> None:
    assert len(FILES) >= 24
    assert {kind_of_file(name, text[:200]) for name, text in FILES.items()} == set(FileKind)
    assert not [each for each in expected_uses(FILES) if each.file.startswith("traps/")]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".py") and "/" not in name])
def test_every_file_is_found_alone_too(name: str) -> None:
    found = scan_code({name: FILES[name]}, SURFACE, CHANGES, BEHAVIOURS, AFTER)
    assert found_uses(found.uses) == [each for each in expected_uses(FILES) if each.file == name]


def test_possible_uses_say_why(whole: Scan) -> None:
    for use in whole.uses:
        assert bool(use.why) == (use.certainty is Certainty.POSSIBLE)
        assert use.text
        assert use.change.kind is not ChangeKind.ADDED


def test_same_order_whatever_the_files_order() -> None:
    turned = scan_code(dict(reversed(list(FILES.items()))), SURFACE, CHANGES, BEHAVIOURS, AFTER)
    assert turned.uses == scan_code(FILES, SURFACE, CHANGES, BEHAVIOURS, AFTER).uses


def test_without_the_target_every_version_test_guards() -> None:
    text = "import tensorrt as trt\nif int(trt.__version__[0]) >= 7:\n    trt.BuilderFlag.STRICT_TYPES\n"
    assert told(scan(text)) == [(3, "possible", "BuilderFlag.STRICT_TYPES")]  # "1" of 10.8.0
    assert told(scan(text, after="")) == [(3, "possible", "BuilderFlag.STRICT_TYPES")]
    assert told(scan(text.replace("[0]", ".split('.')[0]"))) == [(3, "sure", "BuilderFlag.STRICT_TYPES")]


@pytest.mark.parametrize(
    "text",
    [
        "from helpers import optional_import\ntrt, there = optional_import('tensorrt', '8.5')",
        "def optional_import(name):\n    return load(name), True\ntrt, _ = optional_import('tensorrt')",
        "import mod\ntrt = mod.lazy_import('tensorrt>=8.5')",
        "import pytest\ntrt = pytest.importorskip('tensorrt')",
        "import sys, tensorrt\ntrt = tensorrt.tensorrt",
        "class A:\n    import tensorrt as trt\ntrt = A.trt",
    ],
)
def test_ways_to_the_bindings(text: str) -> None:
    found = scan(f"{text}\ntrt.BuilderFlag.STRICT_TYPES\n")
    assert [(use.certainty.value, use.change.name) for use in found.uses] == [
        ("sure", "BuilderFlag.STRICT_TYPES")
    ]


ENGINE = "import tensorrt as trt\nengine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')\n"


@pytest.mark.parametrize(
    ("text", "certainty"),
    [
        ("engine.num_bindings", "sure"),
        ("not hasattr(engine, 'num_io_tensors') and engine.num_bindings", "possible"),
        ("old = not hasattr(engine, 'num_io_tensors')\nold and engine.num_bindings", "possible"),
        ("new = hasattr(engine, 'num_io_tensors')\nnew and engine.num_bindings", "sure"),
        ("'num_bindings' in dir(engine) and engine.num_bindings", "possible"),
        ("[engine.num_bindings for _ in range(2) if not hasattr(trt, 'volume')]", "possible"),
        ("with contextlib.suppress(AttributeError):\n    engine.num_bindings", "possible"),
        ("try:\n    engine.num_bindings\nexcept Exception:\n    pass", "sure"),
        ("match engine:\n    case None: pass\n    case _: engine.num_bindings", "sure"),
        ("while True:\n    engine.num_bindings\n    break", "sure"),
        ("async def f():\n    async with engine as e:\n        return e.num_bindings", "sure"),
        ("f = lambda e=engine: e.num_bindings", "sure"),
        ("def f(e=engine): return e.num_bindings", "sure"),
        ("(lambda *a: a[0].num_bindings)(engine)", "sure"),
        ("def f(**k): return k['e'].num_bindings\nf(e=engine)", "sure"),
        ("def f(*a): return a[0].num_bindings\nf(*[engine])", "sure"),
        ("a, *b = 1, engine\nb[0].num_bindings", "sure"),
        ("import types\nn = types.SimpleNamespace(e=engine)\nn.e.num_bindings", "sure"),
        ("class A:\n    e = engine\nA().e.num_bindings", "sure"),
        ("class A:\n    def __enter__(self): return engine\nwith A() as e: e.num_bindings", "sure"),
        ("class A:\n    def __getitem__(self, i): return engine\nA()[0].num_bindings", "sure"),
        ("def f():\n    global g\n    g = engine\ndef h(): return g.num_bindings", "sure"),
        ("import pathlib\ndef f(e: pathlib.Path | trt.ICudaEngine): e.num_bindings", "sure"),
        ("import onnx\ndef f(e: onnx.ModelProto | trt.ICudaEngine): e.num_bindings", "possible"),
        ("def g():\n    yield engine\nfor e in g(): e.num_bindings", "sure"),
        ("from typing import cast\ncast(trt.ICudaEngine, 1).num_bindings", "sure"),
        ("class A(trt.ICudaEngine):\n    def f(self): return self.num_bindings", "sure"),
        ("class A(trt.ICudaEngine):\n    def f(self): return super().num_bindings", "sure"),
    ],
)
def test_ways_to_an_engine(text: str, certainty: str) -> None:
    found = scan(f"{ENGINE}import contextlib\n{text}\n")
    assert [use.certainty.value for use in found.uses if use.change.name == "ICudaEngine.num_bindings"] == [
        certainty
    ]


@pytest.mark.parametrize(
    "text",
    [
        "engine = 3\nengine.num_bindings",
        "def f(engine: int): return engine.num_bindings",
        "import onnx\ndef f(engine: onnx.ModelProto): return engine.num_bindings",
        "class A:\n    num_bindings = 1\n    def f(self): return self.num_bindings",
        "def f(data): return data.name, data.shape, data.size",
        "engine.num_io_tensors",
        "if isinstance(engine, str):\n    engine.num_bindings",
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nargs.max_batch_size",
    ],
)
def test_no_use(text: str) -> None:
    named = [use.change.name for use in scan(f"{ENGINE}{text}\n").uses]
    assert not named


@pytest.mark.parametrize("key", ["'x'", "name", "engine.get_tensor_name(0)"])
def test_indexing_by_name_is_gone(key: str) -> None:
    text = f"{ENGINE}for name in engine:\n    engine[{key}]\n"
    assert (4, "sure", "ICudaEngine.__getitem__") in told(scan(text))
    assert not told(scan(text.replace(key, "0")))


def test_a_use_that_only_became_read_only() -> None:
    text = f"{ENGINE}c = engine.create_execution_context()\nprint(c.active_optimization_profile)\n"
    assert not told(scan(text))
    assert told(scan(text + "c.active_optimization_profile = 1\n"))


def test_helper_for_anything_says_nothing_of_its_arguments() -> None:
    things = "engine, trt.Logger(), trt.Builder(trt.Logger()), A(), B(), C(), f"
    classes = "class A: pass\nclass B: pass\nclass C: pass\n"
    text = f"{ENGINE}{classes}def f(x): return len(x)\nfor each in ({things}):\n"
    assert not told(scan(f"{text}    f(each)\n"))


def test_what_a_helper_for_anything_gives_is_not_sure() -> None:
    made = "b = trt.Builder(trt.Logger())\nthings = [engine, b, trt.Logger(), b.create_network()]\n"
    more = "things += [b.create_builder_config(), trt.Runtime(trt.Logger())]\n"
    same = "def same(x): return x\nfor each in things: same(each)\nsame(1).num_bindings\n"
    assert told(scan(f"{ENGINE}{made}{more}{same}")) == [(8, "possible", "ICudaEngine.num_bindings")]


def test_cells_of_a_notebook_have_their_own_lines(whole: Scan) -> None:
    uses = [use for use in whole.uses if use.file == "notebooks/walk.ipynb"]
    assert all(use.cell for use in uses)
    assert "engine.num_bindings" in next(use for use in uses if use.cell == 5 and use.line == 1).text


def shown(use: ApiUse) -> str:
    return f"{use.line} {use.change.name}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trtexec --fp16 \\\n  --explicitBatch", ["2 trtexec --explicitBatch"]),
        ("F='--explicitBatch'\nF=\"$F --fp16\"\ntrtexec $F", ["1 trtexec --explicitBatch"]),
        ("A=(--fp16)\nA+=(--explicitBatch)\ntrtexec ${A[@]}", ["2 trtexec --explicitBatch"]),
        ("trtexec ${X:---explicitBatch}", ["1 trtexec --explicitBatch"]),
        (
            "sudo env A=1 timeout 5 ./bin/trtexec --explicitBatch >/dev/null 2>&1",
            ["1 trtexec --explicitBatch"],
        ),
        ("a=`trtexec --explicitBatch`", ["1 trtexec --explicitBatch"]),
        ("docker run img bash -c 'cd /x && trtexec --explicitBatch'", ["1 trtexec --explicitBatch"]),
        ("trtexec --fp16 # --explicitBatch", []),
        ("trtexec --fp16; other --explicitBatch", []),
        ("trtexec --fp16 | tee --explicitBatch", []),
        ("printf 'trtexec --explicitBatch'", []),
        ("echo trtexec --explicitBatch", []),
        ("cat <<'EOF'\ntrtexec --explicitBatch\nEOF", []),
        ("trtexec --explicitBatches --onnx=--explicitBatch", []),
        ("'unclosed trtexec --explicitBatch", []),
    ],
)
def test_shell(text: str, expected: list[str]) -> None:
    assert [shown(use) for use in scan(text, "run.sh").uses] == expected


@pytest.mark.parametrize(
    ("name", "first", "kind"),
    [
        ("a/Dockerfile.gpu", "", FileKind.DOCKERFILE), ("x.dockerfile", "", FileKind.DOCKERFILE),
        ("Makefile", "", FileKind.MAKEFILE), ("run", "#!/bin/bash\n", FileKind.SHELL),
        ("run", "#!/usr/bin/env python3\n", FileKind.PYTHON), ("run", "text", None), ("a.txt", "", None),
        ("dockerfile.py", "", FileKind.PYTHON), ("A.IPYNB", "", FileKind.NOTEBOOK),
    ],
)  # fmt: skip
def test_kinds_of_files(name: str, first: str, kind: FileKind | None) -> None:
    assert kind_of_file(name, first) is kind


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.py", "import tensorrt as trt\nprint trt\n", "line 2"),
        ("a.py", "def f(:\n", "line 1"),
        ("a.py", "x = " + "(" * 5000 + ")" * 5000, ""),
        ("a.py", "x = " + "-" * 60000 + "1", ""),
        ("a.ipynb", "{", "no JSON"),
        ("a.ipynb", "[]", "no notebook"),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "def f(:"}]}', "cell 1, line 1"),
    ],
)
def test_what_does_not_parse_is_told_and_the_rest_is_read(name: str, text: str, reason: str) -> None:
    found = scan(text, name, other=f"{ENGINE}engine.num_bindings\n")
    assert [file for file, _ in found.unread] == [name]
    assert reason in found.unread[0][1]
    assert [use.file for use in found.uses] == ["other.py"]


@given(st.text(max_size=200), st.sampled_from(["a.sh", "Dockerfile", "Makefile", "a.ipynb", "a.py"]))
def test_any_text_is_read_or_told(text: str, name: str) -> None:
    scan_code({name: text}, SURFACE, CHANGES, BEHAVIOURS, AFTER)


PARTS = ["trtexec", "--explicitBatch", *"\"'\\\n$`(){}<>|&;#= x"]


@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_any_shell_ends(parts: list[str]) -> None:
    for name in ("a.sh", "Dockerfile", "Makefile"):
        scan_code({name: "".join(parts)}, SURFACE, CHANGES, BEHAVIOURS, AFTER)
