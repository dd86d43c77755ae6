"""Kinds of private text, what stands in their place, and the values that are known to be private. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
    TOKEN = "token, key or password"  # noqa: S105 - a kind's name
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

    ``domains``: endings of host names (``corp.example``). ``tokens``: passwords and keys; ``values``: what
    other environment variables hold. ``words``: those of this program's own text (lower case): a user or host
    whose name is one of them is taken out where it can be nothing else (of paths, beside ``@``).
    ``versions``: of four numbers, which look like addresses. ``keep``: texts that are never touched, such as
    an image's name.
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


def is_ordinary(name: str, words: frozenset[str]) -> bool:
    """Whether a name cannot be told from ordinary text: a word of the program's own, or very short."""
    return len(name) < 3 or name.lower() in words


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A text without its private parts, and how many of each kind were taken out."""

    text: str
    counts: Mapping[Private, int] = field(default_factory=dict)
