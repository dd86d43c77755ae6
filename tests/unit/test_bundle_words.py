"""Words of an issue that depend on where the failure was seen and on what was counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failures import EACH, ONNXRUNTIME

from trtmatrix.core.bundle.facts import ChangeLine, VersionLine
from trtmatrix.core.bundle.issue_parts import changes_table
from trtmatrix.core.bundle.render_issue import render_issue
from trtmatrix.core.bundle.run_script import render_reproduce
from trtmatrix.core.bundle.script_check import is_rendered
from trtmatrix.core.model import Product

BARE = replace(ONNXRUNTIME, image=None, environment=replace(ONNXRUNTIME.environment, os="", machine="x86_64"))


def test_outside_of_containers_no_image_is_spoken_of() -> None:
    text = render_issue(BARE)
    assert "Operating System: not recorded, x86\\_64" in text.replace("x86_64", "x86\\_64")
    assert "outside of containers as it was seen" in text
    assert "same container image" not in text
    assert "same container image" in render_issue(ONNXRUNTIME)
    assert "pip install onnxruntime==1.31.1 numpy" in render_reproduce(BARE)


def test_one_version_is_one_version() -> None:
    line = VersionLine(version="onnxruntime-1.31.1")
    assert "This case at 1 version<" in render_issue(replace(ONNXRUNTIME, versions=(line,)))
    assert "This case at 2 versions<" in render_issue(replace(ONNXRUNTIME, versions=(line, line)))


def test_a_column_that_is_empty_throughout_is_not_shown() -> None:
    line = ChangeLine(change="FP32", fails=True, figure="1")
    assert "builds" not in changes_table([line])
    assert "| 3 |" in changes_table([line, replace(line, builds=3)])


@pytest.mark.parametrize("name", [*EACH])
def test_each_script_is_known_as_ones_own_and_a_changed_one_is_not(name: str) -> None:
    script = render_reproduce(EACH[name])
    product = EACH[name].product
    assert is_rendered(script, product)
    assert not is_rendered(script.replace("making=1\n", "making=1; touch x\n"), product)
    assert not is_rendered(script + "touch x\n", product)


def test_a_script_of_no_container_is_known_too() -> None:
    assert is_rendered(render_reproduce(BARE), Product.ONNXRUNTIME)
    assert not is_rendered(render_reproduce(BARE), Product.TENSORRT)
