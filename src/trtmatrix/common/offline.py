"""``--offline``: no connection is opened, by this process or by those that it starts for its own work."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

from trtmatrix.common.errors import MachineryError

ENVIRONMENT = "TRTMATRIX_OFFLINE"
"""Set for the processes that this one starts: those of ours keep to it too."""
REMEDY = "on a host with a network: nox -s pack -- --trt VERSION --to DIR; here: sh DIR/unpack"
"""What brings here what is not here."""


class OfflineError(MachineryError):
    """Something needs a connection, and ``--offline`` opens none."""


def is_offline() -> bool:
    """Whether no connection may be opened."""
    return _Guard.active


def need_network(what: str) -> None:
    """Raise :class:`OfflineError` where no network may be used; ``what`` is the subject of its sentence."""
    if _Guard.active:
        raise OfflineError(f"--offline: {what} needs a network, and no connection is opened\n  {REMEDY}")


def trouble_of(address: str) -> str:
    """Return why an engine's address may not be used offline, or nothing."""
    if address.startswith(("unix://", "/")):
        return ""
    return (
        f"--offline: DOCKER_HOST is {address}, which is reached over the network: unset it, or name a socket "
        "of this host, such as unix:///var/run/docker.sock"
    )


@contextlib.contextmanager
def without_network() -> Iterator[None]:
    """Refuse every connection but those within this host, until the end of the block.

    What gets as far as a socket is refused by Python's own audit hook, which cannot be taken out again: it
    sleeps outside of the block.
    """
    before = os.environ.get(ENVIRONMENT)
    refuse_connections()
    os.environ[ENVIRONMENT] = "1"
    try:
        yield
    finally:
        _Guard.active = False
        if before is None:
            del os.environ[ENVIRONMENT]


def refuse_connections() -> None:
    """Refuse them from now on."""
    if not _Guard.hooked:
        sys.addaudithook(_refuse)
        _Guard.hooked = True
    _Guard.active = True


class _Guard:
    active = False
    hooked = False


def _refuse(event: str, args: tuple[object, ...]) -> None:
    """Refuse sockets, addresses and names of the network; those of this host itself have no tuple."""
    if not _Guard.active:
        return
    match event, args:
        case "socket.__new__", (_, socket.AF_INET | socket.AF_INET6, *_):
            host = "the network"
        case ("socket.connect" | "socket.sendto", (_, (host, *_), *_)) | (
            "socket.getaddrinfo" | "socket.gethostbyname" | "socket.gethostbyaddr", (host, *_)
        ):  # fmt: skip
            pass
        case _:
            return
    said = f"--offline: {host} was to be reached, and was not: no connection is opened"
    raise OfflineError(f"{said}\n  {REMEDY}")
