"""Images by the names that registries know, what can be wrong with asking for one, and ``--image``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import orjson

from trtmatrix.common.archive import digest_of
from trtmatrix.common.border import RECORD, opened
from trtmatrix.common.errors import MachineryError, UsageError, shorten
from trtmatrix.common.paths import recall
from trtmatrix.suite.matrix import ImageOrigin, Matrix, Pin
from trtmatrix.suite.plan import IMAGE_SUFFIXES

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # what engines call a machine, and what registries do
HUB = "docker.io"  # Docker Hub, by the name that it has in references
FILES = tuple(dict.fromkeys(IMAGE_SUFFIXES.values()))  # what files of images end with; no reference does

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[1-9]\d{{0,4}})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST_FIRST = r"(?:localhost/|[^/]*[.:A-Z][^/]*/)"
DIGEST = r"sha256:[0-9a-f]{64}"
_REFERENCE = re.compile(
    rf"(?:(?={_HOST_FIRST})(?P<host>{_HOST})/|(?!{_HOST_FIRST}))(?P<repository>{_PART}(?:/{_PART})*)"
    rf"(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{DIGEST}))?",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image at a registry: ``host`` with its port, ``repository``, and ``tag`` or ``digest`` or both."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def wanted(self) -> str:
        """What of the repository is meant: the digest where there is one, else the tag."""
        return self.digest or self.tag

    @property
    def server(self) -> str:
        """The host that answers for it, with its port: Docker Hub's is called otherwise than its images."""
        return "registry-1.docker.io" if self.host == HUB else self.host

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> Reference:
    """Return what a reference stands for, as Docker reads it.

    A first part with a dot, a port or a capital, and ``localhost``, is a host, else it is Docker Hub's; there
    a name of one part is below ``library``; without tag and digest the tag is ``latest``.
    :class:`UsageError` where it cannot be one. Source: https://github.com/distribution/reference.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or re.fullmatch(r"[0-9a-f]{64}", text):  # an image's ID, which no registry knows
        raise UsageError(
            f"{shorten(text)} is no image's name: write HOST/REPOSITORY:TAG or …@sha256:… and 64 digits\n"
            "  such as nvcr.io/nvidia/pytorch:24.12-py3"
        )
    host, repository, tag, digest = (found[name] or "" for name in ("host", "repository", "tag", "digest"))
    host = HUB if host in {"", f"index.{HUB}"} else host
    if host == HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(host=host, repository=repository, tag=tag or ("" if digest else "latest"), digest=digest)


class Trouble(Enum):
    """What can be wrong with asking a registry: what is said of its host, and what to do about it."""

    UNREACHABLE = (
        "cannot be reached for {what}",
        "check the network and the proxy (HTTPS_PROXY, NO_PROXY), or name a mirror: --registry HOST/PATH",
    )
    NEEDS_LOGIN = ("wants a login for {what}, or has no such image", "log in: {login}")
    WRONG_LOGIN = ("refuses the login that is used for {what}", "log in again: {login}")
    MISSING = (
        "has no {what}",
        "check the tag on the registry's pages: it was taken away, or never was there (nox -s lock shows what"
        " a tag stands for now; nox -s pack hands on an image that another host has)",
    )
    LIMITED = "says to ask later for {what}", "try again later; a login usually has a higher limit: {login}"
    DAMAGED = (
        "sent other bytes than their digest says for {what}",
        "ask again: something between here and the registry changes what it sends; with a proxy or mirror, "
        "ask without it",
    )
    BROKEN = "gave no usable answer for {what}", "try again later; with a proxy or mirror, ask without it"

    def remedy(self, host: str) -> str:
        """Return the next thing to do. Source: https://docs.nvidia.com/ngc/ngc-catalog-user-guide/."""
        login = f"docker login {host}" if host != HUB else "docker login"
        if host == "nvcr.io":
            login = "docker login nvcr.io --username '$oauthtoken' (its password is an NGC API key)"
        return str(self.value[1]).format(login=login)


class RegistryError(MachineryError):
    """A registry (``host``: ``nvcr.io``) gave no good answer; the message says why and what mends it.

    ``what``: the name that it was asked for; ``why``: what was answered.
    """

    def __init__(self, trouble: Trouble, host: str, what: str, why: str = "") -> None:
        said = f"{host} {trouble.value[0].format(what=what)}" + (f": {why}" if why else "")
        super().__init__(f"{said}\n  {trouble.remedy(host)}")
        self.trouble, self.host = trouble, host


def with_own_images(
    matrix: Matrix, texts: Sequence[str], engine: str, cache: Path, said: str = "--image"
) -> Matrix:
    """Return the matrix with the images of ``texts`` (``VERSION=REFERENCE|FILE``) in place of its own.

    What is locked or built of an image that is replaced says nothing of the one that replaces it. ``said``:
    where the texts stand. :class:`UsageError` where a text cannot be obeyed.
    """
    in_images = [v.name for v in matrix.versions if isinstance(v.origin, ImageOrigin)]
    origins: dict[str, ImageOrigin] = {}
    for text in texts:
        name, _, image = text.partition("=")
        if not (name and image):
            raise UsageError(f"{said} {text}: write VERSION=REFERENCE or VERSION=FILE")
        if name not in in_images:
            raise UsageError(f"{said} {text}: {name} runs in no image\n  name one of {', '.join(in_images)}")
        if not image.startswith(("/", "./", "../", "~")) and not image.endswith(FILES):
            parse_reference(image)
            origins[name] = ImageOrigin(image=image)
        elif image.endswith(IMAGE_SUFFIXES[engine]):
            origins[name] = read_file(image, cache)
        else:
            raise UsageError(
                f"--image {text}: --engine {engine} takes files that end in {IMAGE_SUFFIXES[engine]}"
            )
    versions = (replace(v, origin=origins[v.name]) if v.name in origins else v for v in matrix.versions)
    return replace(matrix, versions=tuple(versions))


def read_file(name: str, cache: Path) -> ImageOrigin:
    """Return a file as an origin, pinned by what is in it: its own SHA-256, or the ID of a tar's image.

    It is read once for as long as path, size and time of its last change stay: a large one takes a while.
    :class:`UsageError` where it is not there, or is no tar with one image.
    """
    path = Path(os.path.expanduser(name)).absolute()  # noqa: PTH111 - which raises where there is no such user
    try:
        status = path.stat()
        key = f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
        read = tar_ids if path.suffix == ".tar" else lambda file: (f"sha256:{digest_of(file)}",)
        ids = tuple(recall(cache, "image-file", key, lambda: list(read(path))))
    except OSError as error:
        raise UsageError(
            f"--image: {path} cannot be read: {error.strerror or error}\n  name a file that this host sees"
        ) from error
    return ImageOrigin(image=str(path), pin=Pin(manifest=ids[0], ids=ids))


def tar_ids(path: Path) -> tuple[str, ...]:
    """Return the IDs that engines may give the image of a tar of ``docker save``.

    That is the digest of its configuration; in engines with containerd's image store that of its manifest
    or index, which Docker 25 and later write into index.json.
    Source: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
    """
    import lzma
    import tarfile
    import zlib

    damaged = (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError)
    names = ("manifest.json", "index.json")
    try:
        with opened(path.resolve(), sys.maxsize) as (file, _), tarfile.open(fileobj=file) as archive:
            found = {m.name: archive.extractfile(m) for m in archive if m.name in names}
            listings = {name: orjson.loads(s.read(RECORD)) for name, s in found.items() if s}
        (configuration,) = {str(entry["Config"]) for entry in listings["manifest.json"]}
        manifests = [str(entry["digest"]) for entry in listings.get("index.json", {}).get("manifests", [])]
    except (*damaged, KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"--image: {path} is not one image as docker save writes it: {error!r}") from error
    own = configuration.rpartition("/")[2].removesuffix(".json")
    return tuple(dict.fromkeys((f"sha256:{own}", *manifests)))
