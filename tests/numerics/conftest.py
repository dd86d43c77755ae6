"""What the repros of a module of tests remember goes after them."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the caches of the repro that the tests call REPRO, or of all in REPROS."""
    yield
    for repro in getattr(request.module, "REPROS", {"": getattr(request.module, "REPRO", None)}).values():
        for value in vars(repro).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
