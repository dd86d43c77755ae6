"""A token service as docker-registry trusts it: who may read a repository is signed with a certificate."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.registry.fronts import Asked, Front, Reply
from tests.registry.registries import PASSWORD, USER, make_certificate

SERVICE, ISSUER = "a registry", "a token service"


@dataclass
class TokenService:
    """Answers for tokens; make one by :func:`open_tokens`. ``front.asked`` is all that was asked of it.

    ``anonymous``: whether one who does not log in may read; ``seconds``: how long a token is good;
    ``identity``: a token of identity that is taken too; ``service``: whether it is named to clients.
    """

    folder: Path
    front: Front
    anonymous: bool = True
    seconds: float = 300
    identity: str = "refreshing"
    issued: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def auth(self) -> dict[str, Any]:
        """docker-registry's setting that sends its clients here."""
        certificate = str(self.folder / "own.crt")
        return {
            "token": {
                "realm": f"http://{self.front.host}/proxy_auth", "service": SERVICE, "issuer": ISSUER,
                "rootcertbundle": certificate,
            }
        }  # fmt: skip

    def answer(self, asked: Asked) -> Reply:
        """Give a token, as text (as nvcr.io does), or refuse the login."""
        parameters = _parameters(asked)
        login = asked.headers.get("Authorization", "")
        good = login == _basic() or parameters.get("refresh_token") == self.identity
        if (login or "refresh_token" in parameters or not self.anonymous) and not good:
            return Reply(status=401, body=b'{"errors": [{"code": "UNAUTHORIZED"}]}')
        kind, _, rest = parameters["scope"].partition(":")
        name, _, actions = rest.rpartition(":")
        now = int(time.time())
        claims = {
            "iss": ISSUER, "sub": "", "aud": SERVICE, "jti": str(len(self.issued)), "iat": now,
            "nbf": now - 100, "exp": int(now + self.seconds),
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }  # fmt: skip
        self.issued.append(claims)
        body = json.dumps({"token": self._sign(claims)}).encode()
        return Reply(headers={"Content-Type": "text/plain"}, body=body)

    def _sign(self, claims: Mapping[str, Any]) -> str:
        """Return a JSON Web Token (RFC 7519) that carries its certificate."""
        pem = (self.folder / "own.crt").read_text().splitlines()
        header = {"typ": "JWT", "alg": "RS256", "x5c": ["".join(pem[1:-1])]}
        text = f"{_plain(json.dumps(header).encode())}.{_plain(json.dumps(claims).encode())}"
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.folder / "own.key")]
        signed = subprocess.run(command, input=text.encode(), check=True, capture_output=True)
        return f"{text}.{_plain(signed.stdout)}"


def open_tokens(folder: Path, front: Front) -> TokenService:
    """Return a token service that answers at a front without a registry, which must be served."""
    make_certificate(folder, "tokens")
    service = TokenService(folder=folder, front=front)
    front.rule = service.answer
    return service


def _parameters(asked: Asked) -> dict[str, str]:
    text = asked.body.decode() if asked.method == "POST" else urlsplit(asked.path).query
    return {name: values[0] for name, values in parse_qs(text).items()}


def _basic() -> str:
    return f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
