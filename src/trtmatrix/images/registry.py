"""Asks registries what an image's name stands for: manifests and configurations, never a layer.

Logins, certificates and insecure registries are those that the engines have. Sources:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md and, of logins,
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import re
import ssl
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests import exceptions
from requests.adapters import HTTPAdapter
from requests.utils import parse_dict_header
from urllib3.exceptions import InsecureRequestWarning, NewConnectionError

from trtmatrix.common.errors import shorten
from trtmatrix.images import manifests
from trtmatrix.launchers.references import Reference, RegistryError, Trouble, explain_trouble, parse_reference
from trtmatrix.plan.lockfile import LockedImage, LockedPlatform

T = TypeVar("T")
LARGEST = 16 << 20
"""Bytes that an answer may have: registries need to take manifests of 4 MiB and no larger ones."""
TOGETHER = 8
"""Questions under way."""
PATIENCE = 2.0
"""Seconds after which it is told who is waited for."""
LATER = frozenset({429, 500, 502, 503, 504})
LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What engines speak plain HTTP with unasked. Source: https://docs.docker.com/reference/cli/dockerd/."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Registries, asked over their HTTP API; one may be used by several threads.

    ``insecure``: hosts and networks that are spoken to in plain HTTP, as the engine has them
    (``Engine.insecure``), beside loopback; ``attempts``: how often is asked where an answer does not come or
    is put off; ``seconds``: to connect, and between two pieces of an answer.
    """

    insecure: Sequence[str] = ()
    attempts: int = 4
    seconds: tuple[float, float] = (10.0, 30.0)

    def resolve(self, image: str) -> LockedImage:
        """Return what an image's name stands for now.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        name = parse_reference(image)
        digest, platforms = self._ask(name, _Repository.read)
        now = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
        return LockedImage(digest=digest, registry=name.host, resolved=now, platforms=platforms)

    def check(self, reference: str) -> str:
        """Return the digest that a reference stands for now, by its manifest alone; raises as the other."""
        name = parse_reference(reference)
        return self._ask(name, lambda repository: repository.manifest(name.wanted)[0])

    def _ask(self, name: Reference, ask: Callable[[_Repository], T]) -> T:
        try:
            return ask(_Repository(name, self))
        except manifests.ManifestError as error:
            raise explain_trouble(Trouble.BROKEN, name.host, str(name), str(error)) from error


def ask_registries(
    ask: Callable[[str], T], references: Sequence[str], *, seconds: float
) -> dict[str, T | RegistryError]:
    """Return what is answered for each reference within so many ``seconds`` in all, or what is wrong.

    Whose answers are missing after :data:`PATIENCE` is told. The threads are daemons, for a silent host
    cannot be called off: they hold up no interrupt, and no end of this process, as those of a pool would.
    """
    answers: dict[str, Future[T | RegistryError]] = {each: Future() for each in references}
    hosts, turns = {each: parse_reference(each).host for each in answers}, threading.Semaphore(TOGETHER)

    def attempt(reference: str) -> None:
        with turns:
            try:
                answers[reference].set_result(ask(reference))
            except RegistryError as error:
                answers[reference].set_result(error)
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                answers[reference].set_exception(error)

    for each in answers:
        threading.Thread(target=attempt, args=(each,), daemon=True).start()
    first = min(PATIENCE, seconds)
    if wait(answers.values(), first).not_done:
        silent = dict.fromkeys(hosts[each] for each, answer in answers.items() if not answer.done())
        print(f"trtmatrix: asking {', '.join(silent)} …", file=sys.stderr, flush=True)
    done, why = wait(answers.values(), seconds - first).done, f"it does not answer within {seconds:g} s"
    return {
        each: answer.result() if answer in done
        else explain_trouble(Trouble.UNREACHABLE, hosts[each], each, why)
        for each, answer in answers.items()
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What came; ``moved``: from a host that the registry sent on to."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    moved: bool

    @property
    def said(self) -> str:
        """What is wrong, in the registry's own words where it has any."""
        text = self.body[:200].decode("utf-8", "replace").strip()
        plain = "".join(letter if letter.isprintable() else " " for letter in text)
        return f"it answers {self.status}" + (f" ({plain})" if plain else "")


class _Tokens(manifests.Read):
    token: str | None = None
    access_token: str | None = None


class _Repository:
    """An image's repository at its registry, asked with the login that Docker's configuration has."""

    def __init__(self, name: Reference, settings: Registry) -> None:
        import docker.auth

        self.name, self.settings = name, settings
        # The login is that which Docker's configuration has; its credential stores and helpers are asked too.
        entry, self.no_login = dict[str, str](), ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a helper that is not here is told below, not by a warning
                found = docker.auth.load_config().resolve_authconfig(name.host) or {}
                entry = {str(key).lower(): str(value or "") for key, value in found.items()}
        except Exception as error:  # noqa: BLE001 - the file may hold anything, and a helper may do anything
            self.no_login = f"the login that Docker has cannot be read: {shorten(str(error))}"
        self.user, self.password = entry.get("username", ""), entry.get("password", "")
        self.plain = is_insecure(name.server, settings.insecure)
        self.authorization = ""
        # The session has the certificates of this host, and no login but ours.
        self.session = _Session()
        self.session.trust_env = not is_insecure(name.server, ())  # Docker asks loopback without a proxy
        self.session.auth = lambda request: request  # not what ~/.netrc has
        self.session.headers.update({"Accept-Encoding": "identity", "User-Agent": "trtmatrix"})
        self.session.max_redirects = 5
        if self.plain:  # who set it up as insecure knows
            urllib3.disable_warnings(InsecureRequestWarning)
        # What cannot get better is not tried again: nobody listens, a certificate that is not trusted.
        patience = urllib3.Retry(
            settings.attempts - 1, connect=0, other=0, status_forcelist=LATER, allowed_methods=None,
            backoff_factor=1, raise_on_status=False, respect_retry_after_header=False,
        )  # fmt: skip
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, HTTPAdapter(max_retries=patience))
        self.base = f"https://{name.server}"
        if self.plain:  # but for insecure registries that do not speak TLS
            try:
                self._send(f"{self.base}/v2/")
            except RegistryError as error:
                if error.trouble is not Trouble.UNREACHABLE:
                    raise
                self.base = f"http://{name.server}"

    def read(self) -> tuple[str, dict[str, LockedPlatform]]:
        """Return the digest that the name stands for, and the images behind it by platform.

        Engines go by the index where an image names another platform.
        """
        digest, found = self.manifest(self.name.wanted)
        named = {"": digest} if isinstance(found, manifests.Manifest) else found.images
        images = {}
        for platform, each in named.items():
            manifest = found if isinstance(found, manifests.Manifest) else self.manifest(each)[1]
            if isinstance(manifest, manifests.Index):
                raise manifests.ManifestError("its index names another index")
            wanted = manifest.config.digest
            configuration = self.get(f"blobs/{wanted}").body
            self._hold(configuration, wanted)
            own, image = manifests.locked_platform(each, manifest, configuration)
            if not platform and not own:
                raise manifests.ManifestError("its configuration names no platform")
            images[platform or own] = image
        return digest, images

    def manifest(self, wanted: str) -> tuple[str, manifests.Index | manifests.Manifest]:
        """Return a manifest or index and its digest, which is held against what was asked for and told."""
        answer = self.get(f"manifests/{wanted}")
        told = answer.headers.get("Docker-Content-Digest", "")
        for each in (wanted, told):
            if each.startswith("sha256:"):
                self._hold(answer.body, each)
        return _digest_of(answer.body), manifests.parse_manifest(answer.body)

    def _hold(self, body: bytes, wanted: str) -> None:
        if (found := _digest_of(body)) != wanted:
            raise self._trouble(Trouble.DAMAGED, f"{found} in the place of {wanted}")

    def get(self, path: str) -> _Answer:
        """Ask for something of the repository; :class:`RegistryError` where the answer is not good."""
        url = f"{self.base}/v2/{self.name.repository}/{path}"
        answer = self._send(url, self.authorization)
        # Only the registry itself names who logs in to it, not a host that it sends on to.
        if answer.status == 401 and not answer.moved:
            self.authorization = self._log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self._send(url, self.authorization)
        if answer.status in {401, 403}:
            raise self._refusal(answer.said)
        if answer.status != 200:
            raise self._trouble(Trouble.MISSING if answer.status == 404 else Trouble.BROKEN, answer.said)
        return answer

    def _log_in(self, header: str) -> str:
        """Return what a challenge wants to be sent: a token of the service that it names, or Basic."""
        pair = f"{self.user}:{self.password}".encode()
        basic = f"Basic {base64.b64encode(pair).decode()}" if self.password else ""
        bearer = re.search(r"(?i)\bbearer\s+(.+)", header)
        if bearer is None and re.search(r"(?i)\bbasic\b", header):
            if not basic:
                raise self._refusal("")
            return basic
        asked = parse_dict_header(bearer[1]) if bearer else {}  # type: ignore[no-untyped-call] # of requests
        realm = urlsplit(asked.get("realm") or "")
        allowed = {"https"} if self.base.startswith("https:") else {"https", "http"}
        if realm.scheme.lower() not in allowed:
            raise self._trouble(Trouble.BROKEN, f"it wants a login in a way that is not known: {header!r}")
        scope = asked.get("scope") or f"repository:{self.name.repository}:pull"
        answer = self._send(realm.geturl(), basic, {"service": asked.get("service", ""), "scope": scope})
        if answer.status in {400, 401, 403}:
            raise self._refusal(answer.said)
        with contextlib.suppress(manifests.ManifestError):
            given = manifests.read_as(_Tokens, answer.body)
            token = given.token or given.access_token or ""
            if answer.status == 200 and re.fullmatch(r"[!-~]+", token):
                return f"Bearer {token}"
        raise self._trouble(Trouble.BROKEN, f"its token service gives no token ({answer.said})")

    def _send(self, url: str, login: str = "", params: Mapping[str, str] | None = None) -> _Answer:
        """Return the answer, but one that says to ask later: that was asked often enough then."""
        headers = {"Accept": ", ".join(manifests.ACCEPTED)} | ({"Authorization": login} if login else {})
        body = bytearray()
        server = urlsplit(url).netloc  # a token service is another host, whose certificate is looked at
        verify = False if self.plain and server == self.name.server else find_authority(server)
        try:
            answer = self.session.get(
                url, headers=headers, params=params, stream=True, timeout=self.settings.seconds, verify=verify
            )
            for block in answer.iter_content(1 << 16):
                body += block
                if len(body) > LARGEST:
                    raise exceptions.RequestException(f"its answer has more than {LARGEST >> 20} MiB")
        except (OSError, ValueError, TypeError, urllib3.exceptions.HTTPError) as error:
            raise self._trouble(*explain_error(error, self.name.server)) from error
        status, wait = answer.status_code, answer.headers.get("Retry-After", "")
        if status in LATER:
            trouble = Trouble.LIMITED if status == 429 or wait else Trouble.BROKEN
            asks = f", and asks to wait {wait}" + (" s" if wait.isdigit() else "") if wait else ""
            raise self._trouble(trouble, f"it answers {status}{asks}")
        return _Answer(status=status, headers=answer.headers, body=bytes(body), moved=bool(answer.history))

    def _refusal(self, why: str) -> RegistryError:
        if self.password:
            return self._trouble(Trouble.WRONG_LOGIN, f"user {shorten(self.user)}; {why}".rstrip("; "))
        return self._trouble(Trouble.NEEDS_LOGIN, self.no_login or why)

    def _trouble(self, trouble: Trouble, why: str) -> RegistryError:
        return explain_trouble(trouble, self.name.host, str(self.name), why)


class _Session(requests.Session):
    """Goes where a registry sends it on to, but never from TLS to plain HTTP, and with no other login."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take the login off where another host is next; that of requests would add what ~/.netrc has."""
        here, there = response.url, prepared_request.url or ""
        if here.startswith("https:") and not there.startswith("https:"):
            raise exceptions.RequestException("it sends on from TLS to plain HTTP, where nobody goes")
        if self.should_strip_auth(here, there):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


def _digest_of(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"


def find_authority(server: str) -> str | bool:
    """Return the certificates by which a server is believed: its own ``ca.crt``, else the system's.

    Its own lies in a folder HOST or HOST:PORT, where Docker (also rootless) and Podman look. Sources:
    https://docs.docker.com/engine/security/certificates/ and containers-certs.d(5).
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - may have no home
    for place in ("/etc/docker", f"{home}/containers", f"{home}/docker", "/etc/containers"):
        if (file := Path(place, "certs.d", server, "ca.crt")).is_file():
            return str(file)
    system = ssl.get_default_verify_paths()
    return os.environ.get("REQUESTS_CA_BUNDLE") or system.cafile or system.capath or True


def is_insecure(host: str, insecure: Sequence[str]) -> bool:
    """Whether a host (with its port) is spoken to in plain HTTP; loopback always is.

    ``insecure``: hosts with their ports, and networks, which count for hosts that are given as addresses.
    Source: https://docs.docker.com/reference/cli/dockerd/#insecure-registries.
    """
    name = urlsplit(f"//{host}").hostname or host
    if host in insecure or name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    networks = (each for each in (*LOOPBACK, *insecure) if "/" in each)
    return any(address in ipaddress.ip_network(each, strict=False) for each in networks)


def explain_error(error: Exception, netloc: str) -> tuple[Trouble, str]:
    """Return what is wrong with a connection, in words."""
    text = re.sub(r"//[^/\s]*@", "//***@", str(error))  # a proxy's address may have a password in it
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        why = "it speaks plain HTTP, and is not in insecure-registries of /etc/docker/daemon.json"
    elif isinstance(error, exceptions.SSLError):
        place = f"its authority belongs in /etc/docker/certs.d/{netloc}/ca.crt"
        why = f"its certificate is not trusted: {shorten(text.rpartition('] ')[2])} ({place})"
    elif isinstance(error, TypeError) or re.search("(?i)proxy|socks", text):
        why = f"the proxy does not help: {shorten(text.rpartition(': ')[2])}"
    elif isinstance(error, exceptions.Timeout) or "timed out" in text:
        why = "nothing came in time"
    elif isinstance(reason, NewConnectionError):
        why = str(reason).rpartition(": ")[2]
    elif isinstance(error, exceptions.ConnectionError | exceptions.ChunkedEncodingError):
        why = "the connection was cut"
    else:
        return Trouble.BROKEN, shorten(text)
    return Trouble.UNREACHABLE, why
