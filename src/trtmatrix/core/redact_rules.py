"""The rules by which private text is known: of values that are known, and of what looks private. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from trtmatrix.core.privacy import Private, Secrets
from trtmatrix.core.redact_addresses import (
    GUID,
    IPV4,
    IPV6,
    MACS,
    PLAIN_MAC,
    is_private_ipv6,
    private_ipv4,
)
from trtmatrix.core.redact_base import IS, LEFT, PATH, PLACEHOLDER, RIGHT, SLASH, Rule, said
from trtmatrix.core.redact_names import longest_first, name_rules
from trtmatrix.core.redact_places import place_rules
from trtmatrix.core.redact_tokens import token_rules

SERIAL = (
    r"(?i)(?:serials?(?:[ _-]?(?:numbers?|no|num|nr|ids?))?|(?<![a-z])s/n|asset[ _-]?tag|board[ _-]?id"
    r"|machine[ _-]?id|boot[ _-]?id|product[ _-]?id|service[ _-]?tag)"
    r"[\"']?\s{0,40}[:=#]?\s{0,40}[\"']?(?P<v>[A-Za-z0-9][A-Za-z0-9/_-]{5,40})"
)
UUID = r"(?i)(?<![0-9a-f])(?:(?:GPU|MIG|MIG-GPU)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])"
UUID_CUT = r"(?<![\w-])(?:GPU|MIG)-[0-9a-f]{8,32}(?![\w-])"
"""The start of a UUID, which the driver's tools take for the whole."""
UUID_PLAIN = (
    r"(?i)(?<![a-z])uuids?(?:\\?[\"'])?\s{0,40}[:=]?\s{0,40}\[?\\?[\"']?"
    r"(?:GPU-)?(?P<v>[0-9a-f]{32})(?![0-9a-z])"
)
EMAIL = (
    r"(?<![\w.%+-])[A-Za-z0-9_][\w.%+-]{0,63}@(?=[\w-]*[A-Za-z])(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
    r"(?![A-Za-z0-9])"
)
JOB = (
    rf"(?i)(?<![a-z])(?:(?:slurm|array|pbs|lsb)_?)+(?:job|task)_?id{IS}(?P<v>\d{{3,12}})",
    r"(?:Submitted batch job|(?:srun|salloc|sbatch|slurmstepd|scancel)\b[^\n]{0,60}?\b[Jj](?:ob"
    r"|OB)(?: allocation)?|\*\*\* (?:JOB|STEP)) "
    r"(?P<v>\d{3,12})",
    r"\bslurm-(?P<v>\d{3,12}(?:_\d+)?)(?=\.(?:out|err))",
)
"""Numbers of jobs, by which a cluster's people find who ran what."""


@lru_cache(maxsize=16)
def rules_for(secrets: Secrets, script: bool = False) -> tuple[Rule, ...]:
    """Return the rules of a host, those with the first claim first.

    ``script``: of a text that is run, in which ``/root`` is no home.
    """
    return (
        Rule(kind=None, pattern=re.compile(PLACEHOLDER), needs="<"),
        *_literal(None, secrets.keep),
        *_known(secrets),
        *token_rules(),
        *_looks(secrets, script),
        *name_rules(secrets),
    )


def _known(secrets: Secrets) -> Iterator[Rule]:
    """Yield the rules of values that are private wherever they stand."""
    yield from _literal(Private.TOKEN, secrets.tokens)
    yield from _paths(Private.WORKSPACE, (path for path in secrets.workspaces if not _below(path, secrets)))
    yield from _paths(Private.HOME, secrets.homes)
    yield from _literal(Private.VARIABLE, secrets.values)
    yield from _literal(Private.SERIAL, secrets.serials)


def _below(path: str, secrets: Secrets) -> bool:
    """Whether a path is a home itself."""
    return path in secrets.homes


def _literal(kind: Private | None, values: Iterable[str]) -> Iterator[Rule]:
    """Yield the rule of these texts, short ones as whole words alone, numbers as whole figures."""
    words = [_word(value) for value in longest_first(values)]
    if words:
        yield Rule(kind=kind, pattern=re.compile("|".join(words)))


def _word(value: str) -> str:
    if value.isdigit():
        return rf"{LEFT}(?<![\d.]){value}(?!\.?\d){RIGHT}"
    if len(value) >= 12 or not value.isalnum():
        return re.escape(value)
    return f"{LEFT}{re.escape(value)}{RIGHT}"


def _paths(kind: Private, paths: Iterable[str]) -> Iterator[Rule]:
    """Yield the rule of these absolute paths; one of a single folder only where the name ends there."""
    words = []
    for path in longest_first(paths):
        parts = path.strip("/").split("/")
        end = r"(?![\w-])" if len(parts) == 1 else ""
        words.append(SLASH + SLASH.join(map(re.escape, parts)) + end)
    if words:
        yield Rule(kind=kind, pattern=re.compile(f"{PATH}(?:{'|'.join(words)})"))


def _looks(secrets: Secrets, script: bool) -> Iterator[Rule]:
    """Yield the rules of what looks private on any host."""
    yield from place_rules(script=script)
    yield Rule(kind=Private.EMAIL, pattern=re.compile(EMAIL), needs="@", accept=_is_email)
    yield Rule(kind=Private.UUID, pattern=re.compile(UUID), needs="-")
    yield Rule(kind=Private.UUID, pattern=re.compile(UUID_CUT), needs="-")
    yield said(Private.UUID, UUID_PLAIN, words=("uuid",))
    yield said(Private.SERIAL, SERIAL, accept=_is_serial)
    for job in JOB:
        yield said(Private.VARIABLE, job, words=("slurm", "job", "array", "pbs", "lsb"))
    for pattern in MACS:
        yield Rule(kind=Private.MAC, pattern=pattern)
    for pattern in (PLAIN_MAC, GUID):
        yield Rule(kind=Private.MAC, pattern=pattern, group="v")
    yield Rule(kind=Private.ADDRESS, pattern=IPV6, needs=":", accept=is_private_ipv6)
    yield Rule(kind=Private.ADDRESS, pattern=IPV4, needs=".", accept=private_ipv4(secrets.versions))


def _is_email(match: re.Match[str]) -> bool:
    return not match.group().startswith("git@")


def _is_serial(match: re.Match[str]) -> bool:
    return sum(map(str.isdigit, match["v"])) >= 3
