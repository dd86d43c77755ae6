"""The rules by which names of users and hosts are known: this host's, and what is said beside. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from trtmatrix.core.privacy import Private, Secrets, is_ordinary
from trtmatrix.core.redact_base import HARMLESS, IS, LEFT, RIGHT, Rule, said
from trtmatrix.core.variables import PUBLIC_HOSTS, is_private_host

EVERYBODY = frozenset({
    "root", "nobody", "user", "users", "trtmatrix", "localhost", "admin", "ubuntu", "debian", "docker",
    "runner",
    "git", "linux", "windows", "centos", "rocky", "fedora", "alpine", "nvidia", "pip", "conda", "host",
    "hostname",
    "container", "default", "unknown", "self", "device", "gpu", "cpu", "memory", "the", "any", "all",
    "not", "is",
})  # fmt: skip
"""Users and hosts that are everybody's, and words that stand where a name could."""

_WHO = r"(?P<v>(?:[A-Za-z0-9][\w.-]{0,30}\\{1,2})?[A-Za-z_][\w.-]{1,63})"
_RANGE = r"(?:\[[\d,-]{1,80}\])?"
_WHERE = rf"(?P<v>[A-Za-z0-9][\w.-]{{1,252}}{_RANGE}(?:,[A-Za-z][\w.-]{{1,252}}{_RANGE}){{0,64}})"
VARIABLE = r"(?<![A-Za-z_]){name}[\"']?\s{{0,2}}[=:]\s{{0,2}}[\"']?(?P<v>[A-Za-z0-9][\w.-]{{1,63}})"
USER_SAID = (
    VARIABLE.format(name="(?:USER|LOGNAME|SUDO_USER|USERNAME)"),
    r"\b[ug]id=\d+\((?P<v>[\w.-]+)\)",
)
USER_NAMED = (
    rf"(?i)(?<![a-z])(?:users?|user[ _-]?names?|login|log[ _-]?name|owner|author|uploader|account|(?:run"
    rf"|submitted|built) by){IS}{_WHO}"
    r"(?![\w(])",
    r"(?<![\w.@/-])(?P<v>[a-z_][\w.-]{1,31})(?=@[\w.<>-]{2,80}:[~/<][^\s$#]{0,200}[$#])",
    r"\b(?:ssh|scp|sftp|rsync|mosh|autossh)\b[^\n]{0,120}?\s(?P<v>[A-Za-z_][\w.-]{1,31})(?=@[A-Za-z0-9<])",
)
"""Beside a word for it; in a shell's prompt; in a command of SSH."""
HOST_SAID = (
    VARIABLE.format(name="HOSTNAME"),
    rf"(?i)(?<![a-z])(?:host[ _-]?names?|node[ _-]?list|nodename|slurmd_nodename|fqdn|server[ _-]?name"
    rf"|computer[ _-]?name)"
    rf"{IS}{_WHERE}",
)
HOST_NAMED = (
    rf"(?i)(?<![a-z_])hosts?{IS}(?=[\w.-]*[A-Za-z]){_WHERE}(?![\w(])",
    r"(?<=<user>@)(?!<)(?P<v>[A-Za-z0-9][\w.-]{1,252})",
    r"(?<![\w.])root@(?P<v>[A-Za-z0-9][\w.-]{1,252})(?=:[~/<])",
    r"\bJOB \S+ ON (?P<v>[A-Za-z][\w.-]{1,252})",
    r"(?:srun|slurmstepd|mpirun|orted|prted|slurmd)(?:: error)?: (?P<v>[A-Za-z][\w-]*\d[\w.-]*)(?=: )",
)
"""Beside a word for it; behind a user's name; in a prompt of a container; in what SLURM and MPI say."""
_COUNTRY = "de|uk|fr|ch|jp|cn|eu|ca|nl|se|fi|dk|es|pl|be|au|kr|tw|us|il|sg|br|ru|cz|ie"
HOST_FULL = (
    r"(?i)(?<![a-z-])(?:hosts?|server|machine|peer|rank \d+|worker|connect\w*)"
    r"(?:[\"']?\s{0,3}[:=]\s{0,3}|[ \t])[\"'(]?(?P<v>[a-z][a-z0-9-]*\d[a-z0-9-]*(?:\.[a-z0-9-]{1,63}){0,6}"
    rf"\.(?:com|net|org|edu|gov|mil|int|example|{_COUNTRY}))(?![\w.-]*\w)"
)
"""A host's full name, whose first part holds a number, as those of a cluster's machines do."""
CLUSTER = (
    r"(?i)(?<![\w.-])(?P<v>[a-z][a-z-]*\d[a-z0-9-]*(?:\.[a-z0-9-]{1,63}){1,6}\.(?:com|org|edu|gov"
    r"|mil|example))(?![\w-]|\.\w)"
)
NETWORK = (
    r"(?i)(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}(?:lan|corp|intranet|localdomain|cluster\.local|(?:ec2"
    r"|compute)\.internal)"
    r"(?:(?:\.[a-z0-9-]{1,63}){0,4}\.(?:com|net|org|edu|gov|io|example))?(?![\w-])"
    r"|(?<![a-z0-9])ip(?:-\d{1,3}){4}(?![\w-])"
)
"""Names in networks that are nobody else's, and Amazon's for an address."""
TENANT = (
    r"(?i)(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,4}(?:jfrog\.io|atlassian\.net|okta\.com|sharepoint\.com"
    r"|onmicrosoft\.com"
    r"|s3[\w.-]{0,40}\.amazonaws\.com|blob\.core\.windows\.net|openai\.azure\.com|ngrok(?:-free)?\.(?:io"
    r"|app)|ts\.net)(?![\w-])"
)
"""Names that hold a customer's."""
_OWN = (
    "nexus|artifactory|harbor|jenkins|gitlab|registry|mirror|proxy|ldap|minio|vault|grafana|pypi|git|wiki"
    "|jira|devpi"
)
IN_URL = r"(?i)://(?:<secret>@)?(?P<v>[a-z0-9][a-z0-9.-]{1,252})"
_BEFORE_URL = re.compile(r"(?i)index|find-links|trusted|proxy|mirror|registry|ldap|internal")
_OF_ITS_OWN = re.compile(rf"(?i)(?:{_OWN})(?:-?\d+)?\.")
TRUSTED = (
    r"(?i)(?:trusted[_-]host|not a trusted or secure host|proxyhost|locat(?:ion"
    r"|ed) at)[\"':=\s]{1,4}(?P<v>[a-z0-9-]+(?:\.[a-z0-9-]+)+)"
)
POOL = r"HTTPS?ConnectionPool\(host='(?P<v>[\w.-]+)'"
"""How Python's HTTP clients name a host that they could not reach."""
_DN = r"(?:uid|cn|ou|dc|o|l|st|c|sn|samaccountname|userid)"
LDAP = (
    rf"(?i)(?<![\w.]){_DN}=[^,=\n\"'<>]{{1,80}}"
    rf"(?:,\s?{_DN}=[^,=\n\"'<>]{{1,80}}(?=,))*,\s?{_DN}=\w[\w.-]*"
)
"""A name in a directory: ``uid=x,ou=y``."""
PRINCIPAL = (
    r"(?i)(?:principal|krb5ccname"
    r"|kinit)[\"']?\s{0,3}[:=]?\s{1,3}[\"']?(?P<v>[A-Za-z][\w./-]*@[A-Za-z][\w.-]*)"
)

_ENDS = "local|internal|intra|home|com|net|org|edu|gov|io|example"
BELOW = rf"(?:(?:\.[A-Za-z0-9-]+)*\.(?:{_ENDS})|(?:\.[A-Za-z0-9-]+){{2,}})"
"""What may stand behind a host's name."""


def name_rules(secrets: Secrets) -> Iterator[Rule]:
    """Yield the rules of names of hosts and users."""
    foreign = _foreign(secrets.words)
    for pattern in USER_SAID:
        yield said(Private.USER, pattern, accept=_is_somebody)
    yield Rule(kind=Private.USER, pattern=re.compile(LDAP), needs="=", accept=_is_directory)
    yield said(Private.USER, PRINCIPAL, "@", words=("principal", "krb5", "kinit"))
    for pattern in HOST_SAID:
        yield said(Private.HOST, pattern, accept=_is_somebody)
    yield from _networks(secrets)
    yield from _named(
        Private.HOST, secrets.hosts, secrets.words, "host(?:name)?|node(?:name)?|server|machine"
    )
    yield from _named(Private.USER, secrets.users, secrets.words, "user(?:name)?|login|logname|owner|author")
    for pattern in USER_NAMED:
        yield said(Private.USER, pattern, accept=foreign)
    for pattern in HOST_NAMED:
        yield said(Private.HOST, pattern, accept=foreign)


def _networks(secrets: Secrets) -> Iterator[Rule]:
    """Yield the rules of names with dots."""
    yield Rule(kind=Private.HOST, pattern=re.compile(NETWORK))
    yield Rule(kind=Private.HOST, pattern=re.compile(TENANT), needs=".")
    if secrets.domains:
        ends = "|".join(map(re.escape, longest_first(secrets.domains)))
        pattern = re.compile(rf"(?i)(?<![A-Za-z0-9.-])(?:[a-z0-9-]{{1,63}}\.){{0,8}}(?:{ends}){RIGHT}")
        yield Rule(kind=Private.HOST, pattern=pattern)
    for full in (HOST_FULL, CLUSTER, TRUSTED):
        yield said(Private.HOST, full, ".", accept=_is_private)
    yield said(Private.HOST, POOL, "Pool(", accept=_is_private)
    yield said(Private.HOST, IN_URL, "://", accept=_is_own_site)


def _is_somebody(match: re.Match[str]) -> bool:
    value = match["v"]
    return (
        value.lower() not in EVERYBODY | HARMLESS
        and value.lower() not in PUBLIC_HOSTS
        and not _is_public(value)
    )


def _is_directory(match: re.Match[str]) -> bool:
    """Whether a list of letters and values is a name in a directory: not ``c=3,o=4``."""
    return re.search(r"(?i)(?:^|,)\s?(?:dc|ou|cn|uid)=[^,\d]*[A-Za-z]", match.group()) is not None


def _is_public(name: str) -> bool:
    return "." in name and not is_private_host(name)


def _is_private(match: re.Match[str]) -> bool:
    return is_private_host(match["v"]) and not re.fullmatch(r"[\d.]+", match["v"])


def _is_own_site(match: re.Match[str]) -> bool:
    """Whether a URL's host is somebody's own: by its name, or as a place for packages or a proxy."""
    if not _is_private(match):
        return False
    line = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    return bool(_OF_ITS_OWN.match(match["v"]) or _BEFORE_URL.search(line[-300:]))


def _foreign(words: frozenset[str]) -> Callable[[re.Match[str]], bool]:
    """Return what says whether a match is a name: no word of this program's own, no number, no switch."""

    def is_foreign(match: re.Match[str]) -> bool:
        value = match["v"].rstrip(".")
        return _is_somebody(match) and value.lower() not in words and not value.isdigit()

    return is_foreign


def longest_first(values: Iterable[str]) -> list[str]:
    """Return values once each, those first that may hold others."""
    return sorted(set(filter(None, values)), key=lambda value: (-len(value), value))


def _named(kind: Private, names: Iterable[str], words: frozenset[str], called: str) -> Iterator[Rule]:
    plain: list[str] = []
    ordinary: list[str] = []
    for name in longest_first(names):
        (ordinary if is_ordinary(name, words) else plain).append(re.escape(name))
    if plain:
        below = f"{BELOW}?" if kind is Private.HOST else ""
        yield Rule(kind=kind, pattern=re.compile(f"(?i){LEFT}(?:{'|'.join(plain)}){below}{RIGHT}"))
    if ordinary:
        either = f"(?P<v>{'|'.join(ordinary)})"
        beside = (
            rf"(?:(?<=[\w>]@)|(?<=://)){either}(?![\w.-])"
            if kind is Private.HOST
            else rf"(?<![\w/.@-]){either}(?=@[A-Za-z<])"
        )
        yield said(kind, beside)
        yield said(kind, rf"(?i)(?<![a-z])(?:{called})[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?{either}(?![\w-])")
