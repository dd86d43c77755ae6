"""The repro that a module of tests is about."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from trtprobe.cell import load_repro


@pytest.fixture(scope="module")
def repro(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Load the file that the tests call REPRO; what it remembers goes after them."""
    module = load_repro(request.module.REPRO)
    yield module
    for value in vars(module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
