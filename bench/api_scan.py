"""How well the scan of code finds what changes: precision and recall over the corpus, in docs/api-scan.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.code_corpus import (
    AFTER,
    BEFORE,
    Expected,
    corpus_changes,
    corpus_files,
    expected_uses,
    found_uses,
    kind_named,
)
from trtmatrix.core.codescan.scan import scan_code

PAGE = Path(__file__).parents[1] / "docs" / "api-scan.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measure() -> tuple[str, bool]:
    """Scan the corpus; return the table as Markdown, and whether all was found and nothing else."""
    files = corpus_files()
    before, changes, behaviours = corpus_changes()
    started = time.perf_counter()
    scan = scan_code(files, before, changes, behaviours, AFTER)
    seconds = time.perf_counter() - started
    wanted, found = expected_uses(files), found_uses(scan.uses)
    kinds = sorted({kind_named(name, files) for name in files})
    rows = [
        "| files | how sure | uses | found | missed | false | precision | recall |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in [*kinds, ""]:
        names = {name for name in files if not kind or kind_named(name, files) == kind}
        for certainty in ("sure", "possible"):
            row = _row(kind or "all", certainty, len(names), _only(wanted, names), _only(found, names))
            rows += [row] if row else []
    traps = sum(name.startswith("traps/") for name in files)
    print(f"{len(files)} files scanned in {seconds:.2f} s")  # not on the page: it differs each time
    told = f"{BEFORE} → {AFTER}, {len(files)} files ({traps} with nothing to find)."
    return "\n".join([told, "", *rows]), set(wanted) == set(found)


def _only(uses: Iterable[Expected], names: set[str]) -> list[Expected]:
    return [use for use in uses if use.file in names]


def _row(kind: str, certainty: str, files: int, wanted: Sequence[Expected], found: Sequence[Expected]) -> str:
    """Return a row; a use that is found as the other certainty counts as missed and as false."""
    must = {use for use in wanted if use.certainty == certainty}
    have = {use for use in found if use.certainty == certainty}
    if not must and not have:
        return ""
    right = len(must & have)
    precision = f"{right / len(have):.3f}" if have else "–"
    recall = f"{right / len(must):.3f}" if must else "–"
    counts = f"{len(must)} | {right} | {len(must - have)} | {len(have - must)}"
    return f"| {kind} ({files}) | {certainty} | {counts} | {precision} | {recall} |"


def main() -> int:
    """Write the table into the page; 1 where anything was missed or found falsely."""
    table, right = measure()
    print(table)
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
