"""Numbers of things, and times, in words. Pure."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return such as ``1 cell`` and ``2 cells``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return seconds for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
