"""Sorts what variables of the environment hold: passwords, paths, hosts, and what says nothing. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

PUBLIC_HOSTS = (
    "localhost", "nvidia.com", "nvcr.io", "docker.io", "docker.com", "github.com", "ghcr.io", "quay.io",
    "pypi.org", "pythonhosted.org", "pytorch.org", "python.org", "huggingface.co", "debian.org",
    "ubuntu.com", "anaconda.org", "conda-forge.org", "microsoft.com", "google.com", "googleapis.com",
    "gitlab.com",
)  # fmt: skip
"""Hosts whose names, and those below them, say nothing of anybody."""

STANDARD = re.compile(
    r"/|/(?:usr|bin|sbin|lib|lib32|lib64|etc|dev|proc|sys|run|var|boot|snap|opt|nix)(?:/.*)?"
    r"|/(?:tmp|home|root|Users|mnt|media|srv|work|workspace|data|src|app|job|out)/?"
)
"""Folders that many hosts have."""

SYSTEM = re.compile(r"/[^/]*|/usr/[^/]+|/var/[^/]+|/home/[^/]+|/Users/[^/]+")
"""Folders that hold more than one user's work."""

HARMLESS = re.compile(
    r"(?i)(?:term|terminfo|colorterm|lang|language|lc_\w+|shell|shlvl|_|ls_colors|lscolors|less\w*|pager|editor|visual|tz"
    r"|display|xdg_(?:session|current|seat|vtnr)\w*|debian_frontend|python(?:hash\w*|dont\w*|unbuf\w*|io\w*|utf8)"
    r"|\w*_version|nvidia_(?:visible|driver|require|product|tf32|disable)\w*|cuda_(?:visible|module|device)\w*"
    r"|omp_\w+|mkl_\w+|gomp_\w+|histsize|histfilesize|histcontrol|columns|lines|ps1|ps2|mail|oldpwd|pwd|home|user|username|sudo_user"
    r"|logname|hostname|path|manpath|infopath|gpg_key|python_sha256)"
)
"""Variables whose values say nothing, or are looked at by other ways (paths)."""

SENSITIVE = re.compile(r"(?i)pass|secret|token|key|auth|cred|cookie|session|private|salt|license|licence|dsn")


def is_private_host(name: str) -> bool:
    """Whether a name with dots is of a host that is not everybody's."""
    lower = name.lower()
    return "." in lower and not any(lower == host or lower.endswith(f".{host}") for host in PUBLIC_HOSTS)


class Values:
    """Sorts what variables hold into tokens, paths, hosts and other values."""

    def __init__(self, words: frozenset[str]) -> None:
        """Start with nothing; ``words`` are those of this program's own text, in lower case."""
        self._words = words
        self.tokens: list[str] = []
        self.values: list[str] = []
        self.paths: list[str] = []
        self.hosts: list[str] = []

    def add(self, name: str, value: str) -> None:
        """Look at one variable."""
        value = value.strip()
        for path in re.split(r"[:;,=\s]", value):
            if re.match("/[^/]", path) and not STANDARD.fullmatch(path.rstrip("/")):
                self.paths.append(path.rstrip("/"))
        sensitive = bool(SENSITIVE.search(name))
        if HARMLESS.fullmatch(name) or not self._says_something(value, sensitive=sensitive):
            return
        if "://" in value:
            self._add_address(value)
        (self.tokens if sensitive else self.values).append(value)
        if sensitive:
            self.tokens += [one for one in re.findall(r"[\w+/=.~-]{16,}", value) if not one.startswith("/")]

    def _add_address(self, value: str) -> None:
        """Take hosts and passwords out of a URL."""
        for url in re.findall(r"[\w+.-]+://[^\s\"']+", value):
            try:
                parts = urlsplit(url)
                host, password = parts.hostname or "", parts.password or ""
            except ValueError:
                continue
            if is_private_host(host) and not re.fullmatch(r"[\d.]+", host):
                self.hosts.append(host)
            if len(password) >= 4:
                self.tokens.append(password)

    def _says_something(self, value: str, *, sensitive: bool) -> bool:
        """Whether a value is neither number, version, path, switch nor made of ordinary words."""
        if len(value) < (4 if sensitive else 6) or value.startswith("/"):
            return False
        if re.fullmatch(r"[\d.,:;x+-]+", value):
            return sensitive and len(value) >= 6 and value.isdigit()
        words = re.findall(r"[A-Za-z0-9]+", value)
        return any(word.lower() not in self._words and not word.isdigit() for word in words)
