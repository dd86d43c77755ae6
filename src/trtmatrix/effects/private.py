"""What is private on this host: names, paths, serial numbers, values of the environment."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import trtmatrix
import trtprobe
from trtmatrix.core.privacy import Secrets, is_ordinary
from trtmatrix.core.redact import redact
from trtmatrix.core.variables import STANDARD, SYSTEM, Values, is_private_host

NOBODY = frozenset({"root", "user", "admin", "nobody", "ubuntu", "debian", "docker", "runner", "trtmatrix"})
"""Users that are everybody's."""

ANY_HOST = frozenset({"localhost", "localdomain", "ip6-localhost", "ubuntu", "debian", "docker", "(none)"})
_DMI = ("product_serial", "product_uuid", "board_serial", "chassis_serial", "chassis_asset_tag")
SERIALS = (*(f"/sys/class/dmi/id/{name}" for name in _DMI), "/etc/machine-id", "/var/lib/dbus/machine-id")


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
    found = Values(words)
    for name, value in variables.items():
        found.add(name, value)
    homes = _homes(variables)
    places = [path for folder in (*workspaces, _cwd()) for path in _spellings(folder)]
    return Secrets(
        users=_unique(_users(variables)), hosts=_unique([*_hosts(variables), *found.hosts]),
        domains=_unique(_domains()), homes=homes, workspaces=_unique(_places([*places, *found.paths], homes)),
        serials=_unique(_serials()), tokens=_unique(found.tokens), values=_unique(found.values), words=words,
        versions=frozenset(versions), keep=_unique(keep),
    )  # fmt: skip


def warnings(secrets: Secrets) -> tuple[str, ...]:
    """Return what the user should know: names like ordinary words, and what is wanted with private parts."""
    names = [("user", name) for name in secrets.users] + [("host", name) for name in secrets.hosts]
    bare = replace(secrets, keep=())
    kept = [text for text in secrets.keep if redact(text, bare).counts]
    ordinary = [
        f"the {what}'s name {name!r} is an ordinary word, too: it is taken out of paths and beside @ alone, "
        "so look for it yourself"
        for what, name in names
        if is_ordinary(name, secrets.words)
    ]
    return (*ordinary, *(f"CAREFUL: {text} holds something private, and is needed as it is" for text in kept))


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
            yield from (word.strip(".") for word in words[1:] if is_private_host(word.strip(".")))


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
        if not STANDARD.fullmatch(path) or not SYSTEM.fullmatch(path):
            yield path
        for place in map(str, Path(path).parents):
            if STANDARD.fullmatch(place) or place in homes or place.count("/") < 3:
                break
            yield place
