"""The rules by which private text is known: of values that are known, and of what looks private. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from trtmatrix.core.privacy import PLACEHOLDERS, Private, Secrets, is_ordinary
from trtmatrix.core.redact_addresses import (
    IPV4,
    IPV6,
    MACS,
    is_private_ipv6,
    private_ipv4,
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is private: ``group`` of a match, where ``accept`` agrees. Earlier rules have the first claim.

    ``kind``: None where it is the contrary, and stays as it is whatever else says. ``needs``: a text without
    this has no match.
    """

    kind: Private | None
    pattern: re.Pattern[str]
    group: str | int = 0
    needs: str = ""
    accept: Callable[[re.Match[str]], bool] | None = None


LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%2[Ff]))"
"""Where a name may start: at no letter's end, but for an escaped line end's."""
RIGHT = r"(?![A-Za-z0-9])"
PATH = r"(?:(?<![A-Za-z0-9_.])|(?<=\\[nrt])|(?<=%2[Ff]))"
"""Where an absolute path may start."""
SLASH = r"(?:/|\\/|%2[Ff])"

PLACEHOLDER = "|".join(map(re.escape, PLACEHOLDERS.values()))

PREFIXED = (
    r"gh[opsur]_[A-Za-z0-9]{16,}", r"github_pat_\w{20,}", r"glpat-[\w-]{16,}", r"hf_[A-Za-z0-9]{16,}",
    r"sk-[A-Za-z0-9_-]{16,}", r"nvapi-[\w-]{16,}", r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}",
    r"xox[abeoprs]-[\w-]{8,}", r"AIza[\w-]{30,}", r"npm_[A-Za-z0-9]{20,}", r"pypi-[\w-]{16,}",
    r"dckr_pat_[\w-]{16,}", r"ya29\.[\w-]{16,}", r"SG\.[\w-]{16,}\.[\w-]{16,}", r"wandb_v1_\w{16,}",
    r"eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",
)  # fmt: skip
"""Tokens that are known by how they start: of GitHub, GitLab, Hugging Face, OpenAI and Anthropic, NVIDIA,
AWS, Slack, Google, npm, PyPI, Docker, SendGrid, Weights & Biases; and JSON Web Tokens."""

_KEY = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_CUT = r"(?<![\w+/=])(?:[\w+/=]{16,}(?:\s|\\n)+){1,200}"
KEY_BLOCK = rf"-----BEGIN {_KEY}.*?(?:-----END {_KEY}|\Z)|{_CUT}-----END {_KEY}"
"""A private key; also one whose start was cut off, as a log's is."""

PASSWORDS = r"passw(?:or)?d|passphrase|passwd|secret"
KEYS = (
    r"token|api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?|private[_-]?key|credentials?|auth[_-]?key"
    r"|session[_-]?id|cookie|secret[_-]?key"
)
_WORTH = r"(?P<v>[^\s\"'<>,;&\\{}()\[\]]{4,})"
NAMED = rf"(?i)(?P<name>{PASSWORDS}|{KEYS})[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?{_WORTH}"
OPTION = rf"(?i)--?(?P<name>{PASSWORDS}|{KEYS}) {_WORTH}"
AUTHORIZATION = (
    r"(?i)authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest|negotiate)\s+)?"
    r"(?P<v>(?!(?:bearer|basic|token|digest|negotiate)\b)[\w.~+/=-]{6,})"
)
SERIAL = (
    r"(?i)(?:serial(?:[ _-]?(?:number|no|num|nr|id))?|(?<![a-z])s/n|asset[ _-]?tag"
    r"|board[ _-]?id|machine[ _-]?id)[\"']?\s{0,40}[:=#]?\s{0,40}[\"']?(?P<v>[A-Za-z0-9][A-Za-z0-9/_-]{5,40})"
)
UUID = r"(?i)(?<![0-9a-f])(?:(?:GPU|MIG|MIG-GPU)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])"
EMAIL = (
    r"(?<![\w.%+-])[A-Za-z0-9_][\w.%+-]{0,63}@(?=[\w-]*[A-Za-z])(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
    r"(?![A-Za-z0-9])"
)
HOME = rf"{PATH}(?:/var|/export|/usr|/mnt)?{SLASH}(?:home|Users){SLASH}(?!<)[A-Za-z0-9_.][\w.+-]*"
WINDOWS = r"(?i)\b[A-Z]:\\{1,2}Users\\{1,2}(?!<)[^\\\s\"'<>]+"
ROOT_HOME = rf"{PATH}/root(?![\w-])"
DIGEST = r"(?i)(?<![0-9a-z])[0-9a-f]{32,}(?![0-9a-z])"

HARMLESS = frozenset({"none", "null", "true", "false", "yes", "no", "unset", "empty", "redacted"})


@lru_cache(maxsize=16)
def rules_for(secrets: Secrets, script: bool = False) -> tuple[Rule, ...]:
    """Return the rules of a host, those with the first claim first.

    ``script``: of a text that is run, in which ``/root`` is no home.
    """
    return (
        Rule(kind=None, pattern=re.compile(PLACEHOLDER), needs="<"),
        *_literal(None, secrets.keep),
        *_known(secrets),
        *_tokens(),
        Rule(kind=None, pattern=re.compile(DIGEST)),
        *_looks(secrets, script),
        *_names(secrets),
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
    """Yield the rule of these texts, short ones as whole words alone."""
    words = [
        re.escape(value) if len(value) >= 12 or not value.isalnum() else f"{LEFT}{re.escape(value)}{RIGHT}"
        for value in _longest_first(values)
    ]
    if words:
        yield Rule(kind=kind, pattern=re.compile("|".join(words)))


def _paths(kind: Private, paths: Iterable[str]) -> Iterator[Rule]:
    """Yield the rule of these absolute paths; one of a single folder only where the name ends there."""
    words = []
    for path in _longest_first(paths):
        parts = path.strip("/").split("/")
        end = r"(?![\w-])" if len(parts) == 1 else ""
        words.append(SLASH + SLASH.join(map(re.escape, parts)) + end)
    if words:
        yield Rule(kind=kind, pattern=re.compile(f"{PATH}(?:{'|'.join(words)})"))


def _longest_first(values: Iterable[str]) -> list[str]:
    return sorted(set(filter(None, values)), key=lambda value: (-len(value), value))


def _tokens() -> Iterator[Rule]:
    """Yield the rules of tokens and passwords that are known by how they look or what they are called."""
    kind = Private.TOKEN
    yield Rule(kind=kind, pattern=re.compile(KEY_BLOCK, re.DOTALL), needs="PRIVATE KEY")
    yield Rule(kind=kind, pattern=re.compile(f"{LEFT}(?:{'|'.join(PREFIXED)})"))
    public = r"(?:ssh|ecdsa)-[\w@.-]{3,40} AAAA[\w+/=]{20,}"
    yield Rule(kind=kind, pattern=re.compile(public), needs=" AAAA")
    in_url = r"(?<=://)(?!git@)[^\s/@\"'<>\[\]]{1,512}(?=@)"
    yield Rule(kind=kind, pattern=re.compile(in_url), needs="://")
    yield Rule(kind=kind, pattern=re.compile(AUTHORIZATION), group="v")
    bearer = r"(?i)\bbearer\s+(?P<v>[\w.~+/=-]{12,})"
    yield Rule(kind=kind, pattern=re.compile(bearer), group="v", accept=_has_digit)
    signed = r"(?i)[?&](?:sig|signature|x-amz-[a-z-]+|key|code)=(?P<v>[^\s\"'<>&]{8,})"
    yield Rule(kind=kind, pattern=re.compile(signed), group="v", needs="=")
    for pattern in (NAMED, OPTION):
        yield Rule(kind=kind, pattern=re.compile(pattern), group="v", accept=_is_secret)


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match["v"])


def _is_secret(match: re.Match[str]) -> bool:
    """Whether what is called a password or a key is one: a key has digits beside letters."""
    return is_secret(match["name"], match["v"].rstrip(".:"))


def is_secret(name: str, value: str) -> bool:
    """Whether a value that is called so is a secret."""
    if value.lower() in HARMLESS or len(value) < 4 or value.startswith(("$", "<")):
        return False
    if re.search(f"(?i)(?:{PASSWORDS})$", name):
        return True
    if not re.search(f"(?i)(?:{KEYS})$", name):
        return False
    return len(value) >= 8 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _looks(secrets: Secrets, script: bool) -> Iterator[Rule]:
    """Yield the rules of what looks private on any host."""
    yield Rule(kind=Private.HOME, pattern=re.compile(HOME))
    yield Rule(kind=Private.HOME, pattern=re.compile(WINDOWS), needs="\\")
    if not script:
        yield Rule(kind=Private.HOME, pattern=re.compile(ROOT_HOME), needs="/root")
    yield Rule(kind=Private.EMAIL, pattern=re.compile(EMAIL), needs="@", accept=_is_email)
    yield Rule(kind=Private.UUID, pattern=re.compile(UUID), needs="-")
    yield Rule(kind=Private.SERIAL, pattern=re.compile(SERIAL), group="v", accept=_is_serial)
    for pattern in MACS:
        yield Rule(kind=Private.MAC, pattern=pattern)
    yield Rule(kind=Private.ADDRESS, pattern=IPV6, needs=":", accept=is_private_ipv6)
    yield Rule(kind=Private.ADDRESS, pattern=IPV4, needs=".", accept=private_ipv4(secrets.versions))


def _is_email(match: re.Match[str]) -> bool:
    return not match.group().startswith("git@")


def _is_serial(match: re.Match[str]) -> bool:
    return sum(map(str.isdigit, match["v"])) >= 3


def _names(secrets: Secrets) -> Iterator[Rule]:
    """Yield the rules of names of hosts and users."""
    if secrets.domains:
        ends = "|".join(map(re.escape, _longest_first(secrets.domains)))
        pattern = re.compile(rf"(?i)(?<![A-Za-z0-9.-])(?:[a-z0-9-]{{1,63}}\.){{0,8}}(?:{ends}){RIGHT}")
        yield Rule(kind=Private.HOST, pattern=pattern)
    yield from _named(
        Private.HOST, secrets.hosts, secrets.words, "host(?:name)?|node(?:name)?|server|machine"
    )
    yield from _named(Private.USER, secrets.users, secrets.words, "user(?:name)?|login|logname|owner|author")


def _named(kind: Private, names: Iterable[str], words: frozenset[str], called: str) -> Iterator[Rule]:
    plain: list[str] = []
    ordinary: list[str] = []
    for name in _longest_first(names):
        (ordinary if is_ordinary(name, words) else plain).append(re.escape(name))
    if plain:
        yield Rule(kind=kind, pattern=re.compile(f"(?i){LEFT}(?:{'|'.join(plain)}){RIGHT}"))
    if ordinary:
        either = f"(?P<v>{'|'.join(ordinary)})"
        beside = (
            rf"(?:(?<=[\w>]@)|(?<=://)){either}(?![\w.-])"
            if kind is Private.HOST
            else rf"(?<![\w/.@-]){either}(?=@[A-Za-z<])"
        )
        yield Rule(kind=kind, pattern=re.compile(beside), group="v")
        said = rf"(?i)(?<![a-z])(?:{called})[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?{either}(?![\w-])"
        yield Rule(kind=kind, pattern=re.compile(said), group="v")
