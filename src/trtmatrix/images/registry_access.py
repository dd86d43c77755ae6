"""What this host has for asking a registry: logins, certificates, insecure hosts; and what may go wrong."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from requests import exceptions
from urllib3.exceptions import NewConnectionError

from trtmatrix.common.errors import shorten
from trtmatrix.launchers.references import Trouble

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What engines speak plain HTTP with unasked. Source: https://docs.docker.com/reference/cli/dockerd/."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user and a password; both empty where there is no login, ``why`` if known."""

    user: str = ""
    password: str = ""
    why: str = ""


def find_login(host: str) -> Login:
    """Return what Docker's configuration has for a host (its credential stores and helpers too)."""
    import docker.auth

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not here is told below, not by a warning
            found = docker.auth.load_config().resolve_authconfig(host) or {}
            entry = {str(key).lower(): str(value or "") for key, value in found.items()}
    except Exception as error:  # noqa: BLE001 - the file may hold anything, and a helper may do anything
        return Login(why=f"the login that Docker has cannot be read: {shorten(str(error))}")
    return Login(user=entry.get("username", ""), password=entry.get("password", ""))


def certificate_folders() -> tuple[Path, ...]:
    """Return where Docker (also rootless) and Podman look for certificates: in folders HOST or HOST:PORT.

    Sources: https://docs.docker.com/engine/security/certificates/ and containers-certs.d(5).
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.path.expanduser("~")) / ".config")  # noqa: PTH111 - may have no home
    own = (home / "containers/certs.d", home / "docker/certs.d")
    return (Path("/etc/docker/certs.d"), *own, Path("/etc/containers/certs.d"))


def trust(context: ssl.SSLContext, netloc: str, folders: Sequence[Path]) -> None:
    """Trust a host's own authorities (``*.crt``) beside the system's, and show it ``NAME.cert``."""
    for file in sorted(file for folder in folders for file in (folder / netloc).glob("*")):
        if file.suffix == ".crt":
            context.load_verify_locations(cafile=file)
        elif file.suffix == ".cert":
            context.load_cert_chain(file, file.with_suffix(".key"))


def is_insecure(host: str, insecure: Sequence[str]) -> bool:
    """Whether a host (with its port) is spoken to in plain HTTP, by Docker's rule; loopback always is.

    ``insecure``: hosts with their ports, and networks, which the host's addresses are looked up for.
    Source: https://docs.docker.com/reference/cli/dockerd/#insecure-registries.
    """
    name = urlsplit(f"//{host}").hostname or host
    if host in insecure or name == "localhost":
        return True
    networks = [ipaddress.ip_network(each, strict=False) for each in {*LOOPBACK, *insecure} if "/" in each]
    addresses = [name]
    if len(networks) > len(LOOPBACK):
        with contextlib.suppress(OSError):
            addresses += [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    with contextlib.suppress(ValueError):  # the name alone is no address
        return any(
            ipaddress.ip_address(address) in network
            for address in reversed(addresses)
            for network in networks
        )
    return False


def explain_error(error: Exception, netloc: str, seconds: tuple[float, float]) -> tuple[Trouble, str]:
    """Return what is wrong with a connection, in words."""
    text = re.sub(r"//[^/\s]*@", "//***@", str(error))  # a proxy's address may have a password in it
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    match error:
        case exceptions.ProxyError():
            inner = str(getattr(reason, "original_error", reason) or text)
            return Trouble.UNREACHABLE, f"the proxy does not help: {shorten(inner.rpartition(': ')[2])}"
        case exceptions.SSLError():
            return Trouble.UNREACHABLE, _explain_tls(text, netloc)
        case exceptions.ConnectTimeout():
            return Trouble.UNREACHABLE, f"no connection within {seconds[0]:g} s"
        case exceptions.ConnectionError() if isinstance(reason, NewConnectionError):
            return Trouble.UNREACHABLE, str(reason).rpartition(": ")[2]
        case exceptions.Timeout() | exceptions.ConnectionError() if "timed out" in text:
            return Trouble.UNREACHABLE, f"nothing came for {seconds[1]:g} s"
        case exceptions.ConnectionError() | exceptions.ChunkedEncodingError():
            return Trouble.UNREACHABLE, "the connection was cut"
        case _ if isinstance(error, exceptions.InvalidProxyURL | TypeError) or re.search(
            "(?i)proxy|socks", text
        ):
            return Trouble.UNREACHABLE, f"the proxy does not help: {shorten(text)}"
        case _:
            return Trouble.BROKEN, shorten(text)


def _explain_tls(text: str, netloc: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        return (
            "it speaks plain HTTP, which is taken from registries alone that the engine has as insecure "
            "(insecure-registries in /etc/docker/daemon.json)"
        )
    if "_ALERT_" in text and "CERTIFICATE" in text:  # it is the other side that is not content
        return f"it wants a client's certificate (client.cert and client.key in /etc/docker/certs.d/{netloc})"
    return (
        f"its certificate is not trusted: {shorten(text.rpartition('] ')[2])} (its authority belongs in "
        f"/etc/docker/certs.d/{netloc}/ca.crt)"
    )
