"""Logins and tokens: Docker's own configuration, Basic over TLS, a token service, and who is told nothing."""

import base64
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from bench.registry import Serving

from tests.registry.fronts import Asked, Front, Reply, tunnel
from tests.registry.registries import (
    PASSWORD,
    USER,
    Image,
    Pushed,
    basic_auth,
    make_certificate,
    push_image,
    serve_registry,
)
from trtmatrix.images.registry import Registry
from trtmatrix.launchers.references import RegistryError, Trouble

NAME = "registry.test:5443"
IMAGE = "nvidia/tensorrt"


BASIC = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


def log_in(host: str, password: str = PASSWORD, **more: object) -> None:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    write_config({"auths": {host: {"auth": auth, **more}}})


def write_config(content: object) -> None:
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pushed]:
    folder = tmp_path_factory.mktemp("kept")
    with serve_registry(folder) as serving:
        return folder, push_image(serving.host, IMAGE, "1", Image(), Image(platform="linux/arm64"))


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, kept: tuple[Path, Pushed]
) -> Iterator[tuple[Serving, Path]]:
    """Serve it with TLS and Basic; the certificate is for a name that only the proxy knows."""
    folder = tmp_path_factory.mktemp("secured")
    pair = make_certificate(folder, "registry.test")
    auth = basic_auth(folder / "htpasswd")
    with serve_registry(kept[0], tls=pair, auth=auth) as serving:
        yield serving, pair[0]


@pytest.fixture
def proxied(secured: tuple[Serving, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with tunnel(secured[0].port) as (url, asked):
        monkeypatch.setenv("HTTPS_PROXY", url)
        yield asked


@pytest.fixture
def trusted(secured: tuple[Serving, Path]) -> Path:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "containers/certs.d" / NAME
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(secured[1].read_bytes())
    return folder


class Tokens:
    """A front that wants a token, and gives one as nvcr.io does: as text, to anybody or to who logs in."""

    def __init__(self, front: Front) -> None:
        self.front, self.anonymous, self.scopes = front, True, list[str]()
        front.rule = self.answer

    def answer(self, asked: Asked) -> Reply | None:
        said = asked.headers.get("Authorization", "")
        if asked.path.startswith("/token"):
            if said not in ({"", BASIC} if self.anonymous else {BASIC}):
                return Reply(status=401)
            self.scopes.append(parse_qs(urlsplit(asked.path).query)["scope"][0])
            return Reply(headers={"Content-Type": "text/plain"}, body=b'{"token": "good"}')
        name = re.sub("/(manifests|blobs)/.*", "", asked.path.removeprefix("/v2/"))
        named = f'Bearer realm="http://{self.front.host}/token",service="s",scope="repository:{name}:pull"'
        return None if said == "Bearer good" else Reply(status=401, headers={"WWW-Authenticate": named})


@pytest.fixture
def tokens(kept: tuple[Path, Pushed]) -> Iterator[Tokens]:
    with serve_registry(kept[0]) as serving, Front(serving.port) as front:
        yield Tokens(front)


def fails(act: Callable[[], object]) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        act()
    return caught.value


def test_tls_and_basic_through_a_proxy(proxied: list[str], trusted: Path, kept: tuple[Path, Pushed]) -> None:
    del trusted
    log_in(NAME)
    assert Registry().resolve(f"{NAME}/{IMAGE}:1").digest == kept[1].digest
    assert set(proxied) == {NAME}


def test_a_certificate_that_nobody_vouches_for_is_refused(proxied: list[str]) -> None:
    error = fails(lambda: Registry().check(f"{NAME}/{IMAGE}:1"))
    assert error.trouble is Trouble.UNREACHABLE
    assert f"its authority belongs in /etc/docker/certs.d/{NAME}/ca.crt" in str(error)
    assert proxied == [NAME], "what cannot get better is not asked again"


@pytest.mark.usefixtures("proxied", "trusted")
def test_no_login_and_a_wrong_one_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f'default login {USER} password "{PASSWORD}"\n')
    monkeypatch.setenv("NETRC", str(netrc))  # is not ours to send
    error = fails(lambda: Registry().resolve(f"{NAME}/{IMAGE}:1"))
    assert (error.trouble, f"docker login {NAME}" in str(error)) == (Trouble.NEEDS_LOGIN, True)
    log_in(NAME, "wrong")
    error = fails(lambda: Registry().resolve(f"{NAME}/{IMAGE}:1"))
    assert (error.trouble, error.host) == (Trouble.WRONG_LOGIN, NAME)
    assert f"user '{USER}'" in str(error)
    assert "wrong'" not in str(error)


def test_plain_http_is_for_insecure_ones(kept: tuple[Path, Pushed], monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_registry(kept[0]) as serving, tunnel(serving.port) as (url, _), Front(serving.port) as front:
        monkeypatch.setenv("HTTPS_PROXY", url)
        error = fails(lambda: Registry(attempts=1).check(f"{NAME}/{IMAGE}:1"))
        assert (error.trouble, "it speaks plain HTTP" in str(error)) == (Trouble.UNREACHABLE, True)
        monkeypatch.setenv("HTTP_PROXY", f"http://{front.host}")
        found = Registry(insecure=[NAME]).check(f"{NAME}/{IMAGE}:1")
    assert found == kept[1].digest
    assert {asked.path.partition("/v2/")[0] for asked in front.asked} == {f"http://{NAME}"}


@pytest.mark.parametrize("proxy", [
    "http://", "http://me:swordfish@host:99999999", "socks5://me:swordfish@127.0.0.1:9",
    "http://me:swordfish@127.0.0.1:9",
])  # fmt: skip
def test_a_proxy_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    error = fails(lambda: Registry().check(f"{NAME}/{IMAGE}:1"))
    assert error.trouble in {Trouble.UNREACHABLE, Trouble.BROKEN}
    assert "swordfish" not in str(error)


def test_an_anonymous_token_is_fetched_for_reading_alone(tokens: Tokens, kept: tuple[Path, Pushed]) -> None:
    registry, host = Registry(), tokens.front.host
    assert registry.resolve(f"{host}/{IMAGE}:1").digest == kept[1].digest
    assert registry.check(f"{host}/{IMAGE}:1") == kept[1].digest
    assert fails(lambda: registry.check(f"{host}/other:1")).trouble is Trouble.MISSING
    assert tokens.scopes == [f"repository:{name}:pull" for name in (IMAGE, IMAGE, "other")]


def test_a_token_service_gets_a_login_the_registry_not(tokens: Tokens, kept: tuple[Path, Pushed]) -> None:
    tokens.anonymous, host = False, tokens.front.host
    assert fails(lambda: Registry().check(f"{host}/{IMAGE}:1")).trouble is Trouble.NEEDS_LOGIN
    log_in(host)
    assert Registry().resolve(f"{host}/{IMAGE}:1").digest == kept[1].digest
    asked = [each for each in tokens.front.asked if not each.path.startswith("/token")]
    assert {each.headers.get("Authorization", "").partition(" ")[0] for each in asked} == {"", "Bearer"}
    log_in(host, "wrong")
    assert fails(lambda: Registry().check(f"{host}/{IMAGE}:1")).trouble is Trouble.WRONG_LOGIN


def test_a_credential_helper_is_asked_and_a_missing_one_is_told(
    secured: tuple[Serving, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[Path, Pushed]
) -> None:
    host = secured[0].host
    write_config({"credHelpers": {host: "testing"}})
    error = fails(lambda: Registry().check(f"{host}/{IMAGE}:1"))
    assert (error.trouble, "the login that Docker has cannot be read" in str(error)) == (
        Trouble.NEEDS_LOGIN, True,
    )  # fmt: skip
    helper = tmp_path / "docker-credential-testing"
    said = json.dumps({"ServerURL": host, "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{said}'\n")
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Registry().check(f"{host}/{IMAGE}:1") == kept[1].digest


@pytest.mark.parametrize(
    "content", ["{", '{"auths": {"HOST": {"auth": "!"}}}', '{"auths": {"HOST": 1}}', "[]"]
)
def test_a_damaged_configuration_is_no_login(secured: tuple[Serving, Path], content: str) -> None:
    host = secured[0].host
    write_config({})
    (Path(os.environ["DOCKER_CONFIG"]) / "config.json").write_text(content.replace("HOST", host))
    assert fails(lambda: Registry().check(f"{host}/{IMAGE}:1")).trouble is Trouble.NEEDS_LOGIN


def test_a_login_goes_to_no_other_host(kept: tuple[Path, Pushed], tmp_path: Path) -> None:
    auth = basic_auth(tmp_path / "htpasswd")
    with (
        serve_registry(kept[0], auth=auth) as serving,
        Front(serving.port) as front,
        serve_registry(kept[0]) as store,
        Front(store.port) as elsewhere,
    ):
        log_in(front.host)
        front.rule = lambda asked: (
            Reply(status=307, headers={"Location": f"http://{elsewhere.host}{asked.path}"})
            if "/blobs/" in asked.path and "Authorization" in asked.headers
            else None
        )
        assert Registry().resolve(f"{front.host}/{IMAGE}:1").digest == kept[1].digest
        assert len(elsewhere.asked) == 2
        assert not any("Authorization" in asked.headers for asked in elsewhere.asked)


def test_a_host_that_is_sent_on_to_names_no_token_service(kept: tuple[Path, Pushed]) -> None:
    with serve_registry(kept[0]) as serving, Front(serving.port) as front, Front() as elsewhere:
        log_in(front.host)
        elsewhere.rule = lambda _: Reply(
            status=401, headers={"WWW-Authenticate": f'Bearer realm="http://{elsewhere.host}/token"'}
        )
        front.rule = lambda asked: (
            Reply(status=307, headers={"Location": f"http://{elsewhere.host}{asked.path}"})
            if "/blobs/" in asked.path
            else None
        )
        error = fails(lambda: Registry().resolve(f"{front.host}/{IMAGE}:1"))
        assert error.trouble is Trouble.WRONG_LOGIN
        assert not any("/token" in asked.path for asked in elsewhere.asked)
        assert not any("Authorization" in asked.headers for asked in elsewhere.asked)
