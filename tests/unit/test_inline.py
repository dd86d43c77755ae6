"""One script of a repro and what it reaches: nothing that is missing, nothing that is not needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from trtmatrix.core.inline.edits import CUTS, shorten
from trtmatrix.core.inline.prune import UNKNOWN, evaluate, prune
from trtmatrix.core.inline.reach import Reached
from trtmatrix.core.inline.script import make_script
from trtmatrix.core.inline.source import InlineError, read_module
from trtmatrix.core.inline.weave import name_symbols, tidy, write_imports, write_module
from trtmatrix.core.model import Case, Product
from trtmatrix.effects.inline_sources import read_sources
from trtmatrix.effects.repro_files import LoadedRepro, read_repros

ROOT = Path(__file__).resolve().parents[2]
REPROS = read_repros(ROOT / "repros")


def expected_of(loaded: LoadedRepro, case: Case) -> dict[str, Any]:
    """What of expected.json a script is written from."""
    return {
        "cell": f"{loaded.repro.id}/{case.id}@10.7.0#l4", "title": loaded.repro.title, "verdict": "FAIL",
        "reason": 'c = 1 of "lost-scale" \\', "repro_file": loaded.file.name, "params": dict(case.params),
        "needs": sorted(case.needs), "builds": case.builds, "processes": case.processes, "seconds": 300.0,
    }  # fmt: skip


def script_of(loaded: LoadedRepro, case: Case, product: Product = Product.TENSORRT) -> str:
    source = loaded.file.read_text(encoding="utf-8")
    return make_script(source, read_sources(), product, expected_of(loaded, case))


def every_kind() -> Iterator[Any]:
    """Each repro, the first case of each row, each product that it is for."""
    for loaded in REPROS:
        rows: dict[object, Case] = {}
        for case in loaded.repro.cases:
            row = (case.id.partition("-")[0], case.params.get("buffers"), case.control, case.products)
            rows.setdefault(row, case)
        for case in rows.values():
            products = sorted(case.products) if case is loaded.repro.cases[0] else [Product.TENSORRT]
            for product in products:
                yield pytest.param(loaded, case, product, id=f"{loaded.repro.id}/{case.id}-{product.value}")


@pytest.mark.parametrize(("loaded", "case", "product"), [*every_kind()])
def test_every_script_is_whole_and_runs_from_python_3_8(
    loaded: LoadedRepro, case: Case, product: Product
) -> None:
    text = script_of(loaded, case, product)
    tree = ast.parse(text, feature_version=(3, 8))
    script = read_module("script", text)
    reached = Reached(modules={"script": script}, swaps={})
    for name in script.owner:
        reached.add(("script", name))
    reached.attributes |= {name for node in ast.walk(tree) for name in [getattr(node, "name", "")]}
    reached.settle()  # every name that is used is bound: else it says which is not
    used = {name for name, _ in reached.outside} | {"annotations", "sys"}
    assert set(script.imports) <= used, "every import is needed"
    assert script.owner["CASE"][0].first < script.owner["run"][0].first
    mentions = [line for line in text.splitlines() if "trtprobe" in line and not line.startswith("# --- ")]
    assert not mentions
    in_torch = "torch" in case.needs
    assert ("import torch" in text) >= in_torch
    if loaded.repro.id != "flash-attention":
        assert ("import torch" in text) is in_torch, "only where the case's own run needs it"


def test_a_script_holds_what_its_case_reaches_and_no_more() -> None:
    loaded = next(one for one in REPROS if one.repro.id == "mha-tracker")
    cases = {case.id: case for case in loaded.repro.cases}
    plain, native = script_of(loaded, cases["whole-fp32"]), script_of(loaded, cases["native-whole-fp32"])
    for word in ("def prepare", "def emulate", "FACTS", "def add_profile", "class Growing", "def read_onnx"):
        assert word not in plain
    assert ("def in_torch" in plain, "def in_torch" in native) == (False, True)
    assert ("def exported" in plain, "def exported" in native) == (False, True)
    assert "def run_on_device" in script_of(loaded, cases["whole-reused-fp32"])
    assert "def run_on_device" not in plain
    assert len(plain.splitlines()) < 1700


def test_comments_and_docstrings_come_along_with_their_places() -> None:
    loaded = next(one for one in REPROS if one.repro.id == "streams")
    text = script_of(loaded, loaded.repro.cases[1])
    assert "# --- repros/streams.py\n" in text
    assert "# --- trtprobe/cuda.py\n" in text
    assert "EARLY = np.float16(0.5)  # in the input until the producer writes" in text
    assert '    """Whether all are equal; their bits first' in text
    assert text.index("# --- repros/streams.py") < text.index("# --- trtprobe/backends/tensorrt_gpu.py")
    assert text.index("# --- trtprobe/backends/tensorrt_gpu.py") < text.index("# --- trtprobe/measure.py")
    assert text.endswith('if __name__ == "__main__":\n    sys.exit(main(CASE, run, TensorRtBackend))\n')


def test_the_same_case_gives_the_same_script() -> None:
    loaded = REPROS[0]
    assert script_of(loaded, loaded.repro.cases[0]) == script_of(loaded, loaded.repro.cases[0])


def woven(sources: Mapping[str, str], *roots: str) -> str:
    """The text of made up modules ``trtprobe.a`` and ``trtprobe.b``, from roots in a."""
    modules = {f"trtprobe.{name}": read_module(f"trtprobe.{name}", text) for name, text in sources.items()}
    reached = Reached(modules=modules, swaps={})
    for root in roots:
        reached.add(("trtprobe.a", root))
    reached.settle()
    names = name_symbols(reached, ("trtprobe.a",))
    parts = [write_module(reached, name, names) for name in reached.order(("trtprobe.a",), "trtprobe.a")]
    return "\n\n".join([write_imports(reached.outside), *parts]).strip() + "\n"


def run(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(text, found)  # noqa: S102 - what was woven just now
    return found


def test_names_lose_their_modules_and_what_clashes_is_renamed() -> None:
    a = "from trtprobe import b\nfrom trtprobe.b import LIMIT as MOST\n\nLIMIT = 1\n\n\n"
    a += "def root():\n    return LIMIT, MOST, b.LIMIT, b.twice(b.LIMIT), [LIMIT for LIMIT in (7,)]\n"
    b = "import math as m\n\n# why\nLIMIT = 2\n\n\ndef twice(x):\n    y = LIMIT * m.floor(x)\n    return y\n"
    text = woven({"a": a, "b": b + "\n\ndef gone():\n    pass\n"}, "root")
    assert run(text)["root"]() == (1, 2, 2, 4, [7])
    assert "# why\nB_LIMIT = 2" in text
    assert "gone" not in text
    assert text.startswith("import math as m\n")


def test_methods_are_kept_where_their_name_is_read() -> None:
    a = "class A:\n    def __init__(self):\n        self.used()\n\n    # why\n    def used(self):\n"
    a += "        return helper()\n\n    @property\n    def unused(self):\n        return nothing()\n\n\n"
    a += "def helper():\n    return 3\n\n\ndef nothing():\n    pass\n\n\ndef root():\n    return A().used()\n"
    text = woven({"a": a}, "root")
    assert run(text)["root"]() == 3
    assert "    # why\n    def used" in text
    assert "unused" not in text
    assert "nothing" not in text


def test_base_classes_and_defaults_stand_first() -> None:
    a = "from trtprobe.b import Base, late\n\n\nclass A(Base):\n    pass\n\n\n"
    a += "def root():\n    return late()\n\n\ndef other(x: Base = Base()):\n    return A\n"
    text = woven({"a": a, "b": "class Base:\n    pass\n\n\ndef late():\n    return 1\n"}, "root", "other")
    assert run(text)["root"]() == 1
    circle = {"a": "from trtprobe import b\nX = b.Y\n", "b": "from trtprobe import a\nY = a.Z\n"}
    with pytest.raises(InlineError, match="need each other while they are read"):
        woven({"a": circle["a"] + "Z = 1\n", "b": circle["b"]}, "X")


REFUSED = [
    ("from trtprobe.b import *\n\n\ndef root():\n    pass\n", "star imports"),
    ("from . import b\n\n\ndef root():\n    pass\n", "relative"),
    ("def root():\n    return nowhere\n", "nowhere is bound nowhere"),
    ("from trtprobe import b\n\n\ndef root():\n    return b\n", "b is a module: only its names"),
    ("from trtprobe import b\n\n\ndef root(one):\n    return b.one\n", "one is hidden there by a local name"),
    ("from trtprobe import b\n\n\ndef root():\n    return b.two\n", "trtprobe.b has no two"),
    ("from trtprobe import b\n\nb = 1\n\n\ndef root():\n    return b\n", "imported and bound at the top"),
    ("from trtprobe.c import d\n\n\ndef root():\n    return d\n", "there is no source of trtprobe.c"),
    (
        "import os\n\n\ndef root():\n    import sys, trtprobe.b\n    return 1\n",
        "an import of ours and of others",
    ),
    ("def root(:\n", "not valid Python"),
]


@pytest.mark.parametrize(("a", "words"), REFUSED)
def test_what_cannot_be_inlined_is_refused_with_its_place(a: str, words: str) -> None:
    with pytest.raises(InlineError, match=words) as caught:
        woven({"a": a, "b": "one = 1\n"}, "root")
    assert "trtprobe." in str(caught.value)


def test_a_clash_that_no_other_name_cures_is_refused() -> None:
    a = "from trtprobe import b\n\nX = 1\nb_x = B_X = 2\n\n\ndef root():\n    return X, b.X, b_x\n"
    with pytest.raises(InlineError, match="X clashes with"):
        woven({"a": a, "b": "X = 3\n"}, "root")
    with pytest.raises(InlineError, match="imported as two different things"):
        write_imports([("np", "import numpy as np"), ("np", "import nothing as np")])


def test_remarks_for_checkers_and_roles_are_taken_out() -> None:
    assert tidy("x = 1  # noqa: F401\n") == "x = 1\n"
    assert tidy("x = 1  # type: ignore[misc]  # why\n") == "x = 1  # why\n"
    assert tidy('"""See :func:`trtprobe.a.b` and :data:`C`."""') == '"""See b and C."""'


PRUNED = """\
def run(params, files, trt):
    if not params["kind"].startswith("native"):
        return plain(params, trt)
    return other(params)


def plain(params, trt):
    if trt.has_streams and params["size"] in (1, 2):
        y = 1  # kept
    else:
        y = 2
    if params["flag"]:
        y += 1
    return y


def other(params):
    if params["flag"]:
        return 1


def unsure(params):
    if params["flag"]:
        return 1
"""


def pruned(source: str, **params: Any) -> str:
    reached = Reached(modules={"repro": read_module("repro", source)}, swaps={})
    reached.add(("repro", "run"))
    return prune(source, params, Product.TENSORRT, reached)


def test_branches_that_a_case_does_not_take_go() -> None:
    text = pruned(PRUNED, kind="sdpa", size=2, flag=False)
    assert text.startswith("def run(params, files, trt):\n    return plain(params, trt)\n\n\ndef plain")
    assert "def plain(params, trt):\n    y = 1  # kept\n    return y\n" in text
    assert pruned(PRUNED, kind="native-sdpa", size=2, flag=True).count("return plain") == 0
    assert "    y = 2\n    y += 1\n" in pruned(PRUNED, kind="sdpa", size=3, flag=True)
    assert pruned(PRUNED, kind="native", size=2, flag=False).count("pass") == 1, "an empty body"


@pytest.mark.parametrize(
    "change",
    [
        ("return plain(params, trt)", "return plain({**params, 'size': 9}, trt)"),
        ("return plain(params, trt)", "return [plain][0](params, trt)"),
        ("        y = 1  # kept", "        y = params = 1"),
        ("        y = 1  # kept", "        y = params['size'] = 1"),
        ("        y = 1  # kept", "        params.update(size=9)"),
    ],
)
def test_parameters_that_may_be_others_decide_nothing(change: tuple[str, str]) -> None:
    assert "y = 2" in pruned(PRUNED.replace(*change), kind="sdpa", size=2, flag=False)


KNOWN = {"params": {"a": 1, "b": "xy"}, "trt": {"has_streams": True}}
VALUES = [
    ("params['a'] == 1", True), ("params['a'] != 1", False), ("params['b'] in ('xy',)", True),
    ("params['a'] not in [1]", False), ("params['b'].endswith('y')", True), ("not trt.has_streams", False),
    ("params['c']", UNKNOWN), ("other['a']", UNKNOWN), ("f(1)", UNKNOWN), ("params['a'] == other", UNKNOWN),
    ("other and not trt.has_streams", False), ("other or trt.has_streams", True),
    ("other and trt.has_streams", UNKNOWN), ("params['a'].startswith('x')", UNKNOWN), ("params", UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_conditions_are_decided_by_what_is_known(text: str, value: object) -> None:
    assert evaluate(ast.parse(text, mode="eval").body, KNOWN) is value


def test_what_is_to_be_cut_must_be_there_once() -> None:
    sources = read_sources()
    assert len(shorten(sources, frozenset())) == len(sources)
    for cut in CUTS:
        changed = {**sources, cut.module: sources[cut.module].replace(cut.old, "")}
        if cut.old in sources[cut.module]:
            with pytest.raises(InlineError, match="not exactly one"):
                shorten(changed, frozenset())


def test_an_argument_that_is_left_out_is_refused() -> None:
    loaded = next(one for one in REPROS if one.repro.id == "controls")
    text = script_of(loaded, loaded.repro.cases[0])
    build = text[text.index("    def build(") : text.index("Parse an ONNX file")]
    assert "level:" in build
    for word in ("plugins", "keep_fp32", "outputs", "profile", "quantized"):
        assert word not in build
