"""Who asks a registry: logins from Docker's own configuration, and the tokens that they are changed for."""

from __future__ import annotations

import json
import threading
import warnings
from base64 import b64encode
from dataclasses import dataclass, replace

import requests

from trtmatrix.core.errors import shorten
from trtmatrix.core.registry import Reference, RegistryError, Trouble, explain_trouble
from trtmatrix.core.registry_auth import Challenge, TokenRequest, parse_challenges, token_request
from trtmatrix.effects.registry_wire import Answer, Question, Wire


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user and a password, or a token of identity; all empty where there is no login, ``why`` if known."""

    user: str = ""
    password: str = ""
    identity: str = ""
    why: str = ""

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return bool(self.user or self.identity)

    @property
    def basic(self) -> str:
        """What is sent by it, or nothing."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {b64encode(pair).decode()}" if self.user else ""


def find_login(host: str) -> Login:
    """Return what Docker's configuration has for a host (its credential stores and helpers too)."""
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
        # The last three: what docker-py makes of a configuration that is of another shape.
        return Login(why=f"the login that Docker has cannot be read: {shorten(str(error))}")
    entry = {str(key).lower(): str(value or "") for key, value in found.items()}
    return Login(
        user=entry.get("username", ""), password=entry.get("password", ""),
        identity=entry.get("identitytoken", ""),
    )  # fmt: skip


class Authority:
    """Proves to registries who asks; what was proved is kept, a token for each registry and scope."""

    def __init__(self, wire: Wire) -> None:
        """Keep how to ask; nobody is logged in yet."""
        self._wire = wire
        self._lock = threading.RLock()
        self._logins: dict[str, Login] = {}
        self._challenges: dict[str, Challenge] = {}
        self._proofs: dict[tuple[str, str], str] = {}

    def login(self, host: str) -> Login:
        """Return the login for a host, looked up once."""
        with self._lock:
            if host not in self._logins:
                self._logins[host] = find_login(host)
            return self._logins[host]

    def known(self, name: Reference) -> str:
        """Return what proved to be enough for an image's repository before, or nothing."""
        return self._proofs.get(_key(name), "")

    def prove(self, name: Reference, answer: Answer, used: str) -> str:
        """Return what to send after a registry answered 401. ``used``: what was sent to it.

        The first challenge of a registry is kept: nvcr.io names another place for tokens once one has run
        out, which gives none without a login (https://github.com/NVIDIA/nvidia-container-toolkit/issues/1945).
        Raises :class:`RegistryError`.
        """
        with self._lock:
            known = self.known(name)
            if known != used:  # another thread was here
                return known
            if name.host not in self._challenges:
                self._challenges[name.host] = _choose(name, answer)
            challenge = self._challenges[name.host]
            proof = (
                self._basic(name, used)
                if challenge.scheme == "basic"
                else f"Bearer {self._token(name, challenge)}"
            )
            self._proofs[_key(name)] = proof
            return proof

    def refusal(self, name: Reference, why: str) -> RegistryError:
        """Return the error for an answer of 401 or 403 to all that could be sent."""
        login = self.login(name.host)
        if login.known:
            return explain_trouble(Trouble.WRONG_LOGIN, name.host, str(name), f"{_told(login)}{why}")
        return explain_trouble(Trouble.NEEDS_LOGIN, name.host, str(name), login.why or why)

    def _basic(self, name: Reference, used: str) -> str:
        proof = self.login(name.host).basic
        if not proof or proof == used:
            raise self.refusal(name, "")
        return proof

    def _token(self, name: Reference, challenge: Challenge) -> str:
        """Fetch a token for reading a repository; an anonymous one where there is no login."""
        request = token_request(challenge, f"repository:{name.repository}:pull")
        base = self._wire.base(name.server, Question(url="", host=name.host, what=str(name)))
        if request is None or (request.url.startswith("http:") and base.startswith("https:")):
            where = shorten(challenge.parameters.get("realm", ""))
            raise explain_trouble(Trouble.BROKEN, name.host, str(name), f"it wants a token from {where}")
        answer = self._wire.ask(_token_question(name, request, self.login(name.host)))
        if answer.status in {400, 401, 403}:
            raise self.refusal(name, f"{request.url} gives no token ({answer.status})")
        token = _token_of(answer)
        if answer.status != 200 or not token:
            why = f"{request.url} gives no token ({answer.status})"
            raise explain_trouble(Trouble.BROKEN, name.host, str(name), why)
        return token


def _told(login: Login) -> str:
    return f"user {shorten(login.user)}; " if login.user else ""


def _key(name: Reference) -> tuple[str, str]:
    return name.host, name.repository


def _choose(name: Reference, answer: Answer) -> Challenge:
    """Return the challenge that is taken up: a token rather than a password with each question."""
    found = {each.scheme: each for each in reversed(parse_challenges(answer.header("WWW-Authenticate")))}
    chosen = found.get("bearer") or found.get("basic")
    if chosen is None:
        why = f"it wants a login in a way that is not known: {', '.join(sorted(found)) or 'none is named'}"
        raise explain_trouble(Trouble.BROKEN, name.host, str(name), why)
    return chosen


def _token_question(name: Reference, request: TokenRequest, login: Login) -> Question:
    """Return how a token is asked for: by a form with a token of identity, else by a plain address.

    Source: https://distribution.github.io/distribution/spec/auth/oauth/.
    """
    question = Question(url=request.url, host=name.host, what=str(name))
    if login.identity:
        form = {"grant_type": "refresh_token", "client_id": "trtmatrix", "refresh_token": login.identity}
        return replace(question, method="POST", form={**form, **request.parameters})
    parameters = {**request.parameters, **({"account": login.user} if login.user else {})}
    url = str(requests.Request("GET", request.url, params=parameters).prepare().url)
    return replace(question, url=url, authorization=login.basic)


def _token_of(answer: Answer) -> str:
    """Return the token of an answer, whatever type it says that it has (nvcr.io says text)."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        return ""
    token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else ""
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""
