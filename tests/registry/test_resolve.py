"""What a name stands for, resolved from a real registry: one image, an index, a tag that moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from bench.registry import Serving

from tests.registry.registries import LABELS, NGC_VARIABLES, Image, blob_file, push_image
from trtmatrix.images.registry import Registry
from trtmatrix.launchers.references import RegistryError, Trouble

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
    assert platform.environment == {k: v for k, v in NGC_VARIABLES.items() if k != "PATH"}
    assert platform.labels == {k: v for k, v in LABELS.items() if k != "maintainer"}
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
