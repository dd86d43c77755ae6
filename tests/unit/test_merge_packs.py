"""``merge`` of packs: folders of them, what they say of their host, and what is to be typed next."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest
from merges import Place, make_place

from trtmatrix.core.errors import ExitCode
from trtmatrix.effects.store import read_output


@pytest.fixture
def there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "there", capsys)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "here", capsys)


def repack(pack: Path, folder: Path, host: str) -> Path:
    """Return the pack with another host.json, whose digests are right."""
    with tarfile.open(pack) as archive:
        archive.extractall(folder, filter="data")
    top = folder / pack.name.removesuffix(".tar.gz")
    (top / "host.json").write_text(host)
    digest = hashlib.sha256(host.encode()).hexdigest()
    sums = (top / "SHA256SUMS").read_text()
    (top / "SHA256SUMS").write_text(re.sub(r"(?m)^\w+(?=  host.json$)", digest, sums))
    with tarfile.open(folder / "again.tar.gz", "w:gz") as archive:
        archive.add(top, top.name)
    return folder / "again.tar.gz"


def test_a_host_that_is_nested_without_end_is_refused_with_words(there: Place, here: Place) -> None:
    there.measure("r1")
    pack = repack(there.pack()[1], there.folder / "open", "[" * 100_000)
    code, text = here.merge(pack)
    assert (code, here.files()) == (ExitCode.USAGE, {})
    assert f"kept out: {pack}: its host.json is nested deeper than pack --records writes it" in text


def test_what_a_host_says_of_itself_moves_no_terminal(there: Place, here: Place) -> None:
    there.measure("r1")
    gpu = {"name": "NVIDIA\x1b[2J\nkept out: all", "driver": {"a": [1]}}
    host = {"gpus": [gpu, "H200"], "os": "Debian\x07\r\u202e 12", "machine": 7, "trtmatrix": "1\n2"}
    code, text = here.merge(repack(there.pack()[1], there.folder / "open", json.dumps(host)))
    assert code is ExitCode.AS_EXPECTED
    assert "made on NVIDIA [2J kept out: all (driver unknown), Debian 12, by trtmatrix 1 2\n" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_the_packs_in_a_folder_are_taken(there: Place, here: Place) -> None:
    kept = there.keep(1.0)
    there.measure("r1", kept=kept)
    there.pack()
    there.measure("r2")
    _, pack, told = there.pack()
    assert re.search(r"\nnext, on the other host: python -m trtmatrix merge records-\w+\.tar\.gz\n$", told)
    (pack.parent / "records-0.tar.gz").write_bytes(b"x")
    code, data = here.merge_json(pack.parent)
    assert (code, data["counts"]["new"], data["outputs"]) == (ExitCode.USAGE, 2, 1)
    assert [each["words"].partition(":")[0] for each in data["kept_out"]] == ["cannot be unpacked"]
    assert read_output(here.cache, kept["y"]["sha256"]) is not None


@pytest.mark.parametrize(
    ("options", "said"), [((), "python -m trtmatrix table"), (("--dry-run",), "the same without --dry-run")]
)
def test_it_ends_with_what_to_type_next(
    options: tuple[str, ...], said: str, there: Place, here: Place
) -> None:
    there.measure("r1")
    assert here.merge(there.results, options=options)[1].endswith(f"\nnext: {said}\n")
    assert "\nnext: python -m trtmatrix merge FILES" in here.merge(there.folder / "repros")[1]
