"""Asks registries what an image's name stands for: manifests and configurations, never a layer.

Logins, tokens and their renewal are those of oras (https://github.com/oras-project/oras-py); beside it stand
what it has not: time limits, an engine's certificates and insecure registries, digests, and words for users.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import socket
import ssl
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from oras.auth.token import TokenAuth
from oras.auth.utils import authHeader, parse_auth_header
from oras.logger import logger, setup_logger
from oras.provider import Registry as Client
from requests import exceptions
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.exceptions import InsecureRequestWarning, NewConnectionError

from trtmatrix.common.errors import shorten
from trtmatrix.images.manifests import (
    ACCEPTED,
    INDEXES,
    MANIFESTS,
    ManifestError,
    digest_of,
    locked_platform,
    media_type,
    parse_body,
    parse_index,
    parse_manifest,
)
from trtmatrix.launchers.lock import LockedImage, LockedPlatform
from trtmatrix.launchers.references import (
    Reference,
    RegistryError,
    Trouble,
    explain_trouble,
    is_digest,
    parse_reference,
)

ATTEMPTS = 4
SECONDS = (10.0, 30.0)
LONGEST_WAIT = 60.0
"""Seconds that are waited at most where a registry says to ask later."""

LATER = frozenset({429, 500, 502, 503, 504})
LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What engines speak plain HTTP with unasked. Source: https://docs.docker.com/reference/cli/dockerd/."""

ANYBODY = "00000000-0000-0000-0000-000000000000"
"""Who has a token of identity: https://learn.microsoft.com/azure/container-registry/container-registry-authentication."""

setup_logger(quiet=True)
logger.set_level(logging.CRITICAL + 1)  # what it tells of logins is told by our own errors


class Registry:
    """Registries, asked over their HTTP API; one may be used by several threads.

    ``insecure``: hosts and networks that are spoken to in plain HTTP, as the engine has them
    (``Engine.insecure``), beside loopback; ``attempts``: how often is asked where an answer does
    not come or is put off; ``seconds``: to connect, and between two pieces of an answer;
    ``certificates``: folders in the manner of ``/etc/docker/certs.d``, else those of Docker and Podman.
    Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
    """

    def __init__(
        self,
        *,
        insecure: Sequence[str] = (),
        attempts: int = ATTEMPTS,
        seconds: tuple[float, float] = SECONDS,
        certificates: Sequence[Path] | None = None,
    ) -> None:
        """Keep how to ask; nothing is asked yet."""
        self.insecure, self.attempts, self.seconds = tuple(insecure), attempts, seconds
        self.certificates = certificate_folders() if certificates is None else tuple(certificates)

    def resolve(self, image: str, ask: str | None = None) -> LockedImage:
        """Return what an image's name stands for now. ``ask``: the reference really asked, a mirror's.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        name = parse_reference(ask or image)
        try:
            digest, platforms = _Repository(name, self).read()
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
        repository = _Repository(name, self)
        try:
            told = repository.get(f"manifests/{name.wanted}", "HEAD").headers.get("Docker-Content-Digest", "")
        except RegistryError as error:
            if error.trouble is not Trouble.BROKEN:
                raise
            told = ""  # a registry without HEAD, or a real trouble, which the next question tells of
        if not is_digest(told):
            return repository.manifest(name.wanted)[0]
        if name.digest and name.digest != told:
            raise _damaged(name, name.digest, told)
        return told


class _Repository:
    """An image's repository at its registry, asked with the login that Docker's configuration has."""

    def __init__(self, name: Reference, settings: Registry) -> None:
        self.name, self.settings, self.login = name, settings, find_login(name.host)
        self.plain = is_insecure(name.server, settings.insecure)
        self.last: requests.Response | None = None
        session = self._session()
        base, challenge = self._find_base(session)
        basic = challenge.lower().startswith("basic")
        if basic and not self.login.password:
            raise self._refusal("")
        self.client = Client(
            name.server, insecure=base.startswith("http:"),
            auth_backend="basic" if basic else "token",
        )  # fmt: skip
        if not basic:
            self.client.auth = _Tokens(self, base)
        self.client.session = self.client.auth.session = session
        if self.login.password:
            self.client.auth.set_basic_auth(self.login.user, self.login.password)
        self.base = f"{base}/v2/{name.repository}"
        if challenge and not basic:
            self.check_challenge(challenge, base)

    def check_challenge(self, challenge: str, base: str) -> None:
        """Refuse a token service that is not named, or that a registry with TLS has on plain HTTP."""
        realm = (parse_auth_header(challenge).realm or "").strip().lower()
        if not realm or (base.startswith("https:") and realm.startswith("http:")):
            raise self._trouble(Trouble.BROKEN, f"it wants a login in a way that is not known: {challenge!r}")

    def read(self) -> tuple[str, tuple[LockedPlatform, ...]]:
        """Return the digest that the name stands for, and the images behind it."""
        digest, kind, body = self.manifest(self.name.wanted)
        if kind not in INDEXES:
            return digest, (self._platform(digest, body),)
        found = [
            self._platform(entry.digest, self.manifest(entry.digest)[2], entry.platform)
            for entry in parse_index(parse_body(body))
        ]
        return digest, tuple(found)

    def _platform(self, digest: str, body: bytes, platform: str = "") -> LockedPlatform:
        config, layers = parse_manifest(parse_body(body))
        held = self._hold(config.digest, self.get(f"blobs/{config.digest}").content)
        return locked_platform(digest, config, layers, parse_body(held), platform)

    def manifest(self, wanted: str) -> tuple[str, str, bytes]:
        """Return the digest, the media type and the bytes of a manifest or index, which are held together."""
        answer = self.get(f"manifests/{wanted}")
        told = answer.headers.get("Docker-Content-Digest", "")
        digest = wanted if is_digest(wanted) else told if is_digest(told) else digest_of(answer.content)
        self._hold(digest, answer.content)
        if is_digest(told) and told != digest:
            raise _damaged(self.name, digest, told)
        kind = media_type(parse_body(answer.content), answer.headers.get("Content-Type", ""))
        if kind not in (*INDEXES, *MANIFESTS):
            raise ManifestError(f"it is {shorten(kind)}, which is no image's manifest")
        return digest, kind, answer.content

    def _hold(self, wanted: str, body: bytes) -> bytes:
        """Hold bytes against their digest."""
        if (found := digest_of(body, like=wanted)) != wanted:
            raise _damaged(self.name, wanted, found)
        return body

    def get(self, path: str, method: str = "GET") -> requests.Response:
        """Ask for something of the repository; :class:`RegistryError` where the answer is not good."""
        headers = {"Accept": ", ".join(ACCEPTED), "Accept-Encoding": "identity", "User-Agent": "trtmatrix"}
        # Without oras's own tries, which wait for two minutes in all, also for what will never be otherwise.
        ask = Client.do_request.__wrapped__
        send = partial(ask, self.client, f"{self.base}/{path}", method)
        try:
            answer = self._ask(lambda: send(headers=dict(headers)))
            if answer.status_code == 401 and getattr(self.client.auth, "token", None):
                self.client.auth.token = None  # it is no longer good: oras sends it again as it is
                answer = self._ask(lambda: send(headers=dict(headers)))
        except (ValueError, AttributeError, TypeError) as error:  # of oras: it has got no token
            if self.last is not None and self.last.status_code in {400, 401, 403}:
                raise self._refusal(_said(self.last)) from error
            raise self._trouble(Trouble.BROKEN, f"its token service gives no token ({error})") from error
        if answer.status_code in {401, 403}:
            raise self._refusal(_said(answer))
        if answer.status_code != 200:
            missing = answer.status_code == 404
            raise self._trouble(Trouble.MISSING if missing else Trouble.BROKEN, _said(answer))
        return answer

    def _ask(self, ask: Callable[[], requests.Response]) -> requests.Response:
        """Return the answer, but one that says to ask later; that was asked often enough then."""
        try:
            answer = ask()
        except (exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._trouble(*explain_error(error, self.name.server, self.settings.seconds)) from error
        if answer.status_code in LATER:
            wait = answer.headers.get("Retry-After", "")
            trouble = Trouble.LIMITED if answer.status_code == 429 or wait else Trouble.BROKEN
            asks = f", and asks to wait {wait}" + (" s" if wait.isdigit() else "") if wait else ""
            raise self._trouble(trouble, f"it answers {answer.status_code}{asks}")
        return answer

    def _find_base(self, session: requests.Session) -> tuple[str, str]:
        """Return the registry's address with the scheme that it speaks, and how it wants to be logged in to.

        All but the insecure ones speak TLS. Of those without a port TLS goes first, as in Docker.
        """
        server = self.name.server
        schemes = ["http", "https"] if urlsplit(f"//{server}").port else ["https", "http"]
        for scheme in schemes if self.plain else ["https"]:
            last = not self.plain or scheme == schemes[-1]
            base = f"{scheme}://{server}"
            try:
                answer = self._ask(partial(session.get, f"{base}/v2/"))
            except RegistryError as error:
                if last or error.trouble is not Trouble.UNREACHABLE:
                    raise
            except (TypeError, ValueError) as error:  # of requests, of a proxy's address that is none
                raise self._trouble(Trouble.UNREACHABLE, f"the proxy does not help: {error}") from error
            else:
                if last or answer.status_code != 400:  # 400: a TLS server that was spoken to plainly
                    return base, answer.headers.get("WWW-Authenticate", "")
        raise AssertionError("unreachable")

    def _session(self) -> requests.Session:
        """Return a session with the certificates of this host, and no login but ours."""
        session = _Session()
        session.trust_env = not is_insecure(self.name.server, ())  # Docker asks loopback without a proxy
        session.auth = lambda request: request  # not what ~/.netrc has
        session.max_redirects = 5
        session.hooks["response"].append(self._keep)
        context = ssl.create_default_context()
        if not self.plain:
            try:
                trust(context, self.name.server, self.settings.certificates)
            except (OSError, ValueError) as error:
                places = ", ".join(map(str, self.settings.certificates))
                why = f"its certificates in {places} cannot be used: {error}"
                raise self._trouble(Trouble.UNREACHABLE, why) from error
        session.mount("http://", _Adapter(self.settings))
        session.mount("https://", _Adapter(self.settings, context))
        if self.plain:
            urllib3.disable_warnings(InsecureRequestWarning)  # who set it up as insecure knows
            session.insecure, session.unchecked = (
                self.settings.insecure,
                _Adapter(self.settings, verify=False),
            )
        return session

    def _keep(self, answer: requests.Response, **_: object) -> None:
        self.last = answer

    def _refusal(self, why: str) -> RegistryError:
        if self.login.password:
            return self._trouble(Trouble.WRONG_LOGIN, f"user {shorten(self.login.user)}; {why}".rstrip("; "))
        return self._trouble(Trouble.NEEDS_LOGIN, self.login.why or why)

    def _trouble(self, trouble: Trouble, why: str) -> RegistryError:
        return explain_trouble(trouble, self.name.host, str(self.name), why)


class _Session(requests.Session):
    """Goes where a registry sends it on to, but never from TLS to plain HTTP, and with no other login."""

    insecure: tuple[str, ...] = ()
    unchecked: _Adapter | None = None
    """What insecure hosts are asked by, where the registry is one; other hosts' certificates are checked."""

    def get_adapter(self, url: str) -> BaseAdapter:
        """Return what a host is asked by."""
        where = urlsplit(url)
        if self.unchecked and where.scheme == "https" and is_insecure(where.netloc, self.insecure):
            return self.unchecked
        return super().get_adapter(url)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take the login off where another host is next; that of requests would add what ~/.netrc has."""
        here, there = response.url, prepared_request.url or ""
        if here.startswith("https:") and not there.startswith("https:"):
            raise exceptions.RequestException("it sends on from TLS to plain HTTP, where nobody goes")
        if self.should_strip_auth(here, there):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


class _Tokens(TokenAuth):  # type: ignore[misc]  # oras has no types
    """Tokens from the service that the registry itself names, not one that it sends on to."""

    def __init__(self, asked: _Repository, base: str) -> None:
        super().__init__()
        self.prefix, self._tls_verify = base.partition(":")[0], True
        self._asked, self._base = asked, base

    def authenticate_request(
        self, original: requests.Response, headers: dict[str, str], refresh: bool = False
    ) -> tuple[dict[str, str], bool]:
        challenge = original.headers.get("WWW-Authenticate", "")
        if original.history or urlsplit(original.url)[:2] != urlsplit(self._base.lower())[:2]:
            return headers, False
        if challenge:
            self._asked.check_challenge(challenge, self._base)
        found: tuple[dict[str, str], bool] = super().authenticate_request(original, headers, refresh)
        return found

    def request_token(self, h: authHeader) -> Any:  # noqa: ANN401 - as oras has it
        return super().request_token(self._scoped(h))

    def request_anonymous_token(self, h: authHeader) -> Any:  # noqa: ANN401 - as oras has it
        return super().request_anonymous_token(self._scoped(h))

    def _scoped(self, h: authHeader) -> authHeader:
        h.scope = h.scope or f"repository:{self._asked.name.repository}:pull"
        return h


class _Patience(urllib3.Retry):
    """Waits as a registry asks for, but not for long."""

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        wait = super().get_retry_after(response)
        return wait if wait is None or wait <= LONGEST_WAIT else None


class _Adapter(HTTPAdapter):
    """Connections with these time limits and TLS settings, also through a proxy.

    Nothing that cannot get better is tried again: nobody who listens, a certificate that is not trusted.
    """

    def __init__(
        self, settings: Registry, context: ssl.SSLContext | None = None, *, verify: bool = True
    ) -> None:
        self._seconds, self._verify = settings.seconds, verify
        self._tls: dict[str, Any] = {"ssl_context": context} if context else {}
        super().__init__(max_retries=_Patience(
            settings.attempts - 1, connect=0, other=0, status_forcelist=LATER, allowed_methods=None,
            backoff_factor=1, raise_on_status=False,
        ))  # fmt: skip

    def init_poolmanager(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as requests has it
        super().init_poolmanager(*args, **{**more, **self._tls})

    def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:  # noqa: ANN401 - as requests has it
        return super().proxy_manager_for(proxy, **{**more, **self._tls})

    def send(self, request: Any, *args: Any, **more: Any) -> requests.Response:  # noqa: ANN401 - as requests has it
        if not self._verify:
            more["verify"] = False
        return super().send(request, *args, **{**more, "timeout": self._seconds})


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user and a password; both empty where there is no login, ``why`` if known."""

    user: str = ""
    password: str = ""
    why: str = ""


def find_login(host: str) -> Login:
    """Return what Docker's configuration has for a host (its credential stores and helpers too).

    By docker-py, since oras knows neither DOCKER_CONFIG nor Docker Hub's own name for itself.
    """
    import docker.auth
    import docker.errors

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not here is told below, not by a warning
            found = docker.auth.load_config().resolve_authconfig(host) or {}
    except (
        docker.errors.DockerException,
        ValueError,
        OSError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        return Login(why=f"the login that Docker has cannot be read: {shorten(str(error))}")
    entry = {str(key).lower(): str(value or "") for key, value in found.items()}
    if identity := entry.get("identitytoken"):
        return Login(user=entry.get("username") or ANYBODY, password=identity)
    return Login(user=entry.get("username", ""), password=entry.get("password", ""))


def certificate_folders() -> tuple[Path, ...]:
    """Return where Docker (also rootless) and Podman look for certificates: in folders HOST or HOST:PORT.

    Sources: https://docs.docker.com/engine/security/certificates/ and containers-certs.d(5).
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.path.expanduser("~")) / ".config")  # noqa: PTH111 - may have no home
    own = (home / "containers/certs.d", home / "docker/certs.d")
    return (Path("/etc/docker/certs.d"), *own, Path("/etc/containers/certs.d"))


def trust(context: ssl.SSLContext, netloc: str, folders: Sequence[Path]) -> None:
    """Trust a host's own authorities (``*.crt``) beside the system's, and show it ``NAME.cert``."""
    for file in sorted(file for folder in folders for file in (folder / netloc).glob("*")):
        if file.suffix == ".crt":
            context.load_verify_locations(cafile=file)
        elif file.suffix == ".cert":
            context.load_cert_chain(file, file.with_suffix(".key"))


def is_insecure(host: str, insecure: Sequence[str]) -> bool:
    """Whether a host (with its port) is spoken to in plain HTTP, by Docker's rule; loopback always is.

    ``insecure``: hosts with their ports, and networks, which the host's addresses are looked up for.
    Source: https://docs.docker.com/reference/cli/dockerd/#insecure-registries.
    """
    if host in insecure:
        return True
    name = urlsplit(f"//{host}").hostname or host
    addresses = ["127.0.0.1" if name == "localhost" else name]
    networks = [each for each in insecure if "/" in each and each not in LOOPBACK]
    if networks:
        with contextlib.suppress(OSError):
            addresses += [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    return any(_is_in(address, network) for address in addresses for network in (*LOOPBACK, *networks))


def _is_in(address: str, network: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    return False


def explain_error(error: Exception, netloc: str, seconds: tuple[float, float]) -> tuple[Trouble, str]:
    """Return what is wrong with a connection, in words."""
    text = re.sub(r"//[^/\s]*@", "//***@", str(error))  # a proxy's address may have a password in it
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    match error:
        case exceptions.ProxyError():
            inner = str(getattr(reason, "original_error", reason) or text)
            return Trouble.UNREACHABLE, f"the proxy does not help: {shorten(inner.rpartition(': ')[2])}"
        case exceptions.SSLError():
            return Trouble.UNREACHABLE, _explain_tls(text, netloc)
        case exceptions.ConnectTimeout():
            return Trouble.UNREACHABLE, f"no connection within {seconds[0]:g} s"
        case exceptions.ConnectionError() if isinstance(reason, NewConnectionError):
            return Trouble.UNREACHABLE, str(reason).rpartition(": ")[2]
        case exceptions.Timeout() | exceptions.ConnectionError() if "timed out" in text:
            return Trouble.UNREACHABLE, f"nothing came for {seconds[1]:g} s"
        case exceptions.ConnectionError() | exceptions.ChunkedEncodingError():
            return Trouble.UNREACHABLE, "the connection was cut"
        case _ if isinstance(error, exceptions.InvalidProxyURL) or re.search("(?i)proxy|socks", text):
            return Trouble.UNREACHABLE, f"the proxy does not help: {shorten(text)}"
        case _:
            return Trouble.BROKEN, shorten(text)


def _explain_tls(text: str, netloc: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        return (
            "it speaks plain HTTP, which is taken from registries alone that the engine has as insecure "
            "(insecure-registries in /etc/docker/daemon.json)"
        )
    if "_ALERT_" in text and "CERTIFICATE" in text:  # it is the other side that is not content
        return f"it wants a client's certificate (client.cert and client.key in /etc/docker/certs.d/{netloc})"
    return (
        f"its certificate is not trusted: {shorten(text.rpartition('] ')[2])} (its authority belongs in "
        f"/etc/docker/certs.d/{netloc}/ca.crt)"
    )


def _said(answer: requests.Response) -> str:
    """Return what a registry says went wrong, in its own words where it has any."""
    try:
        first = parse_body(answer.content)["errors"][0]
        said = f"{first.get('code') or ''} {first.get('message') or ''}".strip()
    except (ManifestError, KeyError, IndexError, TypeError, AttributeError):
        said = ""
    plain = "".join(letter if letter.isprintable() else " " for letter in said)[:200]
    return f"it answers {answer.status_code}" + (f" ({plain})" if plain else "")


def _damaged(name: Reference, wanted: str, found: str) -> RegistryError:
    return explain_trouble(Trouble.DAMAGED, name.host, str(name), f"{found} in the place of {wanted}")
