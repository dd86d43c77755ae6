"""How somebody else gets the image of a cell."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from trtmatrix.context import read_matrix
from trtmatrix.core.config import ImageOrigin, Pin
from trtmatrix.core.errors import UsageError
from trtmatrix.effects import image_recipe
from trtmatrix.effects.image_facts import HeldImage
from trtmatrix.effects.image_recipe import ImageRecipe, make_recipe

ROOT = Path(__file__).resolve().parents[2]
PYTORCH = "nvcr.io/nvidia/pytorch"
RAN, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def recipe(
    name: str, held: HeldImage | None = None, dockerfile: Path | None = None, image: str = ""
) -> ImageRecipe:
    version = read_matrix(ROOT / "matrix.yaml").version(name)
    origin = version.origin
    assert isinstance(origin, ImageOrigin)
    origin = ImageOrigin(image=image or origin.image, build=origin.build)
    return make_recipe(version, origin, RAN, held, dockerfile, ROOT / "docker" / "wheels" / "build")


def test_an_image_of_a_registry_is_named_by_the_registrys_digest() -> None:
    image = "nvcr.io/nvidia/pytorch:24.12-py3"
    held = HeldImage(
        id=RAN, references=("mirror.example/pytorch@sha256:1", "nvcr.io/nvidia/pytorch@sha256:2")
    )
    found = recipe("10.7.0", held)
    assert found.image.reference == "nvcr.io/nvidia/pytorch@sha256:2"
    assert (found.image.name, found.image.id, found.image.build) == (image, RAN, "")
    assert found.notes == ()
    assert found.files == {}


def test_a_pin_by_digest_is_the_reference_whatever_is_here() -> None:
    pinned = f"nvcr.io/nvidia/pytorch@{OTHER}"
    found = recipe("10.7.0", None, image=pinned)
    assert found.image.reference == pinned
    assert found.image.tag == "nvcr.io/nvidia/pytorch"


def test_the_digest_of_another_image_of_that_name_is_not_taken() -> None:
    found = recipe("10.7.0", HeldImage(id=OTHER, references=("nvcr.io/nvidia/pytorch@sha256:2",)))
    assert found.image.reference == ""
    assert OTHER in found.notes[0]
    assert found.files == {}


def test_the_lock_names_the_digest_where_the_engine_lost_it_and_pins_a_build_s_base() -> None:
    pin = Pin(manifest=OTHER, ids=(RAN, OTHER))
    version = read_matrix(ROOT / "matrix.yaml").version("10.7.0")
    assert isinstance(version.origin, ImageOrigin)
    origin = replace(version.origin, pin=pin)
    assert make_recipe(version, origin, RAN, None, None, None).image.reference == f"{PYTORCH}@{OTHER}"
    assert make_recipe(version, origin, "sha256:other", None, None, None).image.reference == ""
    made = read_matrix(ROOT / "matrix.yaml").version("9.2.0")
    assert isinstance(made.origin, ImageOrigin)
    builder = ROOT / "docker" / "wheels" / "build"
    script = make_recipe(made, made.origin, RAN, None, None, builder, pin).files["build.sh"].decode()
    assert f"docker pull {PYTORCH}@{OTHER}\n" in script
    assert f"--build-arg BASE={PYTORCH}@{OTHER} " in script
    assert "23.11-py3" not in script


@pytest.mark.parametrize("name", ["8.6.0", "8.5.3.1", "9.2.0", "10.0.0"])
def test_an_image_from_wheels_goes_out_as_what_builds_it(name: str, tmp_path: Path) -> None:
    found = recipe(name, HeldImage(id=RAN))
    assert found.image.build == "sh image/build.sh"
    assert {"Dockerfile", "tensorrt.py", "requirements.txt", "build.sh"} <= set(found.files)
    assert found.files["Dockerfile"] == (ROOT / "docker" / "wheels" / "Dockerfile").read_bytes()
    script = found.files["build.sh"].decode()
    assert f"--tag trtmatrix/tensorrt:{name}" in script
    assert ("--index-url" in script) is name.startswith(("9", "10"))
    assert ("base" in found.files) is name.startswith("8")
    file = tmp_path / "build.sh"
    file.write_text(script)
    assert subprocess.run(["/bin/sh", "-n", str(file)], check=False).returncode == 0


def test_a_dockerfile_of_the_users_goes_out(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM x\nRUN y\n")
    found = recipe("10.7.0", HeldImage(id=RAN), file)
    assert found.files == {"Dockerfile": file.read_bytes()}
    assert found.image.build == "docker build --tag nvcr.io/nvidia/pytorch:24.12-py3 image"
    assert found.notes == ()
    file.write_text("FROM x\ncopy a b\n")
    assert "build context" in recipe("10.7.0", HeldImage(id=RAN), file).notes[0]
    with pytest.raises(UsageError, match="cannot be read"):
        recipe("10.7.0", None, tmp_path / "none")


def test_of_an_image_that_nobody_can_have_the_steps_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_recipe, "read_history", lambda image: f"steps of {image}")
    found = recipe("10.7.0", HeldImage(id=RAN))
    assert found.files == {"history.txt": f"steps of {RAN}".encode()}
    assert "--dockerfile" in found.notes[0]
    assert recipe("10.7.0", None).files == {}
