"""An issue fills upstream's form to the letter, and says what a maintainer asks first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from failures import BUILD, CONTROL, EACH, ONNXRUNTIME, OWN, TORCH
from goldenfile import FOLDER, check_golden
from reportparts import LONG, ODD

from trtmatrix.core.bundle.facts import Failure, Form, VersionLine
from trtmatrix.core.bundle.forms import choose_form, make_title
from trtmatrix.core.bundle.render_issue import render_issue
from trtmatrix.core.markdown import MOST_CHARACTERS
from trtmatrix.core.model import Verdict

GOLDEN = FOLDER / "bundle"


@pytest.mark.parametrize("name", EACH)
def test_sample(name: str) -> None:
    check_golden(f"ISSUE-{name}.md", render_issue(EACH[name]), GOLDEN)
