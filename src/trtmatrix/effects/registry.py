"""Asks registries what an image's name stands for: manifests and configurations, never a layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.core.errors import shorten
from trtmatrix.core.lock import LockedImage, LockedPlatform
from trtmatrix.core.manifests import (
    ACCEPTED,
    INDEXES,
    MANIFESTS,
    Descriptor,
    ManifestError,
    digest_of,
    locked_platform,
    media_type,
    parse_body,
    parse_index,
    parse_manifest,
)
from trtmatrix.core.registry import (
    Reference,
    RegistryError,
    Trouble,
    explain_trouble,
    is_digest,
    parse_reference,
)
from trtmatrix.effects.registry_logins import Authority
from trtmatrix.effects.registry_tls import certificate_folders
from trtmatrix.effects.registry_wire import Answer, Question, Wire

ATTEMPTS = 4
SECONDS = (10.0, 30.0)


class Registry:
    """Registries, asked over their HTTP API; one may be used by several threads.

    ``insecure``: hosts and networks that are spoken to in plain HTTP, as the engine has them
    (``Engine.insecure``), beside loopback; ``note``: told of waits; ``attempts``: how often is asked where an
    answer is cut off or put off; ``seconds``: to connect, and between two pieces of an answer;
    ``certificates``: folders in the manner of ``/etc/docker/certs.d``, else those of Docker and Podman.
    Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
    """

    def __init__(
        self,
        *,
        insecure: Sequence[str] = (),
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[str], None] | None = None,
        attempts: int = ATTEMPTS,
        seconds: tuple[float, float] = SECONDS,
        certificates: Sequence[Path] | None = None,
    ) -> None:
        """Keep how to ask; nothing is asked yet."""
        self._wire = Wire(
            insecure=insecure, sleep=sleep, note=note or _quiet, attempts=attempts, seconds=seconds,
            certificates=certificate_folders() if certificates is None else certificates,
        )  # fmt: skip
        self._authority = Authority(self._wire)

    def resolve(self, image: str, ask: str | None = None) -> LockedImage:
        """Return what an image's name stands for now. ``ask``: the reference really asked, a mirror's.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        name = parse_reference(ask or image)
        try:
            digest, platforms = self._platforms(name)
        except ManifestError as error:
            raise explain_trouble(Trouble.BROKEN, name.host, str(name), str(error)) from error
        now = datetime.now(timezone.utc).replace(microsecond=0)
        return LockedImage(
            image=image, digest=digest, registry=name.host, resolved=now.isoformat(), platforms=platforms
        )

    def check(self, reference: str) -> str:
        """Return the digest that a reference stands for now, mostly without reading its manifest.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        name = parse_reference(reference)
        try:
            told = self._get(name, f"manifests/{name.wanted}", "HEAD").header("Docker-Content-Digest")
        except RegistryError as error:
            if error.trouble is not Trouble.BROKEN:
                raise
            told = ""  # a registry without HEAD, or a real trouble, which the next question tells of
        if not is_digest(told):
            return self._manifest(name)[0]
        if name.digest and name.digest != told:
            raise _damaged(name, name.digest, told)
        return told

    def _platforms(self, name: Reference) -> tuple[str, tuple[LockedPlatform, ...]]:
        """Return the digest that a name stands for, and the images behind it."""
        digest, kind, body = self._manifest(name)
        if kind not in INDEXES:
            return digest, (self._platform(name, digest, body),)
        found = []
        for entry in parse_index(parse_body(body)):
            own = replace(name, tag="", digest=entry.digest)
            found.append(self._platform(own, entry.digest, self._manifest(own)[2], entry.platform))
        return digest, tuple(found)

    def _platform(self, name: Reference, digest: str, body: bytes, platform: str = "") -> LockedPlatform:
        manifest = parse_manifest(parse_body(body))
        return locked_platform(digest, manifest, parse_body(self._blob(name, manifest.config)), platform)

    def _manifest(self, name: Reference) -> tuple[str, str, bytes]:
        """Return the digest, the media type and the bytes of a manifest or index, which are held together."""
        answer = self._get(name, f"manifests/{name.wanted}")
        told = answer.header("Docker-Content-Digest")
        wanted = name.digest or (told if is_digest(told) else digest_of(answer.body))
        _hold(name, wanted, answer.body)
        if is_digest(told) and told != wanted:
            raise _damaged(name, wanted, told)
        kind = media_type(parse_body(answer.body), answer.header("Content-Type"))
        if kind not in (*INDEXES, *MANIFESTS):
            raise ManifestError(f"it is {shorten(kind)}, which is no image's manifest")
        return wanted, kind, answer.body

    def _blob(self, name: Reference, wanted: Descriptor) -> bytes:
        body = self._get(name, f"blobs/{wanted.digest}").body
        _hold(name, wanted.digest, body)
        return body

    def _get(self, name: Reference, path: str, method: str = "GET") -> Answer:
        """Ask for something of a repository, with a login where the registry wants one."""
        question = Question(url="", host=name.host, what=str(name), method=method, accept=", ".join(ACCEPTED))
        base = self._wire.base(name.server, question)
        used = self._authority.known(name)
        question = replace(question, url=f"{base}/v2/{name.repository}/{path}", authorization=used)
        answer = self._wire.ask(question)
        if answer.status == 401:
            proof = self._authority.prove(name, answer, used)
            answer = self._wire.ask(replace(question, authorization=proof))
        if answer.status == 200:
            return answer
        if answer.status in {401, 403}:
            raise self._authority.refusal(name, _said(answer))
        raise explain_trouble(_trouble(answer), name.host, str(name), _said(answer))


def _quiet(note: str) -> None:
    del note


def _trouble(answer: Answer) -> Trouble:
    return Trouble.MISSING if answer.status == 404 else Trouble.BROKEN


def _said(answer: Answer) -> str:
    """Return what a registry says went wrong, in its own words where it has any."""
    try:
        first = parse_body(answer.body)["errors"][0]
        said = f"{first.get('code') or ''} {first.get('message') or ''}".strip()
    except (ManifestError, KeyError, IndexError, TypeError, AttributeError):
        said = ""
    plain = "".join(letter if letter.isprintable() else " " for letter in said)[:200]
    return f"it answers {answer.status}" + (f" ({plain})" if plain else "")


def _hold(name: Reference, wanted: str, body: bytes) -> None:
    """Hold bytes against their digest."""
    found = digest_of(body, like=wanted)
    if found != wanted:
        raise _damaged(name, wanted, found)


def _damaged(name: Reference, wanted: str, found: str) -> RegistryError:
    return explain_trouble(Trouble.DAMAGED, name.host, str(name), f"{found} in the place of {wanted}")
