"""Sends a registry's requests: which scheme, certificates and proxy, redirects, waits and further tries."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from http.cookiejar import DefaultCookiePolicy
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import get_environ_proxies, select_proxy
from urllib3.exceptions import NewConnectionError

from trtmatrix.core.errors import shorten
from trtmatrix.core.registry import RegistryError, Trouble, explain_trouble
from trtmatrix.core.registry_auth import LOOPBACK, host_name, is_insecure, parse_retry_after
from trtmatrix.effects.registry_tls import TlsAdapter, trust_of

LONGEST_WAIT = 60.0
"""Seconds that are waited at most where a registry says to ask later."""

LARGEST_BODY = 16 << 20
"""Bytes: registries themselves take manifests of 4 MiB at most (https://github.com/distribution/distribution)."""

_REDIRECTS = 5
_PROXY = "what HTTPS_PROXY (HTTP_PROXY, ALL_PROXY) names"
_SOCKS = frozenset({"socks4", "socks4a", "socks5", "socks5h"})
_LATER = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is sent. ``host`` and ``what``: the registry and the image that it is about, for messages."""

    url: str
    host: str
    what: str
    method: str = "GET"
    accept: str = "*/*"
    authorization: str = ""
    form: Mapping[str, str] | None = None

    def trouble(self, trouble: Trouble, why: str) -> RegistryError:
        """Return the error for it."""
        return explain_trouble(trouble, self.host, self.what, why)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back; the names of ``headers`` are of any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Return a header, or nothing."""
        return self.headers.get(name) or ""


class _CutError(Exception):
    """A connection ended before the answer did."""


class _Authorization(AuthBase):
    """Sends this and nothing else: without it, requests would send what ``~/.netrc`` has for a host."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.value:
            r.headers["Authorization"] = self.value
        return r


class Wire:
    """Asks over HTTP; :class:`~trtmatrix.effects.registry.Registry` tells what its settings are."""

    def __init__(
        self,
        *,
        insecure: Sequence[str],
        sleep: Callable[[float], None],
        note: Callable[[str], None],
        attempts: int,
        seconds: tuple[float, float],
        certificates: Sequence[Path],
    ) -> None:
        """Keep how to ask; nothing is opened yet."""
        self._insecure, self._sleep, self._note = tuple(insecure), sleep, note
        self._attempts, self._seconds, self._certificates = attempts, seconds, tuple(certificates)
        self._lock = threading.Lock()
        self._schemes: dict[str, str] = {}
        self._plain: dict[str, bool] = {}
        self._sessions: dict[str, requests.Session] = {}

    def base(self, server: str, question: Question) -> str:
        """Return a registry's address with the scheme that it speaks; asked once, without any login.

        All but the insecure ones speak TLS. Raises :class:`RegistryError` where nobody answers.
        """
        if not self._is_insecure(server):
            return f"https://{server}"
        if server not in self._schemes:
            found = self._find_scheme(server, question)
            if not found:
                return f"http://{server}"  # it cut us off; what is asked next is tried again
            self._schemes[server] = found
        return f"{self._schemes[server]}://{server}"

    def ask(self, question: Question) -> Answer:
        """Return the answer to a question, whatever its status, but one that says to ask later.

        Cut connections and such answers are waited for and tried again. Raises :class:`RegistryError`.
        """
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                answer = self._follow(question)
            except _CutError as error:
                if last:
                    raise question.trouble(Trouble.UNREACHABLE, str(error)) from error
                self._wait(question, str(error), 2.0 ** (attempt - 1), attempt)
                continue
            if answer.status not in _LATER:
                return answer
            wait = _wait_of(answer)
            if last or (wait or 0) > LONGEST_WAIT:
                raise _later(question, answer, wait)
            self._wait(question, f"{answer.status}", 2.0 ** (attempt - 1) if wait is None else wait, attempt)
        raise question.trouble(Trouble.UNREACHABLE, "it was not asked at all")

    def _wait(self, question: Question, why: str, seconds: float, attempt: int) -> None:
        self._note(
            f"{question.host}: {why}; asking again in {seconds:.0f} s (try {attempt + 1} of {self._attempts})"
        )
        self._sleep(seconds)

    def _find_scheme(self, server: str, question: Question) -> str:
        """Return the scheme that an insecure registry speaks, or nothing where it only cuts us off.

        Without a port the two schemes are two servers, and TLS goes first, as in Docker.
        """
        error: RegistryError | None = None
        for scheme in ("http", "https") if urlsplit(f"//{server}").port else ("https", "http"):
            try:
                ping = replace(question, url=f"{scheme}://{server}/v2/", method="GET", authorization="")
                status = self._send(ping).status
            except RegistryError as found:
                error = found
            except _CutError:
                continue
            else:
                if status != 400 and not 300 <= status < 400:  # 400: a TLS server that was spoken to plainly
                    return scheme
        if error is not None:
            raise error
        return ""

    def _follow(self, question: Question) -> Answer:
        """Send a question and follow where it is sent on; a login goes to the host that it is for alone."""
        for _ in range(_REDIRECTS):
            answer = self._send(question)
            target = answer.header("Location")
            if answer.status not in {301, 302, 303, 307, 308} or not target:
                return answer
            try:
                question = self._sent_on(question, urljoin(question.url, target))
            except ValueError as error:
                raise question.trouble(Trouble.BROKEN, f"it sends on to {shorten(target)}") from error
        raise question.trouble(Trouble.BROKEN, f"it sends on more than {_REDIRECTS} times")

    def _sent_on(self, question: Question, target: str) -> Question:
        here, there = urlsplit(question.url), urlsplit(target)
        if there.scheme != "https" and (here.scheme == "https" or there.scheme != "http"):
            raise question.trouble(Trouble.BROKEN, f"it sends on to {shorten(target)}, which is not https")
        if (here.scheme, here.netloc) == (there.scheme, there.netloc):
            return replace(question, url=target)
        return replace(question, url=target, authorization="", form=None)

    def _send(self, question: Question) -> Answer:
        place = urlsplit(question.url)
        insecure = self._is_insecure(place.netloc)
        session = self._session_of(place.netloc, question, insecure=insecure)
        # Docker asks loopback without a proxy, whatever NO_PROXY says.
        near = is_insecure(place.netloc, LOOPBACK)
        if not near:
            _check_proxy(question)
        headers = {"Accept": question.accept, "Accept-Encoding": "identity", "User-Agent": "trtmatrix"}
        try:
            with session.request(
                question.method, question.url, headers=headers, data=question.form, stream=True,
                auth=_Authorization(question.authorization), timeout=self._seconds, allow_redirects=False,
                proxies={"no_proxy": host_name(place.netloc)} if near else None, verify=not insecure,
            ) as response:  # fmt: skip
                body = response.raw.read(LARGEST_BODY + 1, decode_content=True)
        except (
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as error:
            raise _explain(error, question, self._seconds) from error
        if len(body) > LARGEST_BODY:
            raise question.trouble(Trouble.BROKEN, f"it sent more than {LARGEST_BODY >> 20} MiB")
        return Answer(status=response.status_code, headers=response.headers, body=body)

    def _session_of(self, netloc: str, question: Question, *, insecure: bool) -> requests.Session:
        """Return a host's own session: its certificates are in it before anybody uses it."""
        with self._lock:
            if netloc not in self._sessions:
                session = requests.Session()
                session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
                session.mount("https://", self._adapter(netloc, question, insecure=insecure))
                self._sessions[netloc] = session
            return self._sessions[netloc]

    def _adapter(self, netloc: str, question: Question, *, insecure: bool) -> HTTPAdapter:
        """Return connections that trust what is set up for a host."""
        if insecure:
            # Its user has told the engine not to check it; a warning each time helps nobody.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            return HTTPAdapter()
        try:
            return TlsAdapter(trust_of(netloc, self._certificates) or ssl.create_default_context())
        except (OSError, ValueError) as error:
            why = f"its certificates in {', '.join(map(str, self._certificates))} cannot be used: {error}"
            raise question.trouble(Trouble.UNREACHABLE, why) from error

    def _is_insecure(self, netloc: str) -> bool:
        """Whether plain HTTP will do; a name is looked up where networks of the user's own are insecure."""
        if netloc not in self._plain:
            own = any("/" in each and each not in LOOPBACK for each in self._insecure)
            addresses = _addresses(host_name(netloc)) if own else ()
            self._plain[netloc] = is_insecure(netloc, self._insecure, addresses)
        return self._plain[netloc]


def _addresses(name: str) -> list[str]:
    """Return what a host's name stands for; engines hold it against their insecure networks."""
    with contextlib.suppress(OSError):
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return []


def _check_proxy(question: Question) -> None:
    """Refuse a proxy that cannot be used; its address may have a password in it, and is not told."""
    proxy = select_proxy(question.url, get_environ_proxies(question.url)) or ""
    if not proxy:
        return
    try:
        place = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        found = bool(place.hostname) and place.port != 0
    except ValueError:
        found = False
    if not found:
        raise question.trouble(Trouble.UNREACHABLE, f"the proxy does not help: {_PROXY} is no address of one")
    if place.scheme in _SOCKS and find_spec("socks") is None:
        why = "PySocks is missing: python -m pip install PySocks, or give it an HTTP proxy"
        raise question.trouble(Trouble.UNREACHABLE, f"{_PROXY} is of SOCKS, for which {why}")
    if place.scheme not in {"http", "https", *_SOCKS}:
        why = f"{_PROXY} is of {shorten(place.scheme)}://, and not of http://, https:// or socks5://"
        raise question.trouble(Trouble.UNREACHABLE, f"the proxy does not help: {why}")


def _wait_of(answer: Answer) -> float | None:
    return parse_retry_after(answer.header("Retry-After"), datetime.now(timezone.utc))


def _later(question: Question, answer: Answer, wait: float | None) -> RegistryError:
    """Return the error for an answer that says to ask later, and was asked often enough."""
    asks = f", and asks to wait {wait:.0f} s" if wait else ""
    trouble = Trouble.LIMITED if answer.status == 429 or wait else Trouble.BROKEN
    return question.trouble(trouble, f"it answers {answer.status}{asks}")


def _explain(error: Exception, question: Question, seconds: tuple[float, float]) -> Exception:
    """Return what ends the asking, or that the connection was cut, which may go better the next time."""
    text = str(error)
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if isinstance(error, (requests.exceptions.ProxyError, requests.exceptions.InvalidProxyURL)):
        inner = getattr(reason, "original_error", reason) or error
        why = shorten(str(inner).rpartition(": ")[2])
        return question.trouble(Trouble.UNREACHABLE, f"the proxy does not help: {why}")
    if isinstance(error, requests.exceptions.SSLError) and "EOF" not in text:
        return question.trouble(Trouble.UNREACHABLE, _explain_tls(text, urlsplit(question.url).netloc))
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return question.trouble(Trouble.UNREACHABLE, f"no connection within {seconds[0]:g} s")
    if isinstance(reason, NewConnectionError):
        return question.trouble(Trouble.UNREACHABLE, str(reason).rpartition(": ")[2])
    if isinstance(error, ValueError):  # an address that is none
        return question.trouble(Trouble.BROKEN, shorten(text))
    if isinstance(error, requests.exceptions.Timeout):
        return _CutError(f"nothing came for {seconds[1]:g} s")
    return _CutError("the connection was cut")


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
