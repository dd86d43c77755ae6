"""Asks registries what an image's name stands for: indexes, manifests and configurations, never a layer.

Logins, certificates and insecure registries are those that the engines have. Sources: image-index.md,
manifest.md and config.md of https://github.com/opencontainers/image-spec,
https://distribution.github.io/distribution/spec/manifest-v2-2/,
https://github.com/opencontainers/distribution-spec/blob/main/spec.md and, of logins,
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import os
import re
import ssl
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests import exceptions
from requests.adapters import HTTPAdapter
from requests.utils import parse_dict_header
from urllib3.exceptions import InsecureRequestWarning

from trtmatrix.common.errors import shorten
from trtmatrix.launchers.references import Reference, RegistryError, Trouble, parse_reference
from trtmatrix.plan.lockfile import LockedImage, LockedLayer, LockedPlatform

T = TypeVar("T")
Json = dict[str, Any]
TOGETHER = 8  # questions under way
PATIENCE = 2.0  # seconds after which it is told who is waited for
LATER = frozenset({429, 500, 502, 503, 504})
LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What engines speak plain HTTP with unasked. Source: https://docs.docker.com/reference/cli/dockerd/."""
_DOCKER, _OCI = "application/vnd.docker.distribution.manifest", "application/vnd.oci.image"
MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.v2+json")
CONFIGS = (f"{_OCI}.config.v1+json", "application/vnd.docker.container.image.v1+json")
ACCEPTED = (f"{_OCI}.index.v1+json", f"{_DOCKER}.list.v2+json", *MANIFESTS)
"""What a registry is told that is understood; without it some send formats of old engines."""
ATTESTATION = "vnd.docker.reference.type"
"""Marks what is about an image and is none. Source: https://docs.docker.com/build/metadata/attestations/."""


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
        return self._ask(image, _Repository.read)

    def check(self, reference: str) -> str:
        """Return the digest that a reference stands for now, by its manifest alone; raises as the other."""
        return self._ask(reference, lambda repository: repository.manifest(repository.name.wanted)[0])

    def _ask(self, reference: str, ask: Callable[[_Repository], T]) -> T:
        name = parse_reference(reference)
        try:
            return ask(_Repository(name, self))
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            why = f"it is no image that can be read: {shorten(error)}"
            raise RegistryError(Trouble.BROKEN, name.host, str(name), why) from error


def ask_registries(
    ask: Callable[[str], T], references: Sequence[str], *, seconds: float
) -> dict[str, T | RegistryError]:
    """Return what is answered for each reference within so many ``seconds`` in all, or what is wrong.

    Whose answers are missing after :data:`PATIENCE` is told. The pool's threads are daemons: a silent host,
    which cannot be called off, holds up no interrupt and no end of this process.
    """

    def attempt(reference: str) -> T | RegistryError:
        try:
            return ask(reference)
        except RegistryError as error:
            return error

    hosts, end = {each: parse_reference(each).host for each in references}, time.monotonic() + seconds
    with ThreadPool(TOGETHER) as pool:
        asked = {each: pool.apply_async(attempt, (each,)) for each in hosts}
        for until in (end - seconds + min(PATIENCE, seconds), end):
            for answer in asked.values():
                answer.wait(max(0.0, until - time.monotonic()))
            silent = dict.fromkeys(hosts[each] for each, answer in asked.items() if not answer.ready())
            if silent and until < end:
                print(f"trtmatrix: asking {', '.join(silent)} …", file=sys.stderr, flush=True)
        why = f"it does not answer within {seconds:g} s"
        return {
            each: answer.get() if answer.ready()
            else RegistryError(Trouble.UNREACHABLE, hosts[each], each, why)
            for each, answer in asked.items()
        }  # fmt: skip


class _Repository:
    """An image's repository at its registry, asked with the login that Docker's configuration has."""

    def __init__(self, name: Reference, settings: Registry) -> None:
        self.name, self.settings, self.authorization = name, settings, ""
        self.user, self.password, self.no_login = _find_login(name.host)
        self.plain = is_insecure(name.server, settings.insecure)
        self.session = requests.Session()
        self.session.trust_env = not is_insecure(name.server, ())  # Docker asks loopback without a proxy
        self.session.auth = lambda request: request  # not what ~/.netrc has
        self.session.headers.update({"Accept": ", ".join(ACCEPTED), "User-Agent": "trtmatrix"})
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

    def read(self) -> LockedImage:
        """Return what the name stands for; engines go by the index where an image names another platform."""
        digest, found = self.manifest(self.name.wanted)
        named = images_of(found) if "manifests" in found else {"": digest}
        images = {}
        for platform, each in named.items():
            manifest = found if each == digest else self.manifest(each)[1]
            configuration = self.get(f"blobs/{manifest['config']['digest']}").content
            self._hold(configuration, manifest["config"]["digest"])
            said = json.loads(configuration)
            if not (own := platform or platform_name(said)):
                raise ValueError("its configuration names no platform")
            variables = (entry.partition("=") for entry in (said.get("config") or {}).get("Env") or ())
            layers = (LockedLayer(digest=layer["digest"], size=layer["size"]) for layer in manifest["layers"])
            images[own] = LockedPlatform(
                manifest=each, image_id=manifest["config"]["digest"], layers=tuple(layers),
                says=named_versions({name: value for name, _, value in variables}),
            )  # fmt: skip
        now = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
        return LockedImage(digest=digest, registry=self.name.host, resolved=now, platforms=images)

    def manifest(self, wanted: str) -> tuple[str, Json]:
        """Return a manifest or index and its digest, which is held against what was asked for and told."""
        answer = self.get(f"manifests/{wanted}")
        digest = self._hold(answer.content, wanted, answer.headers.get("Docker-Content-Digest", ""))
        found: Json = json.loads(answer.content)
        if "manifests" in found:
            images_of(found)
        elif found["config"]["mediaType"] not in CONFIGS:
            raise ValueError(f"it is no container image: its config is {found['config']['mediaType']}")
        return digest, found

    def _hold(self, body: bytes, *wanted: str) -> str:
        """Return the digest of what came, held against those that were wanted."""
        found = f"sha256:{sha256(body).hexdigest()}"
        for each in wanted:
            if each.startswith("sha256:") and each != found:
                raise self._trouble(Trouble.DAMAGED, f"{found} in the place of {each}")
        return found

    def get(self, path: str) -> requests.Response:
        """Ask for something of the repository; :class:`RegistryError` where the answer is not good."""
        url = f"{self.base}/v2/{self.name.repository}/{path}"
        answer = self._send(url, self.authorization)
        # Only the registry itself names who logs in to it, not a host that it sends on to.
        if answer.status_code == 401 and not answer.history:
            self.authorization = self._log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self._send(url, self.authorization)
        if answer.status_code in {401, 403}:
            raise self._refusal(_said(answer))
        if answer.status_code != 200:
            missing = answer.status_code == 404
            raise self._trouble(Trouble.MISSING if missing else Trouble.BROKEN, _said(answer))
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
        realm = str(asked.get("realm") or "")
        if not realm.startswith("https://" if self.base.startswith("https:") else ("https://", "http://")):
            raise self._trouble(Trouble.BROKEN, f"it wants a login in a way that is not known: {header!r}")
        scope = asked.get("scope") or f"repository:{self.name.repository}:pull"
        answer = self._send(realm, basic, {"service": asked.get("service", ""), "scope": scope})
        if answer.status_code in {400, 401, 403}:
            raise self._refusal(_said(answer))
        given = json.loads(answer.content)
        return f"Bearer {given.get('token') or given['access_token']}"

    def _send(self, url: str, login: str = "", params: Mapping[str, str] | None = None) -> requests.Response:
        """Return the answer, but one that says to ask later: that was asked often enough then."""
        server = urlsplit(url).netloc  # a token service is another host, whose certificate is looked at
        verify = False if self.plain and server == self.name.server else find_authority(server)
        try:
            answer = self.session.get(
                url, headers={"Authorization": login} if login else None, params=params,
                timeout=self.settings.seconds, verify=verify,
            )  # fmt: skip
        except (OSError, ValueError, TypeError, urllib3.exceptions.HTTPError) as error:
            raise self._trouble(*explain_error(error, self.name.server)) from error
        status, wait = answer.status_code, answer.headers.get("Retry-After", "")
        if status in LATER:
            asks = f", and asks to wait {wait} s" if wait else ""
            limited = status == 429 or wait
            raise self._trouble(Trouble.LIMITED if limited else Trouble.BROKEN, f"it answers {status}{asks}")
        return answer

    def _refusal(self, why: str) -> RegistryError:
        if self.password:
            return self._trouble(Trouble.WRONG_LOGIN, f"user {shorten(self.user)}; {why}".rstrip("; "))
        return self._trouble(Trouble.NEEDS_LOGIN, self.no_login or why)

    def _trouble(self, trouble: Trouble, why: str) -> RegistryError:
        return RegistryError(trouble, self.name.host, str(self.name), why)


def _find_login(host: str) -> tuple[str, str, str]:
    """Return user and password of Docker's configuration and its helpers, or why they cannot be read."""
    import docker.auth

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not here is told, not warned of
            found = docker.auth.load_config().resolve_authconfig(host) or {}
            entry = {str(key).lower(): str(value or "") for key, value in found.items()}
    except Exception as error:  # noqa: BLE001 - the file may hold anything, and a helper may do anything
        return "", "", f"the login that Docker has cannot be read: {shorten(str(error))}"
    return entry.get("username", ""), entry.get("password", ""), ""


def _said(answer: requests.Response) -> str:
    """Return what is wrong, in the registry's own words where it has any."""
    text = answer.content[:200].decode("utf-8", "replace").strip()
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"it answers {answer.status_code}" + (f" ({plain})" if plain else "")


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
    with contextlib.suppress(ValueError):  # a host's name
        address = ipaddress.ip_address(name)
        networks = (each for each in (*LOOPBACK, *insecure) if "/" in each)
        return any(address in ipaddress.ip_network(each, strict=False) for each in networks)
    return False


def explain_error(error: Exception, server: str) -> tuple[Trouble, str]:
    """Return what is wrong with a connection, in words."""
    text = re.sub(r"//[^/\s]*@", "//***@", str(error))  # a proxy's address may have a password in it
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        why = "it speaks plain HTTP, and is not in insecure-registries of /etc/docker/daemon.json"
    elif isinstance(error, exceptions.SSLError):
        place = f"its authority belongs in /etc/docker/certs.d/{server}/ca.crt"
        why = f"its certificate is not trusted: {shorten(text.rpartition('] ')[2])} ({place})"
    else:
        why = text.rpartition(": ")[2].rstrip("')\"")[:200]
    reached = isinstance(error, ValueError | exceptions.TooManyRedirects)  # and sent on to what is no address
    return Trouble.BROKEN if reached else Trouble.UNREACHABLE, why


# --- What registries hold


def platform_name(said: Mapping[str, Any]) -> str:
    """Return ``linux/amd64``, or nothing where it is not named; arm64 has v8 by default, which is not told.

    Source: https://github.com/containerd/platforms (normalisation).
    """
    parts = [str(said.get(key) or "") for key in ("os", "architecture", "variant")]
    if "" in parts[:2] or "unknown" in parts:
        return ""
    return "/".join(parts[:2] if parts[1:] == ["arm64", "v8"] else filter(None, parts))


def images_of(index: Mapping[str, Any]) -> dict[str, str]:
    """Return platform → digest of an index; what is no image (attestations) is left out."""
    found: dict[str, str] = {}
    for entry in index["manifests"]:
        name, is_image = platform_name(entry.get("platform") or {}), entry.get("mediaType") in MANIFESTS
        if name and is_image and ATTESTATION not in (entry.get("annotations") or {}):
            found.setdefault(name, entry["digest"])
    if not found:
        raise ValueError("its index names no image for any platform")
    return found


def named_versions(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an image's variables say of its versions, by their names; what is not said is left out.

    ``TRT_VERSION`` may have CUDA's behind a plus sign (``10.7.0.23+cuda12.6``), which is left out;
    ``NVIDIA_TENSORRT_VERSION`` is the container's release, not TensorRT's, and not read.
    """
    names = {
        "TensorRT": ("TRT_VERSION", "TENSORRT_VERSION"), "CUDA": ("CUDA_VERSION",),
        "driver": ("CUDA_DRIVER_VERSION",), "torch": ("PYTORCH_BUILD_VERSION", "PYTORCH_VERSION"),
    }  # fmt: skip
    said = {what: next(filter(None, map(environment.get, each)), "") for what, each in names.items()}
    return {what: text.partition("+cuda")[0] for what, text in said.items() if text}
