"""The pages' colours: readable in light and dark, and none that was not looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from trtmatrix.suite.model import Verdict
from trtmatrix.tables.html_page import GLYPHS, make_style, read_template
from trtmatrix.upgrade.document import TONES
from trtmatrix.upgrade.report import Change, Decision, Weight

STYLE = make_style(read_template("matrix.css"))
LIGHT, DARK = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part))
               for part in read_template("colours.css").split("endmacro")[:2])  # fmt: skip

TEXT = 4.5
"""The least contrast of text on its ground (WCAG 2.2, success criterion 1.4.3)."""

SHAPE = 3.0
"""The least contrast of what must be seen to understand or to operate (success criterion 1.4.11)."""

_GROUNDS = ("page", "card", "head")
_TINTS = ("good", "bad", "warn", "unsure")

PAIRS: tuple[tuple[str, str, float], ...] = (
    *(("ink", ground, TEXT) for ground in (*_GROUNDS, "plain-back", *(f"{tint}-back" for tint in _TINTS))),
    *(("soft", ground, TEXT) for ground in _GROUNDS),
    *(("link", ground, TEXT) for ground in (*_GROUNDS, *(f"{tint}-back" for tint in _TINTS))),
    *((tint, f"{tint}-back", TEXT) for tint in _TINTS),
    *((tint, ground, TEXT) for tint in _TINTS for ground in _GROUNDS),
    *(
        (f"mark-{mark}", ground, SHAPE)
        for mark in ("good", "bad", "other", "line")
        for ground in _GROUNDS[:2]
    ),
    ("edge", "page", SHAPE),
    ("edge", "card", SHAPE),
)
"""What stands on what: a foreground, its ground, and the least contrast."""


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_each_pair_has_the_contrast_that_it_needs(colours: Mapping[str, str]) -> None:
    poor = [(f, g, contrast(colours[f], colours[g])) for f, g, least in PAIRS
            if contrast(colours[f], colours[g]) < least]  # fmt: skip
    assert poor == []


def test_both_themes_have_all_colours_and_the_style_no_others() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert set(re.findall(r"var\(--([a-z-]+)\)", STYLE)) == set(LIGHT)
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", STYLE)) == {*LIGHT.values(), *DARK.values()}


def test_each_word_has_a_tone_and_each_tone_a_sign() -> None:
    assert set(TONES) == {*Decision, *Change, *Weight, *Verdict}
    assert set(TONES.values()) <= set(GLYPHS)
    assert len(set(GLYPHS.values())) == len(GLYPHS)
