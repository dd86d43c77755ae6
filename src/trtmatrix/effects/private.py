"""What is private on this host: names, paths, serial numbers, values of the environment."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import trtmatrix
import trtprobe
from trtmatrix.core.privacy import Secrets, is_ordinary

NOBODY = frozenset({"root", "user", "admin", "nobody", "ubuntu", "debian", "docker", "runner", "trtmatrix"})
"""Users that are everybody's."""

ANY_HOST = frozenset({"localhost", "localdomain", "ip6-localhost", "ubuntu", "debian", "docker", "(none)"})
PUBLIC_HOSTS = (
    "localhost", "nvidia.com", "nvcr.io", "ngc.nvidia.com", "docker.io", "docker.com", "github.com", "ghcr.io",
    "pypi.org", "pythonhosted.org", "pytorch.org", "python.org", "huggingface.co", "debian.org", "ubuntu.com",
    "anaconda.org", "conda-forge.org", "microsoft.com", "google.com", "googleapis.com", "quay.io", "gitlab.com",
)  # fmt: skip
"""Hosts whose names, and those below them, say nothing of anybody."""

STANDARD = re.compile(
    r"/|/(?:usr|bin|sbin|lib|lib32|lib64|etc|dev|proc|sys|run|var|boot|snap|opt|nix|srv|media|mnt)(?:/.*)?"
    r"|/(?:tmp|home|root|Users|work|workspace|data|src|app|job|out)/?"
)
"""Folders that many hosts have."""

HARMLESS = re.compile(
    r"(?i)(?:term|terminfo|colorterm|lang|language|lc_\w+|shell|shlvl|_|ls_colors|lscolors|less\w*|pager|editor|visual|tz"
    r"|display|xdg_(?:session|current|seat|vtnr)\w*|debian_frontend|python(?:hash\w*|dont\w*|unbuf\w*|io\w*|utf8)"
    r"|\w*_version|nvidia_(?:visible|driver|require|product|tf32|disable)\w*|cuda_(?:visible|module|device)\w*"
    r"|omp_\w+|mkl_\w+|gomp_\w+|histsize|histfilesize|histcontrol|columns|lines|ps1|ps2|mail|oldpwd|pwd|home|user"
    r"|logname|hostname|path|manpath|infopath|gpg_key|python_sha256)"
)
"""Variables whose values say nothing, or are looked at by other ways (paths)."""

SENSITIVE = re.compile(r"(?i)pass|secret|token|key|auth|cred|cookie|session|private|salt|license|licence|dsn")
SERIALS = tuple(
    f"/sys/class/dmi/id/{name}"
    for name in ("product_serial", "product_uuid", "board_serial", "chassis_serial", "chassis_asset_tag")
) + ("/etc/machine-id", "/var/lib/dbus/machine-id")


def known_secrets(
    workspaces: Iterable[Path] = (),
    *,
    keep: Iterable[str] = (),
    versions: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Secrets:
    """Collect what must not leave this host.

    ``workspaces``: folders beside the working directory and those that the environment names (the project,
    the cache, a model's folder). ``keep``: texts that are wanted in an archive whatever the host is called
    (the cell's id, the image's name); ``versions``: those of the records. ``environment``: default: this
    process's.
    """
    variables = dict(os.environ if environment is None else environment)
    words = own_words()
    found = _Values(words)
    for name, value in variables.items():
        found.add(name, value)
    homes = _homes(variables)
    places = [path for folder in (*workspaces, _cwd()) for path in _spellings(folder)]
    return Secrets(
        users=_unique(_users(variables)), hosts=_unique([*_hosts(variables), *found.hosts]),
        domains=_unique(_domains()), homes=homes, workspaces=_unique([*_places(places, homes), *found.paths]),
        serials=_unique(_serials()), tokens=_unique(found.tokens), values=_unique(found.values), words=words,
        versions=frozenset(versions), keep=_unique(keep),
    )  # fmt: skip


def warnings(secrets: Secrets) -> tuple[str, ...]:
    """Return what the user should know of names that cannot be told from ordinary words."""
    told = []
    for what, names in (("user", secrets.users), ("host", secrets.hosts)):
        for name in names:
            if is_ordinary(name, secrets.words):
                told.append(
                    f"the {what}'s name {name!r} is an ordinary word, too: it is taken out of paths and beside @ "
                    "alone, so look for it yourself"
                )
    return tuple(told)


@lru_cache(maxsize=1)
def own_words() -> frozenset[str]:
    """Return the words of this program's own text in lower case: no name among them can be told from it."""
    words: set[str] = set()
    for package in (trtmatrix, trtprobe):
        folder = Path(package.__file__ or "").parent
        for file in (*folder.rglob("*.py"), *folder.rglob("*.yaml")):
            text = file.read_text(encoding="utf-8", errors="replace")
            words.update(word.lower() for word in re.findall(r"[A-Za-z0-9]+", text))
    return frozenset(words)


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")


def _spellings(folder: Path) -> Iterator[str]:
    """Yield a folder as it was given and as it really is."""
    yield os.path.abspath(folder)  # noqa: PTH100 - links stay
    yield os.path.realpath(folder)


def _homes(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's home as the environment and the system name it; ``/root`` is taken out by rule."""
    named = [variables.get("HOME", "")]
    if entry := _account():
        named.append(entry[1])
    found = [path for home in named if home.startswith("/") for path in _spellings(Path(home))]
    return _unique(home for home in found if not STANDARD.fullmatch(home))


def _account() -> tuple[str, str, str] | None:
    """Return this user's name, home and full name as the system knows them."""
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError, AttributeError):
        return None
    return entry.pw_name, entry.pw_dir, entry.pw_gecos.partition(",")[0].strip()


def _users(variables: Mapping[str, str]) -> Iterator[str]:
    names = [variables.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")]
    if entry := _account():
        names.append(entry[0])
        if " " in entry[2]:
            names.append(entry[2])
    yield from (name for name in names if name.lower() not in NOBODY and len(name) > 1)


def _hosts(variables: Mapping[str, str]) -> Iterator[str]:
    for name in (
        platform.node(),
        variables.get("HOSTNAME", ""),
        variables.get("HOST", ""),
        _line("/etc/hostname"),
    ):
        for spelling in (name, name.partition(".")[0]):
            if spelling.lower() not in ANY_HOST and len(spelling) > 1 and not spelling.isdigit():
                yield spelling


def _domains() -> Iterator[str]:
    """Yield the ends of names of this host's network, as the resolver adds them."""
    try:
        lines = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for words in map(str.split, lines):
        if words and words[0] in {"search", "domain"}:
            yield from (word.strip(".") for word in words[1:] if _is_private_host(word.strip(".")))


def _is_private_host(name: str) -> bool:
    """Whether a name with dots is of a host that is not everybody's."""
    lower = name.lower()
    return "." in lower and not any(lower == host or lower.endswith(f".{host}") for host in PUBLIC_HOSTS)


def _line(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _serials() -> Iterator[str]:
    """Yield serial numbers of the machine and its GPUs, where they can be read."""
    for text in (*map(_line, SERIALS), *_gpu_serials()):
        if len(text) >= 6 and sum(map(str.isdigit, text)) >= 3 and len(set(text)) > 3:
            yield text


def _gpu_serials() -> Iterator[str]:
    from trtmatrix.effects.gpu import find_gpus

    if not (gpus := find_gpus().gpus):
        return
    import pynvml

    try:
        pynvml.nvmlInit()
        for gpu in gpus:
            yield gpu.uuid or ""
            yield str(pynvml.nvmlDeviceGetSerial(pynvml.nvmlDeviceGetHandleByIndex(gpu.index)))
    except pynvml.NVMLError:  # boards for desktops have none
        return


def _places(paths: Iterable[str], homes: tuple[str, ...]) -> Iterator[str]:
    """Yield folders of the user's work, and those above that are neither standard nor a home's."""
    for path in paths:
        for place in (path, *map(str, Path(path).parents)):
            if (
                STANDARD.fullmatch(place)
                or place in homes
                or any(home.startswith(f"{place}/") for home in homes)
            ):
                break
            if place == path or place.count("/") >= 3:
                yield place


class _Values:
    """Sorts what variables hold into tokens, paths, hosts and other values."""

    def __init__(self, words: frozenset[str]) -> None:
        self._words = words
        self.tokens: list[str] = []
        self.values: list[str] = []
        self.paths: list[str] = []
        self.hosts: list[str] = []

    def add(self, name: str, value: str) -> None:
        """Look at one variable."""
        value = value.strip()
        for path in re.split(r"[:;,=\s]", value):
            if path.startswith("/") and len(path) > 1 and not STANDARD.fullmatch(path.rstrip("/")):
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
            if _is_private_host(host) and not re.fullmatch(r"[\d.]+", host):
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
