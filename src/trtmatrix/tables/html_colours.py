"""The colours of the pages, light and dark, and which of them stand on which."""

from __future__ import annotations

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "page": "#ffffff", "card": "#f6f8fa", "head": "#eaeef2", "line": "#c9d1d9", "edge": "#78828d",
    "ink": "#1b1f24", "soft": "#57606a", "link": "#0550ae",
    "good": "#116329", "good-back": "#dafbe1", "bad": "#a40e26", "bad-back": "#ffe3e1",
    "warn": "#744500", "warn-back": "#fff3c4", "unsure": "#4b3d9e", "unsure-back": "#ece9ff",
    "plain-back": "#eaeef2",
    "mark-good": "#1a7f37", "mark-bad": "#c2182b", "mark-other": "#6e5bd0", "mark-line": "#7d8690",
}  # fmt: skip
"""Name → colour where the reader wants a light page."""

DARK: Mapping[str, str] = {
    "page": "#0f1318", "card": "#171c22", "head": "#222931", "line": "#3a434d", "edge": "#7f8a95",
    "ink": "#e8ecf0", "soft": "#a6b0ba", "link": "#84b9ff",
    "good": "#7ee195", "good-back": "#12331f", "bad": "#ffa8a2", "bad-back": "#4a1519",
    "warn": "#f2c661", "warn-back": "#3d2e06", "unsure": "#c3b6ff", "unsure-back": "#2b2357",
    "plain-back": "#2a323b",
    "mark-good": "#4cc46a", "mark-bad": "#ff7b72", "mark-other": "#a696ff", "mark-line": "#7f8a95",
}  # fmt: skip
"""The same where the reader wants a dark one."""

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
    """Return the contrast ratio of two colours such as ``"#1b1f24"``: 1 to 21.

    Source: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio.
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance; source: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
