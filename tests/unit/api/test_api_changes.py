"""The hand-kept table: right in itself, true of the surfaces, strict about mistakes."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from trtmatrix.api.changes import parse_change_table
from trtmatrix.api.compare import compare_surfaces
from trtmatrix.api.section import TABLE, read_change_table, read_surfaces
from trtmatrix.api.types import ChangeKind, lies_between
from trtmatrix.common.errors import ConfigError

RULED = (ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED)
SURFACES = read_surfaces(Path("nowhere"))
ALL = [found for version in SURFACES.versions if (found := SURFACES.of(version)) is not None]
KEPT = read_change_table()


def test_every_name_that_goes_changes_or_is_deprecated_has_its_replacement_at_the_right_release() -> None:
    for before, after in pairwise(ALL):
        for change in compare_surfaces(before, after, KEPT):
            assert change.replacement or change.kind not in RULED, f"{change.name} at {after.version}"
            kept = KEPT.replacements.get(change.name)
            if change.kind is ChangeKind.REMOVED and kept is not None and kept.removed:
                assert lies_between(kept.removed, before.version, after.version), change.name


def test_every_name_of_the_table_is_one_of_the_bindings_and_what_is_to_be_written_exists() -> None:
    named = {*KEPT.replacements, *(name for item in KEPT.behaviours for name in item.names)}
    assert not {name for name in named if not any(surface.find(name) for surface in ALL)}
    for name, kept in KEPT.replacements.items():
        last = max(i for i, surface in enumerate(ALL) if surface.find(name))
        after = ALL[min(last + 1, len(ALL) - 1)]
        for written in re.findall(r"\b[A-Z]\w+\.\w+", kept.write):
            assert after.find(written), f"{name}: {written} is not in {after.version}"


def test_every_entry_names_its_source_and_every_source_is_named() -> None:
    told = {(item.source, item.url) for item in KEPT.replacements.values()}
    told |= {(item.source, item.url) for item in KEPT.behaviours}
    told |= {(item.source, item.url) for item in [*KEPT.flags, *KEPT.older]}
    known = r"Recalled, not read again|The two surfaces, side by side|Docstrings of NVIDIA's bindings"
    assert all(url.startswith("https://") or re.match(known, source) for source, url in told)
    raw = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    entries = [*raw["replacements"], *raw["behaviours"], *raw["flags"], *raw["older"]]
    assert {entry["source"] for entry in entries} == set(raw["sources"])
    assert all(entry.get("known") for entry in entries if entry["source"] == "recalled"), "not read"
    flags = [(flag, item["since"]) for item in raw["flags"] for flag in item["names"]]
    names = [name for item in raw["replacements"] for name in item["names"]]
    assert (len(flags), len(names)) == (len(set(flags)), len(set(names)))


GOOD = """
schema: 1
sources: {a: {title: "A", url: "https://a"}, recalled: {title: "R", url: ""}}
replacements:
- {names: [A.b], write: "c", source: a}
- {names: [D], write: "e", source: recalled, known: recalled}
behaviours: [{topic: "t", text: "u", since: "", source: a, known: inferred}]
flags: [{names: ["--x"], kind: removed, since: "10.0", source: a}]
older: [{names: [F.g], write: "h", removed: "8.0", source: a}]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("source: a}", "source: b}"), ('write: "c"', 'wrte: "c"'), ("kind: removed", "kind: gone"),
        ("schema: 1", "schema: 1\nschema: 1"), ("flags: [", "flag: ["),
    ],
)  # fmt: skip
def test_a_table_of_another_shape_is_refused(old: str, new: str) -> None:
    assert set(parse_change_table(GOOD, "t.yaml").replacements) == {"A.b", "D"}
    with pytest.raises(ConfigError) as caught:
        parse_change_table(GOOD.replace(old, new), "t.yaml")
    assert all(problem.startswith("t.yaml:") for problem in caught.value.problems)


def test_releases_are_quoted_and_flags_are_flags() -> None:
    versions = {version for kept in KEPT.replacements.values() for version in (kept.deprecated, kept.removed)}
    versions |= {item.since for item in KEPT.behaviours} | {item.since for item in KEPT.flags}
    assert all(re.fullmatch(r"(\d+\.\d+(\.\d+)*)?", version) for version in versions)
    assert all(item.since and item.kind in RULED for item in KEPT.flags)
    assert all(re.fullmatch(r"--[A-Za-z]\w*", flag) for item in KEPT.flags for flag in item.names)
