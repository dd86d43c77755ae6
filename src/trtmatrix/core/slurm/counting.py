"""Numbers of things in words. Pure."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return such as ``1 cell`` and ``2 cells``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
