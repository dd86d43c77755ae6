"""Surfaces that the package has and that were read inside images: found by version, kept whole, told of."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.api import ApiClass, ChangeKind, Member, MemberKind, Origin, Surface
from trtmatrix.core.errors import ConfigError
from trtmatrix.core.surface_bracket import compare_bracket
from trtmatrix.core.surfacefile import format_store, format_surface, numbers_of, parse_store, parse_surface
from trtmatrix.effects.surfaces import (
    FOLDER,
    STORE,
    Surfaces,
    publish_surfaces,
    read_change_table,
    read_store,
    read_surfaces,
)  # fmt: skip

NOWHERE = Path("nowhere")
SURFACES = read_surfaces(NOWHERE)


def get(version: str) -> Surface:
    found = SURFACES.of(version)
    assert found is not None, version
    return found


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
NAMES = st.from_regex(r"[A-Z][a-z]{0,3}", fullmatch=True)
MEMBERS = st.builds(
    Member, kind=st.sampled_from([kind for kind in MemberKind if kind is not MemberKind.CLASS]),
    signatures=st.lists(TEXT, max_size=2).map(tuple), returns=TEXT, deprecated=TEXT, settable=st.booleans(),
)  # fmt: skip
CLASSES = st.builds(
    ApiClass, bases=st.lists(NAMES, max_size=2).map(tuple), deprecated=TEXT,
    members=st.dictionaries(NAMES, MEMBERS, max_size=3),
)  # fmt: skip
CONTENT = st.tuples(
    st.dictionaries(NAMES, CLASSES, max_size=3),
    st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), MEMBERS, max_size=2),
)


@given(contents=st.lists(CONTENT, min_size=1, max_size=5), repeat=st.booleans())
def test_a_store_gives_back_what_was_put_in(contents: list[tuple[object, object]], *, repeat: bool) -> None:
    contents = contents + contents[:2] if repeat else contents
    surfaces = [
        Surface(version=f"9.{n}.1", origin=Origin(wheel=f"w{n}"), classes=classes, names=names)  # type: ignore[arg-type]
        for n, (classes, names) in enumerate(contents)
    ]
    text = format_store(surfaces)
    store = parse_store(text, "store")
    assert [store.surface(version) for version in store.origins] == surfaces
    assert format_store(reversed(surfaces)) == text
    for surface in surfaces:
        assert parse_surface(json.loads(json.dumps(format_surface(surface))), "file") == surface


def test_what_is_equal_over_releases_stands_once() -> None:
    one = Surface(version="1.0.0", origin=Origin(), classes={"A": ApiClass()}, names={})
    three = [replace(one, version=version) for version in ("1.0.0", "1.1.0", "1.2.0")]
    assert '"A":[["1.0.0..",{"kind":"class"}]]' in format_store(three)
    gap = [three[0], replace(three[1], classes={}), three[2], replace(one, version="1.3.0", classes={})]
    assert '"A":[["1.0.0, 1.2.0",{"kind":"class"}]]' in format_store(gap)


def test_the_package_has_every_release_that_was_named_and_says_whence() -> None:
    wanted = ("8.5.3.1", "8.6.0", "8.6.1", "10.0.1", "10.7.0", "10.8.0", "10.16.1", "11.0.0", "11.4.0.106")
    assert all(SURFACES.of(version) for version in wanted)
    assert len(SURFACES.versions) >= 28
    for version in SURFACES.versions:
        origin = get(version).origin
        assert origin.wheel.endswith(".whl")
        assert len(origin.sha256) == 64
        assert (origin.python, len(origin.extracted)) == ("3.10", 10)
    assert (FOLDER / STORE).stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("version", "count"), [("10.0.1", 1835), ("10.7.0", 1938), ("10.8.0", 1997), ("11.4.0", 1864)]
)
def test_attributes_counted_as_dir_counts_them_are_as_many_as_were_counted_before(
    version: str, count: int
) -> None:
    """Public attributes of the public classes, inherited ones at every class again."""
    surface = get(version)

    def attributes(name: str) -> set[str]:
        own = {member for member in surface.classes[name].members if not member.startswith("_")}
        return own.union(*map(attributes, surface.classes[name].bases))

    assert sum(len(attributes(name)) for name in surface.classes if "." not in name) == count


def test_nothing_private_no_address_and_no_leftover_of_the_package_s_own_start() -> None:
    text = (FOLDER / STORE).read_text(encoding="utf-8")
    assert "0x" not in text
    assert "tensorrt_bindings.tensorrt" not in text
    for version in SURFACES.versions:
        surface = get(version)
        assert not [name for name in (*surface.classes, *surface.names) if name.startswith("_")]
        assert not {"attr", "value", "common_enter", "ctypes", "os"} & set(surface.names)


def test_names_are_found_through_bases_nested_classes_and_second_names() -> None:
    old, new = get("8.6.1"), get("10.8.0")
    assert old.find("ICudaEngine.num_bindings") == Member(kind=MemberKind.PROPERTY, returns="int")
    assert new.find("ICudaEngine.num_bindings") is None
    assert new.find("IConvolutionLayer.name") == new.find("ILayer.name")
    assert old.find("Logger.Severity.ERROR") == old.find("ILogger.Severity.ERROR")
    assert old.find("ILogger.Severity.NOTHING") is None
    assert old.find("ResizeMode.LINEAR") == old.find("InterpolationMode.LINEAR")
    assert new.find("ResizeMode.LINEAR") is None
    found = new.find("Builder.build_serialized_network")
    assert found is not None
    assert found.returns == "IHostMemory"
    assert new.find("float32") == Member(kind=MemberKind.VALUE, returns="DataType")
    builder = new.find("Builder")
    assert builder is not None
    assert (builder.kind, builder.returns) == (MemberKind.CLASS, "Builder")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("10.0.1.6", "10.0.1"), ("10.8.0", "10.8.0.43"), ("8.6.1", "8.6.1"), ("8.6.1.6", "8.6.1"),
        ("10.7.0.23", "10.7.0"), ("10.14.1", "10.14.1.48.post1"), ("10.13.3", "10.13.3.9"),
        ("10.0", None), ("11", None), ("9.3.0", None), ("10.8.0.40", None), ("tensorrt-rtx-1.4", None),
    ],
)  # fmt: skip
def test_a_column_finds_its_surface(asked: str, found: str | None) -> None:
    surface = SURFACES.of(asked)
    assert (surface.version if surface else None) == found


def test_the_nearest_around_a_version_that_has_none() -> None:
    assert [s.version if s else None for s in SURFACES.around("9.3.0")] == ["8.6.1", "10.0.1"]
    assert [s.version if s else None for s in SURFACES.around("10.0.0")] == ["8.6.1", "10.0.1"]
    assert [s.version if s else None for s in SURFACES.around("8.2.0")] == [None, "8.5.3.1"]
    assert [s.version if s else None for s in SURFACES.around("99.0.0")] == [SURFACES.versions[-1], None]
    assert [s.version if s else None for s in SURFACES.around("10.8.0")] == ["10.8.0.43"] * 2


def test_a_move_without_a_surface_is_bracketed_and_labelled() -> None:
    table = read_change_table()
    bracket = SURFACES.between("8.6.1", "9.3.0")
    assert bracket is not None
    assert (bracket.before.version, bracket.after.version) == ("8.6.1", "10.0.1")
    assert "9.3.0" in bracket.lacking
    found = {change.name: change for change in compare_bracket(bracket, table)}
    assert found["ICudaEngine.num_bindings"].kind is ChangeKind.DEPRECATED  # it goes in 10.0, after 9.3.0
    assert "removed in 10.0" in found["ICudaEngine.num_bindings"].note
    assert found["BuilderFlag.BF16"].kind is ChangeKind.ADDED
    assert "by 10.0.1" in found["BuilderFlag.BF16"].note
    assert "trtexec --workspace" not in found
    early = SURFACES.between("9.3.0", "10.0.0")
    assert early is not None
    found = {change.name: change for change in compare_bracket(early, table)}
    assert found["ICudaEngine.num_bindings"].kind is ChangeKind.REMOVED
    assert found["trtexec --workspace"].kind is ChangeKind.REMOVED
    late = SURFACES.between("10.0.0", "10.0.1.6")
    assert late is not None
    changes = compare_bracket(late, table)
    assert {change.kind for change in changes} == {ChangeKind.ADDED}
    assert all("after 8.6.1" in change.note for change in changes)
    exact = SURFACES.between("10.7.0", "10.8.0")
    assert exact is not None
    assert exact.lacking == ""
    assert SURFACES.between("8.2.0", "8.6.1") is None
    down = SURFACES.between("10.0.1", "9.3.0")
    assert down is not None
    assert (down.before.version, down.after.version) == ("10.0.1", "8.6.1")


def write(folder: Path, name: str, surface: Surface) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(format_surface(surface)))
    return file


def test_surfaces_read_inside_images_stand_beside_the_packaged_ones(tmp_path: Path) -> None:
    inside = replace(get("8.6.1"), version="9.3.0.post12.dev1", origin=Origin(image="sha256:1"))
    write(tmp_path / "local" / "surfaces", "9.3.0", inside)
    surfaces = read_surfaces(tmp_path)
    assert surfaces.of("9.3.0") == inside
    assert numbers_of(surfaces.versions[3]) == (9, 3, 0)
    assert publish_surfaces(tmp_path) == [tmp_path / "surfaces" / "9.3.0.json"]
    assert publish_surfaces(tmp_path) == []
    (tmp_path / "local" / "surfaces" / "9.3.0.json").unlink()
    assert read_surfaces(tmp_path).of("9.3.0") == inside


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 7}', '{"schema": 1, "version": "x", "classes": {}, "names": {}}',
     '{"schema": 1, "version": "9.3.0", "classes": {"A": {"members": {"f": {"kind": "what"}}}}, "names": {}}',
     '{"schema": 1, "version": "9.3.0", "classes": {"A": 3}, "names": {}}',
     '{"schema": 1, "version": "9.3.0", "classes": [], "names": {}}'],
)  # fmt: skip
def test_a_file_that_is_no_surface_is_told_of_and_the_others_are_read(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "surfaces"
    write(folder, "9.2.0", replace(get("8.6.1"), version="9.2.0"))
    (folder / "9.3.0.json").write_text(text)
    surfaces = read_surfaces(tmp_path)
    assert surfaces.of("9.3.0") is None
    assert surfaces.of("9.2.0") is not None
    (problem,) = surfaces.problems
    assert "9.3.0.json" in problem


def test_a_broken_store_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="nox -s surfaces"):
        parse_store('{"schema": 1, "surfaces": [], "entries": 3}', "bindings.json")


def test_two_surfaces_are_there_quickly() -> None:
    read_store.cache_clear()
    start = time.perf_counter()
    surfaces = read_surfaces(NOWHERE)
    assert isinstance(surfaces, Surfaces)
    assert surfaces.of("8.6.1")
    assert surfaces.of("10.8.0")
    assert time.perf_counter() - start < 0.5  # 0.025 s where nothing else runs
