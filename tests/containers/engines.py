"""Where engines differ, as far as the tests here must know; DOCKER_HOST chooses the one that they all use."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import docker

from trtmatrix.launchers.docker_engine import PODMAN, find_address, find_engine, open_client

ENGINE = find_engine(gpu_here=False)
IS_PODMAN = ENGINE.name == PODMAN

COMMAND = ENGINE.command
"""The engine's own command line: what is printed for users, and what reproduce.sh is to be given."""

BY_HAND: Mapping[str, str] = {"DOCKER": COMMAND, "CONTAINER_HOST": find_address()} if IS_PODMAN else {}
"""What that command and reproduce.sh need in the environment to reach the same engine."""

INVENTS_DIGESTS = IS_PODMAN  # whether an image that came from no registry has a manifest's digest nonetheless


@cache
def client() -> docker.DockerClient:
    return open_client(120)


WAITS_ITSELF = IS_PODMAN
"""Whether the engine asks a registry that says 429 again by itself, so that we hear nothing of it."""

REMOVED_BY_HAND = ({"launcher failed"}, {"interrupted", None}, {"launcher failed", None})
"""What becomes of cells whose container is removed; the next cells may get another one."""

KEEPS_LAYERS = not IS_PODMAN
"""Whether an engine has what came before a pull was cut off. Podman 4.3 begins anew."""

TELLS_OUT_OF_MEMORY = not IS_PODMAN
"""Whether an engine knows that the kernel killed a container itself for memory. Podman 4.3 does not."""


def socket_group() -> int:
    return Path(find_address().removeprefix("unix://")).stat().st_gid


def use_by_hand() -> None:
    """Let all that is started from here reach the engine by its own command line."""
    os.environ.update(BY_HAND)
