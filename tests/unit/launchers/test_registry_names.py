"""Images by their names, as registries, runtimes and tars write them; and how registries are asked."""

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from goldenfile import check_golden
from hypothesis import given
from hypothesis import strategies as st
from launchers.test_container import spec_of

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.images import registry
from trtmatrix.images.registry import ask_registries
from trtmatrix.launchers.child_containers import Apptainer, Pyxis, child_command
from trtmatrix.launchers.references import (
    RegistryError,
    Trouble,
    parse_reference,
    read_file,
)
from trtmatrix.suite.model import CPU

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ubuntu", ("docker.io", "library/ubuntu", "latest", "")),
        ("[::1]:5000/a", ("[::1]:5000", "a", "latest", "")),
        ("nvcr.io/nvidia/pytorch:24.12-py3", ("nvcr.io", "nvidia/pytorch", "24.12-py3", "")),
        (f"nvcr.io/nvidia/pytorch:1@{DIGEST}", ("nvcr.io", "nvidia/pytorch", "1", DIGEST)),
        ("localhost:5000/a:b", ("localhost:5000", "a", "b", "")),
        ("my.mirror:5000/nvidia/a_b/c--d__e.f", ("my.mirror:5000", "nvidia/a_b/c--d__e.f", "latest", "")),
    ],
)  # fmt: skip
def test_a_name_is_read_as_docker_reads_it(text: str, parts: tuple[str, ...]) -> None:
    found = parse_reference(text)
    assert (found.host, found.repository, found.tag, found.digest) == parts
    assert found.wanted == (found.digest or found.tag)


@pytest.mark.parametrize(
    "text",
    [
        "", "Ubuntu", "a/Ubuntu", "a//b", "a b", "a/", "-a", "a___b", "a:", "a:-b", f"a:{'b' * 129}", "a:b\n",
        "a:ä", "a:b:c", "a@sha256:12", "a@", f"a@{DIGEST.upper()}", "https://nvcr.io/a", "-x.y/a", "a_b.c/d",
        "x.y:port/a", "x.y:0/a", "[::1/a", "0123456789abcdef" * 4,
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no image's name"):
        parse_reference(text)


@given(st.text(alphabet="aA0.:/@_-[] \n", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_name_that_stays_itself_or_is_refused(text: str) -> None:
    try:
        found = parse_reference(text)
    except UsageError:
        return
    assert parse_reference(str(found)) == found
    assert not set(str(found)) & set(" \n\t\0")


def test_each_trouble_says_what_where_why_and_what_to_do() -> None:
    where = ("my.mirror:5000", "my.mirror:5000/a:1", "it is closed today")
    errors = [RegistryError(trouble, *where) for trouble in Trouble]
    check_golden("troubles.txt", "\n".join(f"{error.trouble.name}: {error}\n" for error in errors))


def test_registries_are_asked_at_once_and_what_answers_in_time_is_kept_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "PATIENCE", 0.5)
    slow = threading.Event()
    names = ["late.example/a:1", *(f"r{number}.example/a:1" for number in range(20))]
    found = ask_registries(lambda n: slow.wait(5) if n == names[0] else n, names, seconds=1)
    slow.set()
    late, *others = found.values()
    assert isinstance(late, RegistryError)
    assert late.trouble is Trouble.UNREACHABLE
    assert "it does not answer within 1 s" in str(late)
    assert others == names[1:] == list(found)[1:]
    assert capsys.readouterr().err == "trtmatrix: asking late.example …\n"
    with pytest.raises(ZeroDivisionError):
        ask_registries(lambda n: 1 // len(n[20:]), ["r.example/a:1"], seconds=5)


CONFIG, MANIFEST = "a" * 64, "sha256:" + "b" * 64


def write_tar(file: Path, **listings: object) -> str:
    with tarfile.open(file, "w") as archive:
        for name, data in listings.items():
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return str(file)


def test_a_tar_is_known_by_the_ids_that_engines_give_its_image(tmp_path: Path) -> None:
    index = {"manifests": [{"digest": MANIFEST}]}
    for config, more, ids in (
        (f"{CONFIG}.json", {}, ()), (f"blobs/sha256/{CONFIG}", {"index": index}, (MANIFEST,)),
    ):  # fmt: skip
        file = write_tar(tmp_path / "i.tar", manifest=[{"Config": config}], **more)
        origin = read_file(file, tmp_path / "cache")
        assert origin.pin is not None
        assert (origin.pin.ids, origin.is_file, origin.reference) == ((f"sha256:{CONFIG}", *ids), True, file)


@pytest.mark.parametrize(
    "listings",
    [
        {}, {"manifest": [{"Config": "a"}, {"Config": "b"}]}, {"manifest": [{"No": 1}]},
        {"manifest": b"[" * 100_000 + b"]" * 100_000}, {"manifest": b"NaN"},
        {"manifest": [{"Config": "a"}], "index": []},
    ],
)  # fmt: skip
def test_a_tar_without_one_image_is_refused(tmp_path: Path, listings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read_file(write_tar(tmp_path / "i.tar", **listings), tmp_path / "cache")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_tar_that_was_cut_short_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "i.tar").write_bytes(pack(os.urandom(3000))[:2000])
    for file in (tmp_path / "i.tar", "~nobody-here/i.tar"):
        with pytest.raises(UsageError):
            read_file(str(file), tmp_path / "cache")


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "i.sif"
    file.write_text("one")
    first = read_file(str(file), tmp_path / "cache")
    file.write_text("another")
    assert read_file(str(file), tmp_path / "cache").pin != first.pin


def test_enroot_and_apptainer_have_their_own_forms_of_a_name() -> None:
    for reference, *uris in (
        ("nvcr.io/nvidia/x:1", "docker://nvcr.io#nvidia/x:1"), ("lab/x:1", "docker://lab/x:1"),
        (f"h:5000/x:1@{MANIFEST}", f"docker://h:5000#x@{MANIFEST}", f"docker://h:5000#x:{MANIFEST}"),
    ):  # fmt: skip
        assert [words[-1] for words in Pyxis().pull_commands(reference, "x")] == uris
    (words,) = Apptainer().pull_commands(f"h:5000/a/x:1@{MANIFEST}", "x.sif")
    assert words[1:] == ("pull", "x.sif", f"docker://h:5000/a/x@{MANIFEST}")


@pytest.mark.parametrize("sign", [",", ":", '"'])
def test_a_path_that_no_command_line_can_name_is_refused(sign: str) -> None:
    spec = spec_of(repros=Path(f"/re{sign}pros"))
    with pytest.raises(MachineryError, match="no path may have one of"):
        child_command(Pyxis(), spec, CPU)
