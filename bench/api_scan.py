"""How well the scan of code finds what changes: python -m bench.api_scan [LABELS SRC], else over the corpus.

LABELS: a line of JSON a label: package, version, file, line, name, label (use, guarded, lookalike or unsure).
SRC: a folder with the unpacked snapshots, as ``package-version``; nothing is fetched. The corpus's table is
written into docs/api-scan.md.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.code_corpus import (
    AFTER,
    BEFORE,
    certainty_of,
    corpus_changes,
    corpus_files,
    expected_uses,
    found_uses,
    kind_named,
)
from trtmatrix.api.compare import compare_surfaces, find_older
from trtmatrix.api.scan import read_code, scan_code
from trtmatrix.api.section import find_surface, read_change_table, read_store

PAGE = Path(__file__).parents[1] / "docs" / "api-scan.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WRONG = {"use": "none", "guarded": "none", "lookalike": "sure possible", "unsure": ""}


def measure_labels(labels: Path, sources: Path) -> Iterator[str]:
    """Scan the snapshots that are labelled; yield what was found of each label, and what was not."""
    before, after = find_surface(BEFORE), find_surface(AFTER)
    if before is None or after is None:
        raise LookupError(f"the package has no surface of {BEFORE} or {AFTER}")
    table = read_change_table()
    changes = (
        *compare_surfaces(before, after, table),
        *find_older(read_store().values(), before, after, table),
    )
    wanted = defaultdict(list)
    for line in labels.read_text(encoding="utf-8").splitlines():
        label = json.loads(line)
        wanted[f"{label['package']}-{label['version']}"].append(label)
    counts, files, started = Counter[tuple[str, str]](), 0, time.perf_counter()
    for package in sorted(wanted):
        read = read_code([sources / package])
        files += read.seen
        found = defaultdict(list)
        for use in scan_code(read.texts, before, after, changes).uses:
            found[use.file[len(f"{sources / package}/") :], use.line].append(use)
        for label in wanted[package]:
            uses = [
                use
                for use in found[label["file"], label["line"]]
                if _is_named(use.change.name, label["name"])
            ]
            state = min(map(certainty_of, uses), key="sure possible".index, default="none")
            counts[label["label"], state] += 1
            if state in WRONG[label["label"]] or (label["label"], state) == ("guarded", "sure"):
                where = f"{package} {label['file']}:{label['line']} {label['name']}"
                yield f"{state:8} {label['label']:9} {where}"
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    yield from _summary(counts)
    yield f"{len(wanted)} snapshots, {files} files in {seconds:.1f} s, at most {peak} MB"


def _is_named(change: str, name: str) -> bool:
    """Say whether a change's name is the one that a label has."""
    kinds = {"version test": "__version__", "image": "nvcr.io/nvidia"}
    kind = next((label for start, label in kinds.items() if change.startswith(start)), "")
    return name in (change, kind, change.rpartition(".")[2], change.rpartition(" ")[2]) or change.startswith(
        (f"pin {name}", f"image {name}")
    )


def _summary(counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield recall of uses, also guarded ones, how many are sure, and false alarms."""
    of = {label: sum(n for (each, _), n in counts.items() if each == label) for label in WRONG}
    real = of["use"] + of["guarded"]
    found = real - counts["use", "none"] - counts["guarded", "none"]
    sure, guarded = counts["use", "sure"], counts["guarded", "sure"]
    false = [counts["lookalike", state] for state in ("sure", "possible")]
    yield f"recall {found}/{real} = {found / max(real, 1):.3f}"
    share = f"{sure}/{of['use']} = {sure / max(of['use'], 1):.3f}"
    yield f"sure {share} of the uses, {guarded}/{of['guarded']} of the guarded"
    yield f"false alarms {false[0]} sure, {false[1]} possible, of {of['lookalike']} lookalikes"


def measure_corpus() -> tuple[str, bool]:
    """Scan the corpus; return the table as Markdown, and whether all was found and nothing else."""
    files = corpus_files()
    before, after, changes = corpus_changes()
    wanted = set(expected_uses(files))
    found = set(found_uses(scan_code(files, before, after, changes).uses))
    rows = [
        f"{BEFORE} → {AFTER}, {len(files)} files.",
        "",
        "| files | uses | found | missed | false |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in [*sorted({kind_named(name, files) for name in files}), ""]:
        names = {name for name in files if not kind or kind_named(name, files) == kind}
        must, have = ({use for use in uses if use.file in names} for uses in (wanted, found))
        numbers = f"{len(must)} | {len(must & have)} | {len(must - have)} | {len(have - must)}"
        rows.append(f"| {kind or 'all'} ({len(names)}) | {numbers} |")
    return "\n".join(rows), wanted == found


def main(words: Sequence[str]) -> int:
    """Print what was measured; 1 where anything of the corpus was missed or found falsely."""
    if words:
        for line in measure_labels(Path(words[0]), Path(words[1])):
            print(line)
        return 0
    table, right = measure_corpus()
    print(table)
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
