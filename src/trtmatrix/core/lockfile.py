"""Reads and writes matrix.lock's text."""

from __future__ import annotations

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.lock import Lock


def parse_matrix_lock(text: str, file: str = "matrix.lock") -> Lock:
    """Read matrix.lock's text; :class:`ConfigError` lists every mistake with line and remedy."""
    del text
    raise ConfigError([f"{file}: cannot be read yet"])
