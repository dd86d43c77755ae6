"""Keeps the unit tests from starting containers or installing anything by accident."""

import signal
import subprocess
import venv
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from hypothesis import Phase, settings

# Shrinking a failure of a whole table takes minutes: the seed that is printed brings it back.
settings.register_profile(
    "unit", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
settings.load_profile("unit")

FORBIDDEN = ("pip", "uv", "docker", "podman")
RESOLVING, READING = ["uv", "pip", "compile"], ["pip", "config", "list"]
CONNECT = docker.from_env


class RealWorldTouched(BaseException):
    """A unit test reached for a real container engine or package index; no handler swallows it."""


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise RealWorldTouched(f"a unit test may not do this: {args} {kwargs}")


def _connect(environment: dict[str, str] | None = None, **how: Any) -> docker.DockerClient:
    """Connect to a stand-in's socket (``engines.serving``), and to no engine of this host."""
    address = (environment or {}).get("DOCKER_HOST", "")
    if not address.startswith("unix:///") or "/run/" in address:
        _refuse(address)
    return CONNECT(environment=environment, **how)


@pytest.fixture(autouse=True)
def _no_real_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make real containers, package installs and new environments raise."""
    for name in ("DockerClient", "APIClient"):
        monkeypatch.setattr(docker, name, _refuse)
    monkeypatch.setattr(docker, "from_env", _connect)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    monkeypatch.setattr(venv, "create", _refuse)
    start = subprocess.Popen.__init__

    def guarded(self: subprocess.Popen[Any], command: Any, *args: Any, **kwargs: Any) -> None:
        words = command.split() if isinstance(command, str) else [str(word) for word in command]
        installs_nothing = words[2:] == READING or (words[2:5] == RESOLVING and "--offline" in words)
        if not installs_nothing and any(word.rpartition("/")[2] in FORBIDDEN for word in words):
            self.returncode = 1
            _refuse(command)
        start(self, command, *args, **kwargs)

    monkeypatch.setattr(subprocess.Popen, "__init__", guarded)


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Put back the handlers that the command line installs, and what an interrupted run no longer hears."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
