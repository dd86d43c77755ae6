"""The small files written for the scan of code, and what must be found in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.api.compare import ChangeTable, compare_surfaces, find_older
from trtmatrix.api.scan import kind_of_file, read_code
from trtmatrix.api.section import find_surface, read_change_table
from trtmatrix.api.types import ApiChange, ApiUse, ChangeKind, Surface

CORPUS = Path(__file__).parents[1] / "tests" / "unit" / "code"
BEFORE, AFTER = "8.6.1", "10.8.0"
FLAGS = ("--explicitBatch", "--workspace", "--maxBatch", "--buildOnly")
"""Options that the corpus takes for removed, so that it does not hang on the table kept by hand."""
_MARK = re.compile(r"#\s*(expect|possible): (.*)$")
_BESIDE = re.compile(r"(?:cell (\d+) )?line (\d+): (sure|possible) (\w+) (.+)$")


@dataclass(frozen=True, order=True)
class Expected:
    """A use that must be found, or was: its place, how sure, what happens to which name."""

    file: str
    cell: int
    line: int
    certainty: str
    change: str
    name: str


def corpus_changes() -> tuple[Surface, Surface, tuple[ApiChange, ...]]:
    """Return the surfaces of the move and what changes, by the shipped surfaces and the flags above."""
    before, after = (find_surface(version) for version in (BEFORE, AFTER))
    if before is None or after is None:
        raise LookupError(f"the package has no surface of {BEFORE} or {AFTER}")
    changes = compare_surfaces(before, after, ChangeTable())
    flags = [ApiChange(name=f"trtexec {flag}", kind=ChangeKind.REMOVED) for flag in FLAGS]
    return before, after, (*changes, *find_older((), before, after, read_change_table()), *flags)


def corpus_files() -> Mapping[str, str]:
    """Return the texts of the corpus, without those that cannot be read."""
    texts = {name[len(f"{CORPUS}/") :]: text for name, text in read_code([CORPUS]).texts.items()}
    own = {name: text for name, text in texts.items() if not name.endswith(".expect")}
    return {name: text for name, text in own.items() if not name.startswith("broken/")}


def expected_uses(files: Mapping[str, str]) -> list[Expected]:
    """Return what must be found, by the marks in the files and by the files beside them."""
    return sorted(each for name, text in files.items() for each in _expected(name, text))


def found_uses(uses: Sequence[ApiUse]) -> list[Expected]:
    """Return what was found in the same words."""
    return sorted(
        Expected(use.file, use.cell, use.line, certainty_of(use), use.change.kind.value, use.change.name)
        for use in uses
    )


def certainty_of(use: ApiUse) -> str:
    """Return how sure a use is, in one word."""
    return "sure" if use.sure else "possible"


def kind_named(name: str, files: Mapping[str, str]) -> str:
    """Return a file's kind in words."""
    return kind_of_file(name, files.get(name, "")[:200]) or "Python"


def _expected(name: str, text: str) -> Iterator[Expected]:
    beside = CORPUS / f"{name}.expect"
    if beside.exists():
        for line in beside.read_text(encoding="utf-8").splitlines():
            found = _BESIDE.match(line)
            if found is None:
                raise ValueError(f"{beside}: {line!r} is no expectation")
            yield Expected(name, int(found[1] or 0), int(found[2]), found[3], found[4], found[5])
        return
    for number, line in enumerate(text.splitlines(), 1):
        mark = _MARK.search(line)
        for each in mark[2].split(", ") if mark else ():
            change, _, named = each.partition(" ")
            certainty = "sure" if mark and mark[1] == "expect" else "possible"
            yield Expected(name, 0, number, certainty, change, named.strip())
