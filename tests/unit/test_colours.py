"""The pages' colours: readable in light and dark, and none that was not looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from trtmatrix.suite.model import Verdict
from trtmatrix.tables.html_colours import DARK, LIGHT, PAIRS, contrast
from trtmatrix.tables.html_filtering import FILTER_STYLE
from trtmatrix.tables.html_matrix import MATRIX_STYLE
from trtmatrix.tables.html_pieces import GLYPHS
from trtmatrix.tables.html_style import make_style
from trtmatrix.upgrade.document import TONES
from trtmatrix.upgrade.report import Change, Decision, Weight

STYLE = make_style(MATRIX_STYLE, FILTER_STYLE)
DECORATION = {"line"}
"""Rules between rows and the like, which tell nothing."""


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)
    assert contrast("#ffffff", "#ffffff") == 1


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_each_pair_has_the_contrast_that_it_needs(colours: Mapping[str, str]) -> None:
    poor = [(f, g, contrast(colours[f], colours[g])) for f, g, least in PAIRS
            if contrast(colours[f], colours[g]) < least]  # fmt: skip
    assert poor == []


def test_both_themes_have_all_colours_and_the_style_no_others() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert set(re.findall(r"var\(--([a-z-]+)\)", STYLE)) == set(LIGHT)
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", STYLE)) == {*LIGHT.values(), *DARK.values()}


def test_each_colour_of_text_or_mark_was_looked_at() -> None:
    used = set(re.findall(r"(?<![-\w])(?:color|fill|stroke|border-left-color): var\(--([a-z-]+)\)", STYLE))
    assert used - DECORATION - {"page"} <= {front for front, _, _ in PAIRS}
    grounds = set(re.findall(r"background: var\(--([a-z-]+)\)", STYLE))
    assert grounds - DECORATION <= {ground for _, ground, _ in PAIRS}


def test_each_word_has_a_tone_and_each_tone_a_sign() -> None:
    assert set(TONES) == {*Decision, *Change, *Weight, *Verdict}
    assert set(TONES.values()) <= set(GLYPHS)
    assert len(set(GLYPHS.values())) == len(GLYPHS)
