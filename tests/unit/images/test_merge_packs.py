"""``merge`` of packs: folders of them, and what is to be typed next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from merges import Place, make_place

from trtmatrix.common.errors import ExitCode
from trtmatrix.records.store import kept_file


@pytest.fixture
def there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "there", capsys)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "here", capsys)


def test_several_packs_are_taken_and_a_damaged_one_is_named(there: Place, here: Place) -> None:
    kept = there.keep(1.0)
    there.measure("r1", kept=kept)
    first = there.pack()[1]
    there.measure("r2")
    _, second, told = there.pack()
    assert re.search(r"\nnext, on the other host: python -m trtmatrix merge records-\w+\.tar\.gz\n$", told)
    damaged = second.with_name("records-0.tar.gz")
    damaged.write_bytes(b"x")
    code, data = here.merge_json(first, second, damaged)
    assert (code, data["counts"]["new"], data["outputs"]) == (ExitCode.USAGE, 2, 1)
    assert [each["words"].partition(":")[0] for each in data["kept_out"]] == ["cannot be unpacked"]
    assert kept_file(here.cache, kept["y"]["sha256"]).is_file()


@pytest.mark.parametrize(
    ("place", "right"),
    [
        ("r1.json", True),
        ("nvidia-h200/10.7.0/plain/plain/r1.json", True),
        ("local/nvidia-h200/10.7.0/plain/plain/r1.json", True),
        ("10.8.0/plain/plain/r1.json", False),
        ("nvidia-l4/10.7.0/plain/plain/r1.json", False),
    ],
)
def test_a_file_lies_where_its_content_says(place: str, right: bool, there: Place, here: Place) -> None:
    file = there.folder / "tree" / place
    file.parent.mkdir(parents=True)
    file.write_bytes(Path(there.measure("r1").file).read_bytes())
    code, text = here.merge(there.folder / "tree")
    assert code is (ExitCode.AS_EXPECTED if right else ExitCode.USAGE)
    assert right or "by its content it is nvidia-h200/10.7.0/plain/plain/r1.json" in text
