"""``--offline``: no connection is opened, by this process or by those that it starts for its own work."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

from trtmatrix.common.errors import MachineryError

ENVIRONMENT = "TRTMATRIX_OFFLINE"  # set for the processes that this one starts: those of ours keep to it too
REMEDY = "on a host with a network: nox -s pack -- --trt VERSION --to DIR; here: sh DIR/unpack"
"""What brings here what is not here."""


def is_offline() -> bool:
    """Whether no connection may be opened."""
    return _Guard.active


def need_network(what: str) -> None:
    """Raise :class:`MachineryError` where no network may be used; ``what`` is the subject of its sentence."""
    if _Guard.active:
        raise MachineryError(f"--offline: {what} needs a network, and no connection is opened\n  {REMEDY}")


@contextlib.contextmanager
def without_network() -> Iterator[None]:
    """Refuse every connection but those within this host, until the end of the block.

    Sockets are refused by Python's own audit hook, which stays, and sleeps outside of the block.
    """
    refuse_connections()
    os.environ[ENVIRONMENT] = "1"
    try:
        yield
    finally:
        _Guard.active = False
        os.environ.pop(ENVIRONMENT)


def refuse_connections() -> None:
    """Refuse them from now on."""
    if not _Guard.hooked:
        sys.addaudithook(_refuse)
    _Guard.active = _Guard.hooked = True


class _Guard:
    active = False
    hooked = False


def _refuse(event: str, args: tuple[object, ...]) -> None:
    """Refuse sockets and names of the network; those of this host itself are of another family."""
    match event, args:
        case "socket.__new__", (_, socket.AF_INET | socket.AF_INET6, *_):
            need_network("what was to be done")
        case "socket.getaddrinfo" | "socket.gethostbyname" | "socket.gethostbyaddr", (host, *_):
            need_network(f"{host}")
