"""What can happen to a pull, by a real engine from a real registry; which images stay after their cells."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bench.throttle import Throttle

from tests.containers.engines import COMMAND, KEEPS_LAYERS, WAITS_ITSELF
from tests.containers.pulling_kit import Bench, open_bench, want
from tests.registry.fronts import Asked, Front, Reply
from tests.registry.registries import basic_auth, blob_file, serve_registry
from tests.waiting import wait_until
from trtmatrix.common.errors import MachineryError
from trtmatrix.launchers.containers import Images
from trtmatrix.plan.context import own_platform
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Keep, Launch

pytestmark = pytest.mark.engines


def fails(bench: Bench, launch: Launch) -> str:
    with pytest.raises(MachineryError) as caught:
        bench.have(bench.images(), launch)
    return str(caught.value)


def test_a_locked_image_is_pulled_by_digest_though_its_tag_moved_and_is_here(bench: Bench) -> None:
    name, first = bench.push("moving")
    launch = want(name, locked=True)
    _, second = bench.push("moving")
    unlocked = bench.have(bench.images(), want(name))
    assert unlocked == second.image_ids[own_platform()]
    assert bench.have(bench.images(), launch) == first.image_ids[own_platform()]
    assert bench.have(bench.images(), want(name)) == unlocked, "the tag is what it was"


def test_an_image_that_is_not_what_the_lock_has_is_refused(bench: Bench) -> None:
    name, _ = bench.push("other")
    launch = want(name, locked=True)
    origin = launch.version.origin
    assert isinstance(origin, ImageOrigin)
    assert origin.pin is not None
    wrong = replace(origin, pin=replace(origin.pin, ids=("sha256:" + "0" * 64,)))
    told = fails(bench, replace(launch, version=replace(launch.version, origin=wrong)))
    assert "not what matrix.lock has: sha256:000" in told
    assert "nox -s lock" in told


def damage(file: Path) -> None:
    """Change a byte within random bytes, which gzip keeps as they are: what is unpacked is another file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def damage_packing(file: Path) -> None:
    """Give the first block behind gzip's ten bytes the type that does not exist (RFC 1951, 3.2.3)."""
    content = bytearray(file.read_bytes())
    content[10] |= 0b110
    file.write_bytes(content)


DAMAGED = "  ask again: something between here and the registry changes what it sends"


@pytest.mark.parametrize(
    ("spoil", "remedy"), [(damage, DAMAGED), (damage_packing, DAMAGED), (Path.unlink, "  ")]
)
def test_a_layer_that_is_damaged_or_gone_is_told_at_once(
    spoil: Callable[[Path], None], remedy: str, bench: Bench
) -> None:
    name, pushed = bench.push("spoilt", 65536)
    spoil(blob_file(bench.serving.storage, pushed.layers[own_platform()][0][0]))
    told = fails(bench, want(name))
    assert told.startswith(f"{name} cannot be had: ")
    assert told.splitlines()[1].startswith(remedy)
    assert bench.told == [], "nothing was waited for"


def test_a_tag_that_is_not_there_is_told_with_the_command_to_try(bench: Bench) -> None:
    bench.push("there")
    told = fails(bench, want(bench.name("nothing")))
    assert "check the tag on the registry's pages" in told
    assert told.splitlines()[-1] == f"  try it by hand: {COMMAND} pull {bench.name('nothing')}"
    assert bench.told == []


def test_who_is_not_logged_in_is_told_to(bench: Bench, tmp_path: Path) -> None:
    bench.push("secret")
    with serve_registry(bench.serving.storage.parent, auth=basic_auth(tmp_path / "users")) as closed:
        told = fails(bench, want(bench.name("secret", host=closed.host)))
    assert f"log in: docker login {closed.host}" in told
    assert bench.told == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_registry_that_says_later_is_asked_later(status: int, bench: Bench) -> None:
    bench.push("later")
    with Front(bench.serving.port) as front:
        name, said = bench.name("later", host=front.host), list[str]()

        def later(asked: Asked) -> Reply | None:
            if "/manifests/" not in asked.path or len(said) == 2:
                return None
            said.append(asked.path)
            body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "later"}]}' if status == 429 else b""
            return Reply(status=status, headers={"Retry-After": "1"}, body=body)

        front.rule = later
        assert bench.have(bench.images(), want(name))
    assert WAITS_ITSELF or bench.told[0].endswith("; tried again in 0.1 s")
    assert len(bench.told) <= 2, "the engine may ask for a manifest twice in one try"


def test_a_registry_gone_in_mid_pull_and_back_goes_on_where_it_was(bench: Bench, tmp_path: Path) -> None:
    size, rate = 32 << 20, 16 << 20
    with serve_registry(tmp_path) as first, open_bench(first) as there:
        there.push("cut", size)
        port = first.port
    with Throttle(port, rate) as line:
        name = bench.name("cut", host=f"127.0.0.1:{line.port}")
        done = list[str]()
        with serve_registry(tmp_path, port=port):
            pull = threading.Thread(target=lambda: done.append(bench.have(bench.images(), want(name))))
            pull.start()
            wait_until(lambda: line.passed > size // 2, 90, "half of it has come")
        time.sleep(0.2)
        before = line.passed
        with serve_registry(tmp_path, port=port):
            pull.join(timeout=60)
            assert done, bench.told
        again = (line.passed - before) / size
        assert again < (0.7 if KEEPS_LAYERS else 1.2), "what had come did not come again"
    cut = "was cut off; the engine goes on with it in 5 s" if KEEPS_LAYERS else "; tried again in"
    assert cut in bench.told[0]


def with_cells(launch: Launch) -> Launch:
    """The launch with something to run: what is counted is cells, whatever they are."""
    return replace(launch, cells=(None,))  # type: ignore[arg-type] # nobody looks into it


def have(bench: Bench, images: Images, launch: Launch) -> Launch:
    launch = with_cells(launch)
    images.expect([launch])
    bench.have(images, launch)
    return launch


@pytest.mark.parametrize("locked", [True, False])
def test_what_was_here_under_another_name_stays(locked: bool, bench: Bench) -> None:
    name, theirs = bench.push("theirs")[0], f"small/theirs:{os.getpid()}"
    launch = want(name, locked=locked)
    by_hand = bench.client.images.pull(name)
    by_hand.tag(*theirs.split(":"))
    bench.client.images.remove(name)
    bench.names.append(theirs)
    images = bench.images(Keep.NONE)
    images.ended(have(bench, images, launch))
    assert bench.is_here(theirs)


def test_an_image_that_was_here_without_a_name_stays(bench: Bench) -> None:
    name, other = bench.push("unnamed")[0], bench.push("other")[0]
    by_hand = bench.client.images.pull(name)
    bench.client.images.pull(other).tag(*name.rsplit(":", 1))
    bench.client.images.remove(name)
    bench.names.append(str(by_hand.id))
    images = bench.images(Keep.NONE)
    images.ended(have(bench, images, want(name)))
    assert bench.is_here(str(by_hand.id))


@pytest.mark.engines
@pytest.mark.parametrize("locked", [True, False])
def test_an_image_of_several_names_goes_after_the_last_of_them(locked: bool, bench: Bench) -> None:
    names = bench.push_under("first", "second", "third")
    images = bench.images(Keep.NONE)
    launches = [with_cells(want(name, locked=locked)) for name in names]
    images.expect(launches)
    for launch in launches[:2]:
        bench.have(images, launch)
    for launch in launches[:2]:
        assert bench.is_here(reference_of(launch))
        images.ended(launch)
    bench.have(images, launches[2])
    images.ended(launches[2])
    assert not any(bench.is_here(reference_of(launch)) for launch in launches)


def reference_of(launch: Launch) -> str:
    assert isinstance(launch.version.origin, ImageOrigin)
    return launch.version.origin.reference


@pytest.mark.engines
def test_what_a_container_needs_stays(bench: Bench) -> None:
    images = bench.images(Keep.NONE)
    launch = have(bench, images, want(bench.push("shared")[0]))
    container = bench.client.containers.create(reference_of(launch), ["nothing"])
    try:
        images.ended(launch)
        assert bench.told[-1].startswith(f"{reference_of(launch)} stays: ")
        assert bench.is_here(reference_of(launch))
    finally:
        container.remove()


def test_the_base_of_a_build_is_pulled_by_us_and_goes(bench: Bench, tmp_path: Path) -> None:
    base, made = bench.push("base")[0], f"small/made:{os.getpid()}"
    images = bench.images(Keep.NONE)
    code = f"import subprocess\nsubprocess.run([{COMMAND!r}, 'tag', {base!r}, {made!r}], check=True)\n"
    (tmp_path / "build").write_text(code)
    images.builder = (str(tmp_path / "build"),)
    launch = want(made)
    origin = ImageOrigin(image=made, build=Build(base=base, wheels=()), base=ImageOrigin(image=base))
    launch = replace(launch, version=replace(launch.version, origin=origin), pull=False, build=True)
    images.ended(have(bench, images, launch))
    assert not bench.is_here(base)
    assert bench.is_here(made), "what was built was not pulled"
