"""A registry without a login, an empty configuration of Docker's, and no proxy but the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.registry import Serving

from tests.registry.registries import serve_registry

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Serve a registry over plain HTTP, open to all; each test has its own repositories in it."""
    with serve_registry(tmp_path_factory.mktemp("plain")) as serving:
        yield serving


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in (*PROXIES, *map(str.upper, PROXIES), "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
