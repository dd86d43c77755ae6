"""``merge`` of packs: folders of them, and what is to be typed next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from merges import Place, make_place

from trtmatrix.common.errors import ExitCode
from trtmatrix.records.kept_outputs import kept_file


@pytest.fixture
def there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "there", capsys)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "here", capsys)


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
    assert kept_file(here.cache, kept["y"]["sha256"]).is_file()


@pytest.mark.parametrize(
    ("options", "said"), [((), "python -m trtmatrix table"), (("--dry-run",), "the same without --dry-run")]
)
def test_it_ends_with_what_to_type_next(
    options: tuple[str, ...], said: str, there: Place, here: Place
) -> None:
    there.measure("r1")
    assert here.merge(there.results, options=options)[1].endswith(f"\nnext: {said}\n")
    assert "\nnext: python -m trtmatrix merge FILES" in here.merge(there.folder / "repros")[1]
