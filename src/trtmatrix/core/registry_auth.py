"""How a registry says who may ask it and when to ask again: what stands in its headers. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, urlsplit, urlunsplit

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What engines speak plain HTTP with unasked. Source: https://docs.docker.com/reference/cli/dockerd/."""

_SCHEME = re.compile(r"\s*,?\s*([A-Za-z][\w-]*)(?=\s|,|$)(?!\s*=)", re.ASCII)
_PARAMETER = re.compile(r"\s*,?\s*([\w-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]*))", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """One way to prove who asks: ``scheme`` in small letters (``bearer``, ``basic``) and its parameters."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """Return what a ``WWW-Authenticate`` header asks for; what cannot be read ends it.

    Parameters may stand without quotes, as older registries write them.
    Source: https://www.rfc-editor.org/rfc/rfc9110#name-www-authenticate.
    """
    found: list[Challenge] = []
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            quoted = parameter[2]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else parameter[3]
            parameters.setdefault(parameter[1].lower(), value)
        found.append(Challenge(scheme=scheme[1].lower(), parameters=parameters))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """Where a token is to be had, and what is said there."""

    url: str
    parameters: Mapping[str, str]


def token_request(challenge: Challenge, scope: str) -> TokenRequest | None:
    """Return how a token for a scope is asked for; None where the challenge does not say where.

    nvcr.io names no service, and may write a scope of its own into the realm's address: ours takes its place.
    Source: https://distribution.github.io/distribution/spec/auth/token/.
    """
    try:
        realm = urlsplit(challenge.parameters.get("realm", ""))
    except ValueError:
        return None
    if realm.scheme not in {"http", "https"} or not realm.netloc:
        return None
    told = dict(parse_qsl(realm.query))
    service = challenge.parameters.get("service") or told.pop("service", "")
    parameters = {**told, **({"service": service} if service else {}), "scope": scope}
    return TokenRequest(
        url=urlunsplit((realm.scheme, realm.netloc, realm.path, "", "")), parameters=parameters
    )


def is_insecure(host: str, insecure: Sequence[str], addresses: Sequence[str] = ()) -> bool:
    """Whether a host (with its port) is spoken to in plain HTTP, by Docker's rule.

    ``insecure``: hosts with their ports, and networks; ``addresses``: what the host's name stands for.
    Source: https://docs.docker.com/reference/cli/dockerd/#insecure-registries.
    """
    if host in insecure:
        return True
    name = host_name(host)
    own = ["127.0.0.1" if name == "localhost" else name, *addresses]
    networks = [each for each in map(_network, (*LOOPBACK, *insecure)) if each is not None]
    return any(_address_in(address, network) for address in own for network in networks)


def host_name(host: str) -> str:
    """Return a host without its port, and an IPv6 address without its brackets."""
    return urlsplit(f"//{host}").hostname or host


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _network(text: str) -> Network | None:
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address_in(address: str, network: Network) -> bool:
    try:
        return ipaddress.ip_address(address) in network
    except ValueError:
        return False


def parse_retry_after(header: str, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, at least 0; None where it says nothing.

    It names seconds or a date. Source: https://www.rfc-editor.org/rfc/rfc9110#name-retry-after.
    """
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - now).total_seconds())
