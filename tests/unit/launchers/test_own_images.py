"""What the tar of an image says of it, how runtimes write an image's name, and which paths they can mount."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from builders import make_version

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.launchers.child_containers import child_command
from trtmatrix.launchers.child_runtimes import Apptainer, Pyxis
from trtmatrix.launchers.container import Limits, make_container_spec
from trtmatrix.launchers.references import read_file
from trtmatrix.suite.model import CPU
from trtmatrix.suite.plan import Engine, Launch

CONFIG, MANIFEST = "a" * 64, "sha256:" + "b" * 64


def write_tar(file: Path, **listings: object) -> str:
    with tarfile.open(file, "w") as archive:
        for name, data in listings.items():
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return str(file)


@pytest.mark.parametrize(
    ("listings", "ids"),
    [
        ({"manifest": [{"Config": f"{CONFIG}.json"}]}, (f"sha256:{CONFIG}",)),
        (
            {
                "manifest": [{"Config": f"blobs/sha256/{CONFIG}"}],
                "index": {"manifests": [{"digest": MANIFEST}]},
            },
            (f"sha256:{CONFIG}", MANIFEST),
        ),
    ],
)
def test_a_tar_is_known_by_the_ids_that_engines_give_its_image(
    tmp_path: Path, listings: dict[str, object], ids: tuple[str, ...]
) -> None:
    origin = read_file(write_tar(tmp_path / "i.tar", **listings), tmp_path / "cache")
    assert origin.pin is not None
    assert origin.pin.ids == ids
    assert origin.is_file
    assert origin.reference == str(tmp_path / "i.tar")


@pytest.mark.parametrize(
    "listings",
    [
        {}, {"manifest": [{"Config": "a"}, {"Config": "b"}]}, {"manifest": [{"No": 1}]},
        {"manifest": b"[" * 100_000 + b"]" * 100_000}, {"manifest": b"NaN"},
    ],
)  # fmt: skip
def test_a_tar_without_one_image_is_refused(tmp_path: Path, listings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read_file(write_tar(tmp_path / "i.tar", **listings), tmp_path / "cache")


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "i.sif"
    file.write_text("one")
    first = read_file(str(file), tmp_path / "cache")
    file.write_text("another")
    assert read_file(str(file), tmp_path / "cache").pin != first.pin


@pytest.mark.parametrize(
    ("reference", "uris"),
    [
        ("nvcr.io/nvidia/x:1", ["docker://nvcr.io#nvidia/x:1"]),
        ("lab/x:1", ["docker://lab/x:1"]),
        (
            f"host:5000/x:1@{MANIFEST}",
            [f"docker://host:5000#x@{MANIFEST}", f"docker://host:5000#x:{MANIFEST}"],
        ),
    ],
)
def test_enroot_has_its_own_form_of_a_name(reference: str, uris: list[str]) -> None:
    assert [words[-1] for words in Pyxis().pull_commands(reference, "x")] == uris


def test_apptainer_takes_a_digest_in_the_tag_s_place() -> None:
    (words,) = Apptainer().pull_commands(f"host:5000/a/x:1@{MANIFEST}", "x.sif")
    assert words[1:] == ("pull", "x.sif", f"docker://host:5000/a/x@{MANIFEST}")


@pytest.mark.parametrize("sign", [",", ":", '"'])
def test_a_path_that_no_command_line_can_name_is_refused(sign: str) -> None:
    launch, here = Launch(version=make_version("10.7.0"), gpu=CPU, cells=()), Path("/nowhere")
    spec = make_container_spec(
        launch, "i", Engine(available=True), cache=here, repros=Path(f"/re{sign}pros"), folder=here,
        limits=Limits(),
    )  # fmt: skip
    with pytest.raises(MachineryError, match="no path may have one of"):
        child_command(Pyxis(), spec, CPU)
