"""Imports between scanned files are followed whatever their paths look like."""

from __future__ import annotations

import pytest
from bench.code_corpus import AFTER, corpus_changes

from trtmatrix.core.codescan import scan_code
from trtmatrix.core.codescan.imports import Paths

SURFACE, CHANGES, BEHAVIOURS = corpus_changes()
MADE = "engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')"


@pytest.mark.parametrize("root", ["", "/", "/a/b/", "src/", "x/y/"])
def test_an_engine_from_another_file(root: str) -> None:
    files = {
        f"{root}load.py": f"import tensorrt as trt\n{MADE}\n",
        f"{root}use.py": "from load import engine\nengine.num_bindings\n",
    }
    found = scan_code(files, SURFACE, CHANGES, BEHAVIOURS, AFTER)
    assert [use.change.name for use in found.uses] == ["ICudaEngine.num_bindings"]


@pytest.mark.parametrize(
    ("dotted", "level", "importer", "expected"),
    [
        ("a.b", 0, "main.py", "a/b.py"),
        ("b", 1, "a/c.py", "a/b.py"),
        ("", 1, "a/c.py", "a/__init__.py"),
        ("d", 2, "a/e/f.py", "a/d.py"),
        ("a", 0, "main.py", "a/__init__.py"),
        ("lib", 0, "main.py", "src/lib.py"),
        ("b", 0, "a/c.py", None),  # a is a package: its files are no modules of their own
        ("numpy", 0, "main.py", None),
    ],
)
def test_what_an_import_names(dotted: str, level: int, importer: str, expected: str | None) -> None:
    files = ["main.py", "a/__init__.py", "a/b.py", "a/c.py", "a/d.py", "a/e/f.py", "src/lib.py"]
    assert Paths(files).resolve(dotted, level, importer) == expected
