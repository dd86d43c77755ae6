"""Versions that no other test names, and the containers that were started of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import docker
from projects import Column

from tests.models import images

RIGHT, WRONG = (f"onnxruntime-1.31.{1000 + 2 * os.getpid() + n}" for n in range(2))


def columns(wrong: str = images.DEFECTIVE) -> tuple[Column, ...]:
    """Return a matrix of two versions: one is right, the other one runs in an image with a defect."""
    return (RIGHT, images.CURRENT, images.CURRENT_VERSION), (WRONG, wrong, images.CURRENT_VERSION)


@contextmanager
def count_starts() -> Iterator[list[str]]:
    """Fill a list, on the way out, with the version of each container that was started meanwhile."""
    started: list[str] = []
    before = time.time_ns()
    yield started
    events = docker.from_env().events(
        since=before // 10**9, until=int(time.time()) + 1, filters={"event": "start", "type": "container"},
        decode=True,
    )  # fmt: skip
    names = [str(e["Actor"]["Attributes"].get("name", "")) for e in events if e["timeNano"] >= before]
    started += [version for name in names for version in (RIGHT, WRONG) if f"-{version}-cpu-" in name]


def left_over() -> list[str]:
    """Return the containers of these versions that are still there."""
    found = docker.from_env().containers.list(all=True, ignore_removed=True)
    return [str(one.name) for one in found if RIGHT in str(one.name) or WRONG in str(one.name)]
