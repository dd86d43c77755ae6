"""Takes private text out of a text: known values of a host, and what looks private anywhere. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Private(str, Enum):
    """Kinds of private text."""

    USER = "user name"
    HOST = "host name"
    HOME = "home path"
    WORKSPACE = "workspace path"
    ADDRESS = "IP address"
    MAC = "MAC address"
    UUID = "UUID"
    SERIAL = "serial number"
    TOKEN = "token, key or password"
    EMAIL = "e-mail address"
    VARIABLE = "environment value"


PLACEHOLDERS: Mapping[Private, str] = {
    Private.USER: "<user>", Private.HOST: "<host>", Private.HOME: "<home>", Private.WORKSPACE: "<workspace>",
    Private.ADDRESS: "<ip>", Private.MAC: "<mac>", Private.UUID: "<gpu-uuid>", Private.SERIAL: "<serial>",
    Private.TOKEN: "<secret>", Private.EMAIL: "<email>", Private.VARIABLE: "<environment>",
}  # fmt: skip
"""What stands in a text instead."""


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Values that are known to be private on a host.

    ``domains``: endings of host names (``corp.example``). ``tokens``: passwords and keys, ``values``: of other
    environment variables. ``words``: those of this program's own text (lower case): a user or host whose name
    is one of them is taken out where it can be nothing else (of paths, beside ``@``). ``versions``: of four
    numbers, which look like addresses. ``keep``: texts that are never touched, such as an image's name.
    """

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    serials: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    words: frozenset[str] = field(default=frozenset(), repr=False)
    versions: frozenset[str] = frozenset()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A text without its private parts, and how many of each kind were taken out."""

    text: str
    counts: Mapping[Private, int] = field(default_factory=dict)


def redact(text: str, secrets: Secrets) -> Redacted:
    """Put a placeholder in the place of each private part of a plain text.

    What it returns, it leaves alone when given again.
    """
    raise NotImplementedError


def redact_json(text: str, secrets: Secrets) -> Redacted:
    """The same for JSON, which stays JSON: strings are decoded before they are looked at."""
    raise NotImplementedError


def redact_code(text: str, secrets: Secrets) -> Redacted:
    """The same for Python source: names of users and hosts are looked for in comments and strings alone."""
    raise NotImplementedError
