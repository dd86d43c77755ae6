"""The hand-kept table: right in itself, true of the surfaces, strict about mistakes."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from trtmatrix.core.api import ChangeKind
from trtmatrix.core.change_file import parse_change_table
from trtmatrix.core.change_table import lies_between, release
from trtmatrix.core.errors import ConfigError
from trtmatrix.core.surface_diff import compare_surfaces
from trtmatrix.effects.surfaces import TABLE, read_change_table, read_surfaces

RULED = (ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED)
SURFACES = read_surfaces(Path("nowhere"))
ALL = [found for version in SURFACES.versions if (found := SURFACES.of(version)) is not None]


def test_every_name_that_goes_changes_or_is_deprecated_has_its_replacement() -> None:
    table = read_change_table()
    lacking = {
        f"{change.name} at {after.version}"
        for before, after in pairwise(ALL)
        for change in compare_surfaces(before, after, table)
        if change.kind in RULED and not change.replacement
    }
    assert not lacking


def test_every_name_of_the_table_is_one_of_the_bindings() -> None:
    table = read_change_table()
    named = {*table.replacements, *(name for item in table.behaviours for name in item.names)}
    assert not {name for name in named if not any(surface.find(name) for surface in ALL)}


def test_what_is_to_be_written_exists_where_the_name_has_gone() -> None:
    for name, kept in read_change_table().replacements.items():
        last = max(i for i, surface in enumerate(ALL) if surface.find(name))
        after = ALL[min(last + 1, len(ALL) - 1)]
        for written in re.findall(r"\b[A-Z]\w+\.\w+", kept.write):
            assert after.find(written), f"{name}: {written} is not in {after.version}"


def test_the_release_of_a_removal_agrees_with_the_surfaces() -> None:
    table = read_change_table()
    for before, after in pairwise(ALL):
        for change in compare_surfaces(before, after, table):
            kept = table.replacements.get(change.name)
            if change.kind is ChangeKind.REMOVED and kept is not None and kept.removed:
                assert lies_between(kept.removed, before.version, after.version), change.name


def test_every_entry_names_its_source() -> None:
    table = read_change_table()
    told = [(item.source, item.url) for item in table.replacements.values()]
    told += [(item.source, item.url) for item in table.behaviours]
    told += [(item.source, item.url) for item in table.flags]
    assert all(source for source, _ in told)
    assert all(url == "" or url.startswith("https://") for _, url in told)
    without = {source for source, url in told if not url}
    assert without <= {
        "Recalled, not read again",
        "The two surfaces, side by side", "The two surfaces, side by side (inferred)",
        "Docstrings of NVIDIA's bindings, read by this project",
        "Docstrings of NVIDIA's bindings, read by this project (inferred)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "kind", "since"),
    [
        ("--workspace", ChangeKind.REMOVED, "10.0"), ("--explicitBatch", ChangeKind.REMOVED, "10.0"),
        ("--buildOnly", ChangeKind.DEPRECATED, "8.6"), ("--uff", ChangeKind.REMOVED, "10.0"),
        ("--maxBatch", ChangeKind.REMOVED, "10.0"), ("--fp16", ChangeKind.REMOVED, "11.0"),
        ("--best", ChangeKind.REMOVED, "11.0"), ("--calib", ChangeKind.REMOVED, "11.0"),
        ("--preview", ChangeKind.CHANGED, "10.0"), ("--deploy", ChangeKind.REMOVED, "10.0"),
    ],
)  # fmt: skip
def test_flags_that_everybody_knows_are_there(flag: str, kind: ChangeKind, since: str) -> None:
    assert (flag, kind, since) in {(item.flag, item.kind, item.since) for item in read_change_table().flags}


def test_releases_compare_as_releases() -> None:
    assert release("10") == release("10.0.0")
    assert release("10.10") > release("10.9.1")
    assert lies_between("10.0", "9.3.0", "10.0.0")
    assert not lies_between("10.0", "10.0.0", "10.0.1")


GOOD = """
schema: 1
sources: {a: {title: "A", url: "https://a"}, recalled: {title: "R", url: ""}}
replacements:
- {names: [A.b], write: "c", source: a}
- {names: [D], write: "e", source: recalled, known: recalled}
behaviours: [{topic: "t", text: "u", since: any, source: a}]
flags: [{flags: ["--x"], kind: removed, since: "10.0", source: a}]
"""


def test_a_good_file_is_read() -> None:
    table = parse_change_table(GOOD, "t.yaml")
    assert set(table.replacements) == {"A.b", "D"}
    assert table.of("D.member") == table.replacements["D"]
    assert table.behaviours[0].since == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("schema: 1", "schema: 2", "schema"),
        ("https://a", "http://a", "sources.a.url"),
        ("names: [A.b]", "names: []", "replacements[0].names"),
        ("names: [A.b]", 'names: ["A b"]', "replacements[0].names"),
        ("names: [D]", "names: [A.b]", "has an entry already"),
        ("write: \"c\", source: a", "write: \"c\", source: b", "is not among the sources"),
        ("write: \"c\"", "wrte: \"c\"", "wrte"),
        (", known: recalled", "", "what is recalled is not read"),
        ("since: any", "since: 10.0", "behaviours[0].since"),
        ('since: "10.0"', 'since: "ten"', "flags[0].since"),
        ("kind: removed", "kind: gone", "flags[0].kind"),
        ('"--x"', '"x"', "flags[0].flags"),
        ('flags: ["--x"]', 'flags: ["--x", "--x"]', "has an entry for 10.0 already"),
        ("{title: \"A\", url: \"https://a\"}", "{title: \"A\", url: \"https://a\"}, z: {title: Z, url: \"\"}",
         "is used by no entry"),
        ("schema: 1", "schema: 1\nschema: 1", "stands twice"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_with_its_line(old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parse_change_table(GOOD.replace(old, new, 1), "t.yaml")
    assert any(told in problem and problem.startswith("t.yaml:") for problem in caught.value.problems)


def test_all_mistakes_are_told_at_once() -> None:
    text = GOOD.replace("kind: removed", "kind: gone").replace("since: any", "since: never")
    with pytest.raises(ConfigError) as caught:
        parse_change_table(text, "t.yaml")
    assert len(caught.value.problems) >= 2


def test_releases_are_quoted_in_the_file() -> None:
    """An unquoted 10.10 is the number 10.1 to YAML."""
    loaded = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    assert all(isinstance(item["since"], str) for item in [*loaded["behaviours"], *loaded["flags"]])
