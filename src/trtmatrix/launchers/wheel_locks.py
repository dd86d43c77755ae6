"""Locks of wheels: requirements files that give each wheel of an image its SHA-256."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trtmatrix.common.errors import ConfigError

LINE = re.compile(r"(?P<wheel>\S+)\s+--hash=sha256:(?P<sha256>[0-9a-f]{64})")
FIRST_USE = "trust on first use"


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A wheel as matrix.yaml names it; ``sha256`` is empty where the lock has none.

    ``source`` is the comment above the lock's line: how the hash is known.
    """

    wheel: str
    sha256: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The package's normalised name."""
        return canonicalize_name(self.wheel.partition("==")[0])

    @property
    def version(self) -> str:
        """The package's version."""
        return self.wheel.partition("==")[2]

    @property
    def line(self) -> str:
        """The pin as pip reads it."""
        return f"{self.wheel} --hash=sha256:{self.sha256}" if self.sha256 else self.wheel


def parse_lock(text: str, wheels: Sequence[str], file: str) -> tuple[Pin, ...]:
    """Return a pin for each wheel of matrix.yaml, with the lock's hash where it has one.

    matrix.yaml decides what is wanted. :class:`ConfigError` lists what the lock has besides, what cannot
    be read, and wheels that name no single version.
    """
    problems = [f"matrix.yaml: {wheel}: write NAME==VERSION" for wheel in wheels if not _is_pinned(wheel)]
    locked: dict[str, Pin] = {}
    for number, line, source in _lines(text):
        match = LINE.fullmatch(line)
        if match is None:
            problems.append(f"{file}:{number}: write NAME==VERSION --hash=sha256:… (found {line[:80]!r})")
        elif match["wheel"] not in wheels:
            problems.append(f"{file}:{number}: {match['wheel']} is not in matrix.yaml: remove this line")
        elif match["wheel"] in locked:
            problems.append(f"{file}:{number}: {match['wheel']} stands twice: remove one")
        else:
            locked[match["wheel"]] = Pin(wheel=match["wheel"], sha256=match["sha256"], source=source)
    if problems:
        raise ConfigError(problems)
    return tuple(locked.get(wheel, Pin(wheel=wheel)) for wheel in wheels)


def _is_pinned(wheel: str) -> bool:
    try:
        requirement = Requirement(wheel)
    except InvalidRequirement:
        return False
    return wheel == f"{requirement.name}{requirement.specifier}" and bool(
        re.fullmatch(r"==[^*,]+", str(requirement.specifier))
    )


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each line that says something, with its number and the comment right above it."""
    comment: list[str] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        if line:
            yield number, line, " ".join(comment)
        else:
            comment = []


def locked_text(pin: Pin) -> str:
    """Return what is added to a lock for a pin, its source above it."""
    return f"\n# {pin.source}\n{pin.line}\n"
