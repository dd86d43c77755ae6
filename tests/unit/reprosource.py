"""The text of a repro file, what becomes of it with changes, and a project of it."""

from pathlib import Path
from typing import Any

import pytest

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.repro_files import parse_repro
from trtmatrix.suite.repros import Repro

SOURCE = """\
FACTS = {
    "title": "a title",
    "upstream": "owner/repo#1",
    "url": "https://example.org/1",
    "summary": "What happens.",
    "figure": {"measure": "sum_abs", "label": "sum"},
    "expectations": [
        {"cases": ["plain"], "versions": "==10.7.0", "verdict": "FAIL", "basis": "reported", "source": "x"},
    ],
    "workarounds": [{"what": "do not", "case": "plain"}],
}


def cases():
    yield {"id": "plain", "params": {"n": 1}, "limits": {"sum_abs": 1.0}}


def prepare(params):
    return {}


def run(params, files, trt):
    return {}
"""
PLAIN: dict[str, Any] = {"id": "plain", "params": {"n": 1}, "limits": {"sum_abs": 1.0}}


def write_project(folder: Path, matrix: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a project with this one repro and go there; its cache is in it, too."""
    (folder / "matrix.yaml").write_text(matrix)
    (folder / "repros").mkdir()
    (folder / "repros" / "plain.py").write_text(SOURCE)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(folder / "cache"))
    return folder


def parse(source: str = SOURCE, *cases: object, name: str = "a_b") -> Repro:
    return parse_repro(source, "r.py", name, cases or (PLAIN,))


def problems_of(source: str = SOURCE, *cases: object, name: str = "a_b") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(source, *cases, name=name)
    return caught.value.problems


def replaced(old: str, new: str) -> str:
    assert SOURCE.count(old) == 1, old
    return SOURCE.replace(old, new)


def with_key(text: str) -> str:
    """FACTS with one more key, on line 10."""
    return replaced('"workarounds"', f'{text}, "workarounds"')


RULE = (
    '"rules": [{"what": "w", "graph": [{"op": ["A"], "attributes": {"keepdims": [%s]}}], "source": "s", '
    '"at": [{"versions": "", "effect": "wrong", "basis": "read"}]}]'
)
TWIN = '"twins": [{"measure": "m", "label": "l", "cases": ["%s"], "reported": {%s}}]'
