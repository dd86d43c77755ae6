"""Asks registries what an image's name stands for: manifests and configurations, never a layer.

Sources: https://github.com/opencontainers/distribution-spec/blob/main/spec.md and, of logins,
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests import exceptions
from requests.adapters import HTTPAdapter
from requests.utils import parse_dict_header
from urllib3.exceptions import InsecureRequestWarning

from trtmatrix.common.errors import shorten
from trtmatrix.common.processes import ask_all
from trtmatrix.images.manifests import (
    ACCEPTED,
    ManifestError,
    Read,
    digest_of,
    is_index,
    locked_platform,
    parse_index,
    parse_manifest,
    read_as,
)
from trtmatrix.images.registry_access import (
    certificate_folders,
    explain_error,
    find_login,
    is_insecure,
    trust,
)
from trtmatrix.launchers.references import (
    Reference,
    RegistryError,
    Trouble,
    explain_trouble,
    is_digest,
    parse_reference,
)
from trtmatrix.plan.lockfile import LockedImage, LockedPlatform

T = TypeVar("T")

LONGEST_WAIT = 10.0
"""Seconds: where a registry says to ask later than that, it is told at once."""
LARGEST = 16 << 20
"""Bytes that an answer may have: registries need to take manifests of 4 MiB and no larger ones."""

LATER = frozenset({429, 500, 502, 503, 504})


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
        digest, platforms = self._ask(image, _Repository.read)
        now = datetime.now(timezone.utc).replace(microsecond=0)
        host = parse_reference(image).host
        return LockedImage(digest=digest, registry=host, resolved=now.isoformat(), platforms=platforms)

    def check(self, reference: str) -> str:
        """Return the digest that a reference stands for now, by its manifest alone; raises as the other."""
        return self._ask(reference, lambda repository: repository.manifest(repository.name.wanted)[0])

    def _ask(self, reference: str, ask: Callable[[_Repository], T]) -> T:
        name = parse_reference(reference)
        try:
            return ask(_Repository(name, self))
        except ManifestError as error:
            raise explain_trouble(Trouble.BROKEN, name.host, str(name), str(error)) from error


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What came; ``moved``: from a host that the registry sent on to."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    moved: bool


def ask_registries(
    ask: Callable[[str], T], references: Sequence[str], *, seconds: float, tell: bool = False
) -> dict[str, T | RegistryError]:
    """Return what is answered for each reference within so many ``seconds`` in all, or what is wrong.

    ``tell``: say on stderr whom it waits for.
    """

    def attempt(reference: str) -> T | RegistryError:
        try:
            return ask(reference)
        except RegistryError as error:
            return error

    def note(missing: list[str]) -> None:
        hosts = ", ".join(dict.fromkeys(parse_reference(each).host for each in missing))
        if tell:
            print(f"trtmatrix: asking {hosts} …", file=sys.stderr, flush=True)

    answers = ask_all(attempt, references, seconds=seconds, note=note)
    late = [reference for reference in references if reference not in answers]
    for each in late:
        why = f"it does not answer within {seconds:g} s"
        answers[each] = explain_trouble(Trouble.UNREACHABLE, parse_reference(each).host, each, why)
    return answers


class _Repository:
    """An image's repository at its registry, asked with the login that Docker's configuration has."""

    def __init__(self, name: Reference, settings: Registry) -> None:
        self.name, self.settings, self.login = name, settings, find_login(name.host)
        self.plain = is_insecure(name.server, settings.insecure)
        self.authorization = ""
        self.session = self._open_session()
        self.base = self._find_base()

    def read(self) -> tuple[str, dict[str, LockedPlatform]]:
        """Return the digest that the name stands for, and the images behind it by platform.

        Engines go by the index where an image names another platform.
        """
        digest, body = self.manifest(self.name.wanted)
        if is_index(body):
            found = parse_index(body)
            return digest, {each: self._platform(d, self.manifest(d)[1])[1] for each, d in found.items()}
        platform, image = self._platform(digest, body)
        if not platform:
            raise ManifestError("its configuration names no platform")
        return digest, {platform: image}

    def _platform(self, digest: str, body: bytes) -> tuple[str, LockedPlatform]:
        manifest = parse_manifest(body)
        wanted = manifest.config.digest
        return locked_platform(digest, manifest, self._hold(wanted, self.get(f"blobs/{wanted}").body))

    def manifest(self, wanted: str) -> tuple[str, bytes]:
        """Return the digest and the bytes of a manifest or index, which are held together."""
        answer = self.get(f"manifests/{wanted}")
        told = answer.headers.get("Docker-Content-Digest", "")
        digest = wanted if is_digest(wanted) else told if is_digest(told) else digest_of(answer.body)
        self._hold(digest, answer.body)
        if is_digest(told) and told != digest:
            raise self._damaged(digest, told)
        return digest, answer.body

    def _hold(self, wanted: str, body: bytes) -> bytes:
        """Hold bytes against their digest."""
        if (found := digest_of(body, like=wanted)) != wanted:
            raise self._damaged(wanted, found)
        return body

    def _damaged(self, wanted: str, found: str) -> RegistryError:
        return self._trouble(Trouble.DAMAGED, f"{found} in the place of {wanted}")

    def get(self, path: str) -> _Answer:
        """Ask for something of the repository; :class:`RegistryError` where the answer is not good."""
        url = f"{self.base}/v2/{self.name.repository}/{path}"
        answer = self._send(url, self.authorization)
        # Only the registry itself names who logs in to it, not a host that it sends on to.
        if answer.status == 401 and not answer.moved:
            self.authorization = self._log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self._send(url, self.authorization)
        if answer.status in {401, 403}:
            raise self._refusal(_said(answer))
        if answer.status != 200:
            raise self._trouble(Trouble.MISSING if answer.status == 404 else Trouble.BROKEN, _said(answer))
        return answer

    def _log_in(self, header: str) -> str:
        """Return what a challenge wants to be sent: a token of the service that it names, or Basic."""
        pair = f"{self.login.user}:{self.login.password}".encode()
        basic = f"Basic {base64.b64encode(pair).decode()}" if self.login.password else ""
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
            raise self._refusal(_said(answer))
        with contextlib.suppress(ManifestError):
            given = read_as(_Tokens, answer.body)
            token = given.token or given.access_token or ""
            if answer.status == 200 and re.fullmatch(r"[!-~]+", token):
                return f"Bearer {token}"
        raise self._trouble(Trouble.BROKEN, f"its token service gives no token ({_said(answer)})")

    def _send(self, url: str, login: str = "", params: Mapping[str, str] | None = None) -> _Answer:
        """Return the answer, but one that says to ask later: that was asked often enough then."""
        headers = {"Accept": ", ".join(ACCEPTED)} | ({"Authorization": login} if login else {})
        seconds, body = self.settings.seconds, b""
        verify = not (
            self.plain and urlsplit(url).netloc == self.name.server
        )  # a token service is another host
        try:
            answer = self.session.get(
                url, headers=headers, params=params, stream=True, timeout=seconds, verify=verify
            )
            for block in answer.iter_content(1 << 16):
                body += block
                if len(body) > LARGEST:
                    raise exceptions.RequestException(f"its answer has more than {LARGEST >> 20} MiB")
        except (OSError, ValueError, TypeError, urllib3.exceptions.HTTPError) as error:
            raise self._trouble(*explain_error(error, self.name.server, seconds)) from error
        status, wait = answer.status_code, answer.headers.get("Retry-After", "")
        if status in LATER:
            trouble = Trouble.LIMITED if status == 429 or wait else Trouble.BROKEN
            asks = f", and asks to wait {wait}" + (" s" if wait.isdigit() else "") if wait else ""
            raise self._trouble(trouble, f"it answers {status}{asks}")
        return _Answer(status=status, headers=answer.headers, body=body, moved=bool(answer.history))

    def _find_base(self) -> str:
        """Return the registry's address: with TLS, but for insecure ones that do not speak it."""
        server = self.name.server
        if self.plain:
            try:
                self._send(f"https://{server}/v2/")
            except RegistryError as error:
                if error.trouble is Trouble.UNREACHABLE:
                    return f"http://{server}"
                raise
        return f"https://{server}"

    def _open_session(self) -> requests.Session:
        """Return a session with the certificates of this host, and no login but ours."""
        session = _Session()
        session.trust_env = not is_insecure(self.name.server, ())  # Docker asks loopback without a proxy
        session.auth = lambda request: request  # not what ~/.netrc has
        session.headers.update({"Accept-Encoding": "identity", "User-Agent": "trtmatrix"})
        session.max_redirects = 5
        context = None
        if self.plain:  # who set it up as insecure knows
            urllib3.disable_warnings(InsecureRequestWarning)
        else:
            context, folders = ssl.create_default_context(), certificate_folders()
            try:
                trust(context, self.name.server, folders)
            except (OSError, ValueError) as error:
                why = f"its certificates in {', '.join(map(str, folders))} cannot be used: {error}"
                raise self._trouble(Trouble.UNREACHABLE, why) from error
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter(self.settings.attempts, context))
        return session

    def _refusal(self, why: str) -> RegistryError:
        if self.login.password:
            return self._trouble(Trouble.WRONG_LOGIN, f"user {shorten(self.login.user)}; {why}".rstrip("; "))
        return self._trouble(Trouble.NEEDS_LOGIN, self.login.why or why)

    def _trouble(self, trouble: Trouble, why: str) -> RegistryError:
        return explain_trouble(trouble, self.name.host, str(self.name), why)


class _Tokens(Read):
    token: str | None = None
    access_token: str | None = None


class _Error(Read):
    code: str | None = None
    message: str | None = None


class _Errors(Read):
    errors: list[_Error]


class _Session(requests.Session):
    """Goes where a registry sends it on to, but never from TLS to plain HTTP, and with no other login."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take the login off where another host is next; that of requests would add what ~/.netrc has."""
        here, there = response.url, prepared_request.url or ""
        if here.startswith("https:") and not there.startswith("https:"):
            raise exceptions.RequestException("it sends on from TLS to plain HTTP, where nobody goes")
        if self.should_strip_auth(here, there):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


class _Patience(urllib3.Retry):
    """Waits as a registry asks for, but not for longer than :data:`LONGEST_WAIT`."""

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        wait = super().get_retry_after(response)
        return wait if wait is None or wait <= LONGEST_WAIT else None


class _Adapter(HTTPAdapter):
    """Connections with TLS settings, also through a proxy.

    Nothing that cannot get better is tried again: nobody who listens, a certificate that is not trusted.
    """

    def __init__(self, attempts: int, context: ssl.SSLContext | None) -> None:
        self._tls: dict[str, Any] = {"ssl_context": context} if context else {}
        super().__init__(max_retries=_Patience(
            attempts - 1, connect=0, other=0, status_forcelist=LATER, allowed_methods=None,
            backoff_factor=1, raise_on_status=False,
        ))  # fmt: skip

    def init_poolmanager(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as requests has it
        super().init_poolmanager(*args, **{**more, **self._tls})

    def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:  # noqa: ANN401 - as requests has it
        return super().proxy_manager_for(proxy, **{**more, **self._tls})


def _said(answer: _Answer) -> str:
    """Return what a registry says went wrong, in its own words where it has any."""
    said = ""
    with contextlib.suppress(ManifestError, IndexError):
        first = read_as(_Errors, answer.body).errors[0]
        said = f"{first.code or ''} {first.message or ''}".strip()
    plain = "".join(letter if letter.isprintable() else " " for letter in said)[:200]
    return f"it answers {answer.status}" + (f" ({plain})" if plain else "")
