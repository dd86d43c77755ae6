"""The scan of code finds what it must in the corpus and in small pieces, and nothing that it must not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.code_corpus import corpus_changes, corpus_files, expected_uses, found_uses
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.api.compare import compare_surfaces, find_behaviours, find_older
from trtmatrix.api.scan import LARGEST, Scan, read_code, scan_code
from trtmatrix.api.section import read_change_table, read_surfaces
from trtmatrix.api.types import Behaviour, Certainty, ChangeKind

OLD, NEW, CHANGES = corpus_changes()
FILES = corpus_files()
BEHAVIOURS = (
    Behaviour(topic="plans", text="build it again", since="", names=("Runtime.deserialize_cuda_engine",)),
)
TRT = "import tensorrt as trt\n"
ENGINE = f"{TRT}engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')\n"


def scan(text: str, name: str = "code.py", **others: str) -> Scan:
    files = {name: text, **{f"{key}.py": value for key, value in others.items()}}
    return scan_code(files, OLD, NEW, CHANGES)


def told(found: Scan) -> list[tuple[int, str, str]]:
    return [(use.line, use.certainty.value, use.change.name) for use in found.uses]


@pytest.fixture(scope="module")
def whole() -> Scan:
    return scan_code(FILES, OLD, NEW, CHANGES, BEHAVIOURS)


# ---- the corpus ----


@pytest.mark.parametrize("name", FILES)
def test_corpus_file(name: str, whole: Scan) -> None:
    found = [each for each in found_uses(whole.uses) if each.file == name and each.change != "behaviour"]
    assert found == [each for each in expected_uses(FILES) if each.file == name]


def test_possible_uses_say_why_and_a_behaviour_is_told_once_a_report(whole: Scan) -> None:
    assert all(bool(use.why) == (use.certainty is Certainty.POSSIBLE) and use.text for use in whole.uses)
    once = [use for use in whole.uses if use.change.kind is ChangeKind.BEHAVIOUR]
    assert [use.change.name for use in once] == ["plans"]


# ---- TensorRT's objects ----


@pytest.mark.parametrize(
    "text",
    [
        "from helpers import optional_import\ntrt, there = optional_import('tensorrt', '8.5')",
        "import mod\ntrt = mod.lazy_import('tensorrt>=8.5')", "import tensorrt\ntrt = tensorrt.tensorrt",
        "import pytest\ntrt = pytest.importorskip('tensorrt')",
        "class A:\n    import tensorrt as trt\ntrt = A.trt",
    ],
)  # fmt: skip
def test_ways_to_the_bindings(text: str) -> None:
    (*_, last) = told(scan(f"{text}\ntrt.BuilderFlag.STRICT_TYPES\n"))
    assert last[1:] == ("sure", "BuilderFlag.STRICT_TYPES")


@pytest.mark.parametrize(
    ("text", "certainty"),
    [
        ("not hasattr(engine, 'num_io_tensors') and engine.num_bindings", "possible"),
        ("old = not hasattr(engine, 'num_io_tensors')\nold and engine.num_bindings", "possible"),
        ("new = hasattr(engine, 'num_io_tensors')\nnew and engine.num_bindings", "sure"),
        ("with contextlib.suppress(AttributeError):\n    engine.num_bindings", "possible"),
        ("try:\n    engine.num_bindings\nexcept Exception:\n    pass", "sure"),
        ("try:\n    engine.x\nexcept AttributeError:\n    engine.num_bindings", "possible"),
        ("try:\n    engine.num_bindings + engine.num_io_tensors\nexcept Exception:\n    pass", "sure"),
        ("try:\n    engine.set_tensor_address\nexcept Exception:\n    engine.num_bindings", "possible"),
        ("if int(trt.__version__.split('.')[0]) >= 10: raise E\nengine.num_bindings", "possible"),
        ("if own(trt.__version__): raise E\nengine.num_bindings", "sure"),
        ("from importlib.metadata import version\nif version('tensorrt') < '10': engine.num_bindings",
         "possible"),
        ("match engine:\n    case None: pass\n    case _: engine.num_bindings", "sure"),
        ("async def f():\n    async with engine as e:\n        return e.num_bindings", "sure"),
        ("def f(*a): return a[0].num_bindings", "sure"),
        ("class V:\n  def __init__(s, t): s.t = t\nif V(trt.__version__) < V('9'): engine.num_bindings",
         "possible"),
        ("old = False\nif trt.__version__ < '10': old = True\nif old: engine.num_bindings", "possible"),
        ("old, new = trt.__version__ < '10', 1\nif old: engine.num_bindings", "possible"),
        ("def is_old(): return v(trt.__version__)[0] < 10\nif is_old(): engine.num_bindings", "possible"),
    ],
)  # fmt: skip
def test_ways_to_an_engine(text: str, certainty: str) -> None:
    found = scan(f"{ENGINE}import contextlib\n{text}\n")
    named = [use.certainty.value for use in found.uses if use.change.name == "ICudaEngine.num_bindings"]
    assert named == [certainty]


@pytest.mark.parametrize(
    "text",
    [
        "own_engine = list(range(3))\nown_engine.num_bindings", "engine.num_io_tensors",
        "def f(own_engine: int): return own_engine.num_bindings", "import torch\ntorch.UffParser()",
        "class A:\n    num_bindings = 1\n    def f(self): return self.num_bindings",
        "def f(data, conv): return data.name, data.shape, conv.pre_padding, conv.stride",
        "class A:\n    def f(self): self.my_engine = {}\n    def g(self): return self.my_engine['clip']",
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nargs.max_batch_size",
        "import torch\ntorch_engine = torch.load('x')\ntorch_engine.num_bindings",
        "from tensorrt_llm.builder import Builder\nbuilder = Builder()\nbuilder.build_engine(1, 2)",
        "c = engine.create_execution_context()\nprint(c.active_optimization_profile)",  # it became read-only
    ],
)  # fmt: skip
def test_no_use(text: str) -> None:
    assert not told(scan(f"{ENGINE}{text}\n"))


def test_a_test_of_the_version_in_another_file_guards() -> None:
    text = f"from flags import OLD, is_old\nimport flags\n{ENGINE}"
    flags = f"{TRT}OLD = int(trt.__version__.split('.')[0]) < 10\ndef is_old(): return OLD\n"
    for test in ("OLD", "is_old()", "flags.OLD"):
        found = scan(f"{text}if {test}:\n    engine.num_bindings\n", flags=flags)
        assert [use.certainty.value for use in found.uses] == ["possible"], test


@pytest.mark.parametrize("key", ["'x'", "name", "engine.get_tensor_name(0)"])
def test_indexing_by_name_is_gone(key: str) -> None:
    text = f"{ENGINE}for name in engine:\n    engine[{key}]\n"
    assert (4, "sure", "ICudaEngine.__getitem__") in told(scan(text))
    assert not told(scan(text.replace(key, "0")))
    text = f"{TRT}def f(engine): return engine['x']\n"
    assert told(scan(text)) == [(2, "possible", "ICudaEngine.__getitem__")], "it may be something else"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import engine_from_bytes as f\nx = f(b'')\nx.max_batch_size", "ICudaEngine.max_batch_size"),
        ("import EngineFromBytes as F\nx = F(b'')()\nx.max_batch_size", "ICudaEngine.max_batch_size"),
        ("import create_config as f\nf(a).min_timing_iterations", "IBuilderConfig.min_timing_iterations"),
        ("p = trt.UffParser()\np.register_input('x', (1,))", "UffParser.register_input"),
        ("b = trt.Builder(0)\nb.max_workspace_size = 1", "Builder.max_workspace_size"),
        ("with trt.Refitter(1, 2) as r: pass", "Refitter.__enter__"),
        ("b = trt.Builder(0)\nb.fp16_mode = True", "Builder.fp16_mode"),
        ("def f(builder, network): return builder.build_cuda_engine(network)", "Builder.build_cuda_engine"),
        ("def go(b): return b.go(1)\nengine = go(0)\nengine.num_bindings", "ICudaEngine.num_bindings"),
    ],
)  # fmt: skip
def test_what_else_hands_out_objects_and_older_names(text: str, name: str) -> None:
    start = "from polygraphy.backend.trt " if text.startswith("import") else ""
    assert ("sure", name) in [each[1:] for each in told(scan(f"{TRT}{start}{text}\n"))]


# ---- tests of the version ----


@pytest.mark.parametrize(
    ("text", "flips"),
    [
        ("trt.__version__ >= '8.2'", True), ("'8.2' <= trt.__version__", True),
        ("trt.__version__[0] < '8'", True),
        ("trt.__version__ >= '10.10'", True), ("trt.__version__ >= '10.1'", False),
        ("trt.__version__.split('.') < ['9', '1']", True), ("int(trt.__version__[:3])", True),
        ("trt.__version__.startswith('1')", True), ("trt.__version__.startswith('8')", False),
        ("float(trt.__version__[:3]) < 8.2", False), ("int(trt.__version__.split('.')[0]) < 8", False),
        ("tuple(map(int, trt.__version__.split('.')[:2])) < (8, 2)", False),
        ("[int(x) for x in trt.__version__.split('.')][0] < 8", False),
        ("Version(trt.__version__) < Version('8.2')", False),
        ("trt.__version__" + ".replace('.', '..')" * 60 + " < '9'", False),  # it grows without end
    ],
)  # fmt: skip
def test_tests_of_the_version_that_flip(text: str, flips: bool) -> None:
    found = scan(f"from packaging.version import Version\n{TRT}if {text}: pass\n")
    assert told(found) == [(3, "sure", f"version test {text}")] * flips


def test_an_assertion_about_the_version_guards_what_follows() -> None:
    rest = "if x:\n    engine.num_bindings\n"
    major = "major, *_ = map(int, trt.__version__.split('.'))\n"
    found = {
        line: [each for each in told(scan(f"{ENGINE}{major}assert major {line}\n{rest}")) if each[0] == 6]
        for line in ("== 8", ">= 8")
    }
    assert [each[0][1] for each in found.values()] == ["possible", "sure"]


# ---- commands, pins, images, C++ ----


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("trtexec --fp16 \\\n  --explicitBatch", 2), ("A=(--fp16)\nA+=(--explicitBatch)\ntrtexec ${A[@]}", 2),
        ("F='--explicitBatch'\nF=\"$F --fp16\"\ntrtexec $F ${F}", 1), ("a=`trtexec --explicitBatch`", 1),
        ("sudo env A=1 timeout 5 ./bin/trtexec --explicitBatch >/dev/null 2>&1", 1),
        ("docker run img bash -c 'cd /x && trtexec --explicitBatch'", 1),
        ("trtexec --fp16 # --explicitBatch", 0),
        ("trtexec --fp16; other --explicitBatch", 0), ("trtexec --fp16 | tee --explicitBatch", 0),
        ("printf 'trtexec --explicitBatch'", 0), ("trtexec --explicitBatches --onnx=--explicitBatch", 0),
        ("T=/opt/trtexec\ndocker run $OUT --explicitBatch", 0),
    ],
)  # fmt: skip
def test_shell(text: str, line: int) -> None:
    assert [use.line for use in scan(text, "run.sh").uses] == [line] * bool(line)


@pytest.mark.parametrize(
    ("name", "text", "line", "certainty"),
    [
        (".github/workflows/ci.yml", "jobs:\n  - run: trtexec --explicitBatch\n", 2, "sure"),
        ("ci.yml", "script:\n  - |\n    trtexec --onnx=a \\\n      --explicitBatch\n", 4, "sure"),
        ("README.md", "```\ntrtexec --explicitBatch\n```\nA=1 other --explicitBatch\n", 2, "possible"),
        ("a/DockerfileCuda117", "RUN trtexec --explicitBatch\n", 1, "sure"),
        ("x.dockerfile", "RUN trtexec --explicitBatch\n", 1, "sure"),
        ("run", "#!/bin/bash\ntrtexec --explicitBatch\n", 2, "sure"),
        ("Makefile", "TRTEXEC := trtexec\nall:\n\t$(TRTEXEC) --explicitBatch\n", 3, "sure"),
        ("a.py", "import os\nos.system('trtexec --explicitBatch %s' % x)\n", 2, "sure"),
        ("a.py", "cmd = f'{BIN}/trtexec --onnx={x} --explicitBatch'\n", 1, "sure"),
        ("a.py", "run(['trtexec',\n     '--explicitBatch'])\n", 2, "sure"),
        ("a.py", "cmd = ['trtexec']\ncmd += ['--explicitBatch']\n", 2, "possible"),
    ],
)
def test_trtexec_wherever_it_is_called(name: str, text: str, line: int, certainty: str) -> None:
    assert told(scan(text, name)) == [(line, certainty, "trtexec --explicitBatch")]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", "tensorrt==8.6.1\n", "pin tensorrt==8.6.1"),
        ("requirements-gpu.txt", "numpy\ntensorrt-cu12>=8.6,<10\n", "pin tensorrt-cu12>=8.6,<10"),
        ("pyproject.toml", 'dependencies = ["tensorrt<9"]\n', "pin tensorrt<9"),
        ("pyproject.toml", '[tool.poetry]\ntensorrt = "==8.6.1"\n', "pin tensorrt==8.6.1"),
        ("setup.py", "setup(requires=['nvidia-tensorrt==8.4.1'])\n", "pin nvidia-tensorrt==8.4.1"),
        ("setup.cfg", "[options]\ninstall_requires =\n    tensorrt~=8.6\n", "pin tensorrt~=8.6"),
        ("poetry.lock", 'name = "tensorrt"\nversion = "8.6.1"\n', "pin tensorrt==8.6.1"),
        ("uv.lock", '[[package]]\nname = "tensorrt"\nversion = "8.6.1"\n', "pin tensorrt==8.6.1"),
        ("conda-lock.yml", "- name: tensorrt\n  version: 8.6.1\n", "pin tensorrt==8.6.1"),
        ("Pipfile.lock", '"tensorrt": {\n "hashes": [],\n "version": "==8.6.1"\n}', "pin tensorrt==8.6.1"),
        ("Dockerfile", "RUN apt-get install libnvinfer8\n", "pin libnvinfer8"),
        ("a.py", "CODE = 'nvinfer1::DataType::kHALF'  # TensorRT\n", ""),
        ("run.sh", "pip install nvidia-tensorrt\n", "pin nvidia-tensorrt"),
        ("env.yaml", "dependencies:\n  - tensorrt=8.6.1\n", "pin tensorrt=8.6.1"),
        ("run.sh", "pip install 'tensorrt<9'\n", "pin tensorrt<9"),
        ("requirements.txt", "tensorrt==10.8.0.43\n", ""),
        ("requirements.txt", "tensorrt>=8.6\ntensorrt-llm==0.9\n# tensorrt==8.6\n", ""),
        ("Dockerfile", "FROM nvcr.io/nvidia/tensorrt:23.12-py3\n", "image nvcr.io/nvidia/tensorrt:23.12-py3"),
        ("c.yaml", "image: nvcr.io/nvidia/pytorch:22.04-py3\n", "image nvcr.io/nvidia/pytorch:22.04-py3"),
        ("Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.01-py3\n", ""),
    ],
)  # fmt: skip
def test_pins_and_images(name: str, text: str, found: str) -> None:
    uses = scan(text, name).uses
    assert [(use.change.name, use.certainty.value) for use in uses] == ([(found, "sure")] if found else [])


def test_cpp_is_searched_by_name_and_told_what_to_write_instead() -> None:
    instead = {
        "builder->setMaxWorkspaceSize(1);": "set_memory_pool_limit",
        "nvuffparser::createUffParser();": "OnnxParser",
        "engine->destroy();": "delete", "build(EngineCapability::kSAFE_GPU);": "EngineCapability.SAFETY",
        "n = e->getNbBindings();": "num_io_tensors",
    }  # fmt: skip
    surfaces, table = read_surfaces(Path("nowhere")), read_change_table()
    changes = (*compare_surfaces(OLD, NEW, table), *find_older(surfaces.versions.values(), OLD, NEW, table))
    text = "\n".join(['#include "NvInfer.h"', *instead, ""])
    found = scan_code({"a.cpp": text}, OLD, NEW, changes)
    assert [(use.line, use.certainty) for use in found.uses] == [(n, Certainty.POSSIBLE) for n in range(2, 7)]
    for use, words in zip(found.uses, instead.values(), strict=True):
        assert words in use.change.replacement
    assert found.unread[0][0] == "1 C++ file"
    assert not scan(text.replace("NvInfer", "Other"), "a.cpp").uses


def test_from_10_to_11() -> None:
    surfaces, table = read_surfaces(Path("nowhere")), read_change_table()
    before, after = surfaces.versions["10.8.0.43"], surfaces.versions["11.4.0.106"]
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
    os.mkfifo(tmp_path / "pipe.py")
    found = read_code([tmp_path])
    assert found.texts == {f"{tmp_path}/bom.py": TRT, f"{tmp_path}/latin.py": f"{TRT}# caf\ufffd\n"}
    assert [name for name, _ in found.unread] == [f"{tmp_path}/large.py"]
    (tmp_path / "a.txt").write_text("x")
    (_, first), (_, second) = read_code([tmp_path / "a.txt", tmp_path / "missing"]).unread
    assert ["no kind" in first, "No such file" in second] == [True, True]


@given(
    st.text(max_size=200),
    st.sampled_from(["a.sh", "Dockerfile", "a.cpp", "a.ipynb", "a.py", "a.toml", "a.md"]),
)
def test_any_text_is_read_or_told(text: str, name: str) -> None:
    scan_code({name: text}, OLD, NEW, CHANGES)
