"""The probe reads a module's surface: from pybind11's docstrings, and after a job's last cell."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bench.surfaces import PYTHON, read_bindings

from tests.probe.jobs import PROBE, Job, Step
from tests.probe.pythons import find_pythons
from trtmatrix.api.section import find_surface
from trtprobe.surface import read_surface

SOURCE = '''
__version__ = "9.9.9"
import os
attr = "left behind"

class Kind:
    """A kind.

Members:

  A : The first.
    [DEPRECATED] Deprecated in TensorRT 9.1. Use B.

  B : The second ([DEPRECATED] is its friend)
    """
Kind.A, Kind.B = Kind(), Kind()
first = Kind.A

class Base:
    """A base.

    :ivar size: :class:`int` The size.
    :ivar old: :class:`int` [DEPRECATED] Not any more.
    """
    class Inner:
        pass
    def __init__(self): "__init__(self: fake.fake.Base, kind: fake.fake.Kind = <Kind.A: 0>) -> None"
    def __len__(self): "__len__(self: fake.fake.Base) -> int"
    def __eq__(self, other): "not of interest"
    def get(self): """get(*args, **kwargs)
Overloaded function.

1. get(self: fake.fake.Base, index: int) -> fake.fake.Kind

2. get(self: fake.fake.Base, where: List[Tuple[int, bool]], like: object = <object object at 0x7f00>) -> None


    Gets it.

    Deprecated, use take instead.
"""
    def _hidden(self): pass
    size = property(lambda self: 1, lambda self, x: None)
    old = property(lambda self: 1)
Base.size.fget.__doc__ = "(arg0: fake.fake.Base) -> fake.fake.Kind\\n"
Base.old.fget.__doc__ = "(self: fake.fake.Base) -> int\\n"

class Derived(Base):
    pass
Alias = Derived

def volume(iterable):
    """Computes it."""
'''


def fake() -> ModuleType:
    module = ModuleType("fake")
    exec(SOURCE, vars(module))  # noqa: S102 - the text above
    for value in vars(module).values():
        if isinstance(value, type):
            value.__module__ = "fake.fake"
    vars(module)["Base"].Inner.__module__ = "fake.fake"
    return module


def test_a_surface_is_what_the_docstrings_say() -> None:
    surface = read_surface(fake())
    assert surface["version"] == "9.9.9"
    assert set(surface["classes"]) == {"Kind", "Base", "Base.Inner", "Derived"}
    assert surface["names"] == {
        "first": {"kind": "value", "returns": "Kind"},
        "Alias": {"kind": "class", "returns": "Derived"},
        "volume": {"kind": "function", "signatures": ["(iterable)"]},
    }
    assert surface["classes"]["Derived"] == {"bases": ["Base"]}
    members: dict[str, Any] = surface["classes"]["Base"]["members"]
    assert members == {
        "Inner": {"kind": "class", "returns": "Base.Inner"},
        "__init__": {
            "kind": "method", "signatures": ["(kind: Kind = <Kind.A: 0>) -> None"], "returns": "None",
        },
        "__len__": {"kind": "method", "signatures": ["() -> int"], "returns": "int"},
        "get": {
            "kind": "method", "returns": "Kind", "deprecated": "Deprecated, use take instead.",
            "signatures": [
                "(index: int) -> Kind",
                "(where: List[Tuple[int, bool]], like: object = ...) -> None",
            ],
        },
        "size": {"kind": "property", "returns": "Kind", "settable": True},
        "old": {"kind": "property", "returns": "int", "deprecated": "[DEPRECATED] Not any more."},
    }  # fmt: skip
    kind = surface["classes"]["Kind"]["members"]
    assert kind["A"]["deprecated"] == "[DEPRECATED] Deprecated in TensorRT 9.1. Use B."
    assert "deprecated" not in kind["B"]


def test_it_needs_no_numpy(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('there is none')")
    (tmp_path / "bindings.py").write_text("__version__ = '1.2.3'\nclass Builder: pass")
    command = [sys.executable, "-B", str(PROBE), "surface", "bindings"]
    said = subprocess.run(command, check=True, env={"PYTHONPATH": str(tmp_path)}, capture_output=True).stdout
    assert list(json.loads(said)["classes"]) == ["Builder"]


def test_the_supervisor_leaves_a_surface_where_asked_to(python: Path, driver: Path, tmp_path: Path) -> None:
    """Under each Python; the stand-in for TensorRT is no pybind11 module, and is read all the same."""
    job = Job(tmp_path, [Step(does="pass")], surface="tensorrt")
    assert job.run(python, driver) == 0, job.log()
    assert job.record()["ended"] == "ran"
    surface = json.loads((job.out / "surface.json").read_text())
    assert (surface["version"], "Builder" in surface["classes"]) == ("10.7.0", True)


@pytest.mark.usefixtures("driver")  # which fails or is left out where nothing can be compiled
@pytest.mark.parametrize("requirement", ["tensorrt-bindings==8.6.1", "tensorrt-cu12-bindings==11.4.0.106"])
def test_nvidia_s_bindings_are_read_as_packaged(requirement: str, request: pytest.FixtureRequest) -> None:
    if PYTHON not in find_pythons():
        if PYTHON in request.config.getoption("--require-pythons").split(","):
            pytest.fail(f"Python {PYTHON} was not found: the bindings are for it")
        pytest.skip(f"no Python {PYTHON}")
    read = read_bindings(requirement)
    packaged = find_surface(requirement.partition("==")[2])
    assert packaged is not None
    assert replace(packaged, origin=replace(packaged.origin, extracted=read.origin.extracted)) == read
