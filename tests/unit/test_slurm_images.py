"""Images on a site: keys, the site's own images, what records name an image by; how often Slurm is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_matrix, make_version

from trtmatrix.core.config import ImageOrigin, Pin
from trtmatrix.core.errors import UsageError
from trtmatrix.core.slurm.images import image_digest, image_key, is_image_file, is_lasting, with_site_images
from trtmatrix.core.slurm.site import NodeRuntime, Site
from trtmatrix.slurm_pace import VARIABLE, Pace, read_pace

PIN = Pin(manifest="sha256:m", ids=("sha256:c", "sha256:m"))


def make_site(**more: str) -> Site:
    return Site(shared="/s", runtime=NodeRuntime.DOCKER, gpus=(), images=more)


def test_a_key_is_a_runtimes_a_references_and_a_files_content() -> None:
    keys = {
        image_key(runtime, reference, stamp)
        for runtime in NodeRuntime for reference in ("a:1", "a:2") for stamp in ("", "1 2")
    }  # fmt: skip
    assert len(keys) == len(NodeRuntime) * 4
    assert image_key(NodeRuntime.DOCKER, "a:1") == image_key(NodeRuntime.DOCKER, "a:1")


@pytest.mark.parametrize(
    ("reference", "is_file"),
    [("/s/a.sqsh", True), ("/s/a.sif", True), ("/s/a.tar", True), ("a.sif", False), ("nvcr.io/a:1", False)],
)
def test_files_are_told_from_references(reference: str, *, is_file: bool) -> None:
    assert is_image_file(reference) is is_file


@pytest.mark.parametrize(
    ("trouble", "said", "lasting"),
    [
        ("image", "n1 cannot pull a:1: Error response from daemon: unauthorized", True),
        ("image", "n1 cannot pull a:1: manifest for a:1 not found: manifest unknown", True),
        ("image", "n1 cannot import docker://a: [ERROR] URL https://a/v2 returned error code: 404", True),
        ("files", "write /s/image.tar: no space left on device", True),
        ("image", "a:1 is sha256:1 on n1, not the image of matrix.lock", True),
        ("image", "n1 cannot pull a:1: toomanyrequests: You have reached your unauthenticated limit", False),
        ("image", "n1 cannot pull a:1: dial tcp: lookup a: no such host", False),
        ("image", "n1 cannot pull a:1: unexpected EOF", False),
        ("image", "n1 cannot pull a:1: what nobody knows", False),
        ("runtime", "Docker does not answer on n1: docker: not found", False),
        ("", "", False),
    ],
)
def test_what_cannot_mend_itself_is_told_from_what_may(trouble: str, said: str, *, lasting: bool) -> None:
    assert is_lasting(trouble, said) is lasting


def test_a_sites_image_stands_for_the_one_of_the_matrix_without_its_pin() -> None:
    matrix = make_matrix("10.7.0", "10.8.0")
    pinned = tuple(
        replace(version, origin=replace(version.origin, pin=PIN)) for version in matrix.versions
        if isinstance(version.origin, ImageOrigin)
    )  # fmt: skip
    changed = with_site_images(replace(matrix, versions=pinned), make_site(**{"10.7.0": "/s/a.sif"}))
    assert changed.versions[0].origin == ImageOrigin(image="/s/a.sif")
    assert changed.versions[1] is pinned[1]


@pytest.mark.parametrize("runtime", NodeRuntime)
@pytest.mark.parametrize("pinned", [False, True])
def test_records_name_an_image_as_every_host_knows_it(runtime: NodeRuntime, *, pinned: bool) -> None:
    version = make_version()
    assert isinstance(version.origin, ImageOrigin)
    version = replace(version, origin=replace(version.origin, pin=PIN if pinned else None))
    own = not pinned or runtime is NodeRuntime.DOCKER
    assert image_digest(version, "sha256:own", runtime) == ("sha256:own" if own else "sha256:c")


def test_slurm_is_asked_seldom_and_more_seldom_while_nothing_happens() -> None:
    pace, waits = read_pace({}), [0.0]
    for _ in range(9):
        waits.append(pace.slower(waits[-1]))
    assert waits[1] == pace.squeue
    assert waits[-1] == pace.most
    assert waits == sorted(waits)


@pytest.mark.parametrize("told", ["often", "-1", "0", "31", "nan"])
def test_a_pace_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        read_pace({VARIABLE: told})


def test_a_tests_pace_makes_all_of_it_quicker() -> None:
    usual, quick = Pace(), read_pace({VARIABLE: "0.5"})
    for name in ("folder", "squeue", "most", "settle", "lost", "worth", "again"):
        assert getattr(quick, name) < getattr(usual, name)
