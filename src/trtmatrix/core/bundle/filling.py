"""Texts with places such as ``@NAME@`` that are filled once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values into their places; what looks like one inside a value stays. ``KeyError``: unknown."""
    return re.sub("@([A-Z_]+)@", lambda found: values[found[1]], text)
