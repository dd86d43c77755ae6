"""What a name stands for at a registry, and what goes wrong on the way to one or with its answers."""

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from bench.registry import Serving

from tests.registry.fronts import Asked, Front, Reply
from tests.registry.registries import DOCKER, Image, Pushed, blob_file, push_image
from trtmatrix.images.registry import Registry
from trtmatrix.launchers.references import RegistryError, Trouble

ONE = "amiss/one"


@pytest.fixture(scope="module")
def pushed(plain: Serving) -> Pushed:
    return push_image(plain.host, ONE, "1", Image())


@pytest.fixture
def front(plain: Serving, pushed: Pushed) -> Iterator[Front]:
    del pushed
    with Front(plain.port) as opened:
        yield opened


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited, of which nothing is."""
    seconds: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", seconds.append)
    return seconds


def first(count: int, reply: Reply, *, where: str = "/manifests/") -> Callable[[Asked], Reply | None]:
    """Return the rule that answers so the first times, and then leaves it to the registry."""
    left = [count]

    def rule(asked: Asked) -> Reply | None:
        if where not in asked.path or left[0] == 0:
            return None
        left[0] -= 1
        return reply

    return rule


def fails(registry: Registry, image: str) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        registry.resolve(image)
    return caught.value


def test_a_registry_that_puts_off_is_asked_again(waited: list[float], front: Front, pushed: Pushed) -> None:
    front.rule = first(2, Reply(status=503, headers={"Retry-After": "7"}))
    assert Registry().resolve(f"{front.host}/{ONE}:1").digest == pushed.digest
    assert len(waited) == 1, "the first time at once"


def test_who_says_to_wait_too_long_is_not_waited_for(waited: list[float], front: Front) -> None:
    front.rule = first(9, Reply(status=429, headers={"Retry-After": "3600"}))
    error = fails(Registry(), f"{front.host}/{ONE}:1")
    assert (error.trouble, max(waited) < 60) == (Trouble.LIMITED, True)
    assert "asks to wait 3600 s" in str(error)
    assert f"docker login {front.host}" in str(error)


def test_a_registry_that_is_gone_is_told_at_once(waited: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    error = fails(Registry(), f"127.0.0.1:{port}/{ONE}:1")
    assert (error.trouble, error.host, waited) == (Trouble.UNREACHABLE, f"127.0.0.1:{port}", [])
    assert "Connection refused" in str(error)
    assert "--registry HOST/PATH" in str(error)
    error = fails(Registry(), f"no-such-host.invalid/{ONE}:1")
    assert (error.trouble, waited) == (Trouble.UNREACHABLE, [])


def test_who_says_nothing_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        registry = Registry(attempts=1, seconds=(1.0, 0.1))
        error = fails(registry, f"127.0.0.1:{listening.getsockname()[1]}/{ONE}:1")
    assert error.trouble is Trouble.UNREACHABLE
    assert "timed out" in str(error)


@pytest.mark.parametrize("where", ["/manifests/1", "/blobs/"])
def test_a_byte_that_changes_on_the_way_is_refused(front: Front, where: str) -> None:
    def flip(asked: Asked, reply: Reply) -> Reply:
        spoilt = reply.body.replace(b"sha256:", b"sha256;", 1).replace(b"linux", b"lunix", 1)
        return replace(reply, body=spoilt) if where in asked.path else reply

    front.change = flip
    error = fails(Registry(), f"{front.host}/{ONE}:1")
    assert error.trouble is Trouble.DAMAGED
    assert "in the place of sha256:" in str(error)


@pytest.mark.parametrize("digest", [{}, {"Docker-Content-Digest": "nonsense"}])
def test_a_registry_without_digests_is_read(front: Front, pushed: Pushed, digest: dict[str, str]) -> None:
    def silenced(headers: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in headers.items() if name != "Docker-Content-Digest"} | digest

    front.change = lambda _, reply: replace(reply, headers=silenced(reply.headers))
    assert Registry().check(f"{front.host}/{ONE}:1") == pushed.digest
    assert Registry().resolve(f"{front.host}/{ONE}:1").digest == pushed.digest


OLD = f'{{"schemaVersion": 1, "mediaType": "{DOCKER}.distribution.manifest.v1+prettyjws"}}'.encode()
UNICODE = "https://ü..x/".encode().decode("latin-1")
PLACES = ("file:///etc/passwd", "http://[::1", UNICODE, f"/v2/{ONE}/manifests/1")
CHALLENGES = ("Negotiate", "Bearer", 'Bearer realm="ftp://x/y"', 'Bearer realm="/token"')
NO_IMAGES = (
    b"<html>welcome to the hotel</html>",
    b"[]",
    OLD,
    b"{}",
    b'{"manifests": [1]}',
    b'{"manifests": {}}',
    b'{"layers": [], "config": {"mediaType": "x"}}',
    b"[" * 200_000,
)
ANSWERS: list[tuple[Reply, Trouble, str]] = [
    (Reply(status=429), Trouble.LIMITED, ""),
    (Reply(status=502), Trouble.BROKEN, ""),
    *((Reply(body=b"{" * 400, cut=cut), Trouble.UNREACHABLE, "") for cut in (0, 40)),
    *((Reply(body=body), Trouble.BROKEN, "it is no image that can be read: ") for body in NO_IMAGES),
    (Reply(status=403, body=b"DENIED: \x1b[31m"), Trouble.NEEDS_LOGIN, "403 (DENIED:  [31m)"),
    *((Reply(status=302, headers={"Location": place}), Trouble.BROKEN, "") for place in PLACES),
    *((Reply(status=401, headers={"WWW-Authenticate": how}), Trouble.BROKEN, "") for how in CHALLENGES),
]


@pytest.mark.parametrize(("reply", "trouble", "said"), ANSWERS)
@pytest.mark.usefixtures("waited")
def test_what_no_registry_should_say_is_told(front: Front, reply: Reply, trouble: Trouble, said: str) -> None:
    front.rule = first(99, reply, where="/v2/")
    error = fails(Registry(), f"{front.host}/{ONE}:1")
    assert (error.trouble, said in str(error)) == (trouble, True), str(error)
    assert reply.status not in {429, 502} or len(front.asked) == 4, "four times"


@pytest.mark.parametrize(("reply", "trouble"), [
    (Reply(body=b"no token"), Trouble.BROKEN),
    (Reply(body=b'{"token": "a\\nb"}'), Trouble.BROKEN),
    (Reply(body=b'{"token": ' + b"[" * 200_000), Trouble.BROKEN),
    (Reply(status=404), Trouble.BROKEN),
    (Reply(status=403), Trouble.NEEDS_LOGIN),
    (Reply(body=b'{"access_token": "refused"}'), Trouble.NEEDS_LOGIN),
])  # fmt: skip
def test_a_token_service_that_gives_no_token_is_told(front: Front, reply: Reply, trouble: Trouble) -> None:
    named = {"WWW-Authenticate": f'Bearer realm="http://{front.host}/token"'}
    front.rule = lambda asked: reply if "/token" in asked.path else Reply(status=401, headers=named)
    assert fails(Registry(), f"{front.host}/{ONE}:1").trouble is trouble


def test_of_several_ways_to_log_in_the_token_is_taken(front: Front, pushed: Pushed) -> None:
    scope = 'service="a, b",scope="repository:x:pull,push"'
    named = f'Basic realm="a registry", Bearer realm="http://{front.host}/token",{scope}, Negotiate'

    def rule(asked: Asked) -> Reply | None:
        if "/token" in asked.path:
            good = "service=a%2C+b&scope=repository%3Ax%3Apull%2Cpush" in asked.path
            return Reply(body=b'{"token": "good"}') if good else Reply(status=400)
        said = asked.headers.get("Authorization")
        return None if said == "Bearer good" else Reply(status=401, headers={"WWW-Authenticate": named})

    front.rule = rule
    assert Registry().resolve(f"{front.host}/{ONE}:1").digest == pushed.digest


TWO = (Image(), Image(platform="linux/arm64", layers=({"etc/what": b"arm\n"}, {"etc/more": b"more\n"})))


@pytest.mark.parametrize("oci", [True, False])
def test_an_image_and_an_index_are_resolved_with_all_but_attestations(plain: Serving, *, oci: bool) -> None:
    pushed = push_image(plain.host, f"one/{oci}".lower(), "1", TWO[1], oci=oci)
    image = f"{plain.host}/one/{oci}:1".lower()
    found = Registry().resolve(image)
    assert (found.digest, found.registry) == (pushed.digest, plain.host)
    ((name, platform),) = found.platforms.items()
    assert (name, platform.manifest) == ("linux/arm64", pushed.digest)
    assert platform.image_id == pushed.image_ids["linux/arm64"]
    assert tuple((layer.digest, layer.size) for layer in platform.layers) == pushed.layers["linux/arm64"]
    assert platform.says == {"driver": "560.35.05", "CUDA": "12.6.3.004", "TensorRT": "10.7.0.23"}
    age = datetime.now(timezone.utc) - datetime.fromisoformat(found.resolved)
    assert timedelta(0) <= age < timedelta(minutes=1)
    pushed = push_image(plain.host, f"two/{oci}".lower(), "1", *TWO, oci=oci)
    found = Registry().resolve(f"{plain.host}/two/{oci}:1".lower())
    assert found.digest == pushed.digest
    assert {name: each.manifest for name, each in found.platforms.items()} == dict(pushed.manifests)
    assert {name: each.image_id for name, each in found.platforms.items()} == dict(pushed.image_ids)


def test_no_layer_is_read(plain: Serving) -> None:
    pushed = push_image(plain.host, "layerless", "1", replace(TWO[0], layers=({"own": b"only here\n"},)))
    before = Registry().resolve(f"{plain.host}/layerless:1")
    ((digest, _),) = pushed.layers["linux/amd64"]
    blob_file(plain.storage, digest).unlink()
    assert Registry().resolve(f"{plain.host}/layerless:1").platforms == before.platforms


@pytest.mark.parametrize("wanted", [":2", f"@sha256:{'0' * 64}", "-other:1"])
def test_what_is_not_there_is_missing(plain: Serving, wanted: str) -> None:
    push_image(plain.host, "there", "1", TWO[0])
    for ask in (Registry().resolve, Registry().check):
        with pytest.raises(RegistryError, match="has no 127") as caught:
            ask(f"{plain.host}/there{wanted}")
        assert (caught.value.trouble, caught.value.host) == (Trouble.MISSING, plain.host)


def test_an_index_without_images_and_what_is_no_image_are_told(plain: Serving) -> None:
    push_image(plain.host, "empty", "1")
    with pytest.raises(RegistryError, match="names no image for any platform") as caught:
        Registry().resolve(f"{plain.host}/empty:1")
    assert caught.value.trouble is Trouble.BROKEN
