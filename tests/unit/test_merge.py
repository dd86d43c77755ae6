"""What becomes of records from elsewhere: a table over all outcomes, and that the order never matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import make_cell, make_record
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.images.fates import (
    NOTHING,
    Fate,
    Held,
    Incoming,
    Key,
    Settled,
    content_digest,
    find_differences,
    gpu_lines,
    group_runs,
    mark_of,
    marks,
    misplaced,
    settle,
)
from trtmatrix.judge.record import Record

CELL = make_cell()


def coming(value: float, source: str = "x.json", run: str = "r1") -> Incoming:
    record = make_record(CELL, value, run=run)
    return Incoming(record=record, digest=content_digest(record.data), source=source)


A, B, C = coming(1), coming(2), coming(3)
a, b = A.digest, B.digest
Row = tuple[Sequence[Incoming], Held, Fate, Incoming | None, Sequence[Incoming], bool]
ROWS: dict[str, Row] = {
    "nothing here": ((A,), NOTHING, Fate.NEW, A, (), False),
    "twice the same": ((A, replace(A, source="y")), NOTHING, Fate.NEW, A, (), False),
    "two that differ": ((A, B), NOTHING, Fate.CONFLICT, None, (A, B), False),
    "published": ((A,), Held(published=a), Fate.SAME, None, (), False),
    "measured here": ((A,), Held(local=a), Fate.SAME, None, (), False),
    "both": ((A,), Held(published=a, local=a), Fate.SAME, None, (), False),
    "another published": ((B,), Held(published=a), Fate.CONFLICT, None, (B,), True),
    "another measured here": ((B,), Held(local=a), Fate.CONFLICT, None, (B,), False),
    "another, both": ((B,), Held(published=a, local=a), Fate.CONFLICT, None, (B,), True),
    "one of two apart": ((A,), Held(apart=marks((A, B))), Fate.CONFLICT, None, (), False),
    "a third": ((C,), Held(apart=marks((A, B))), Fate.CONFLICT, None, (C,), False),
    "settled by hand": ((A, B), Held(published=a, apart=marks((B,))), Fate.SAME, None, (), False),
    "settled, a third": ((C,), Held(published=a, apart=marks((B,))), Fate.CONFLICT, None, (C,), True),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_becomes_of_a_run(name: str) -> None:
    incoming, held, fate, publish, apart, move = ROWS[name]
    found = settle(incoming, held)
    assert (found.fate, found.publish, found.move) == (fate, publish, move)
    assert {one.digest for one in found.apart} == {one.digest for one in apart}
    assert found.words
    assert found.incoming == tuple(incoming)


@pytest.mark.parametrize("name", ROWS)
def test_a_cell_that_is_none_of_ours_is_kept_out_unless_it_is_here(name: str) -> None:
    incoming, held, fate, publish, apart, _ = ROWS[name]
    found = settle(incoming, held, "there is no such repro")
    kept_out = publish is not None or bool(apart)
    assert found.fate is (Fate.REFUSED if kept_out else fate)
    assert (found.publish, found.apart, found.move) == (None, (), False)


def test_every_fate_is_in_the_table() -> None:
    assert {row[2] for row in ROWS.values()} | {Fate.REFUSED} == set(Fate)


def after(held: Held, settled: Settled) -> Held:
    """What is here once a run is settled."""
    moved = {mark_of(held.published)} if settled.move else set()
    published = settled.publish.digest if settled.publish else "" if settled.move else held.published
    return replace(held, published=published, apart=held.apart | moved | marks(settled.apart))


def merged(tree: Mapping[Key, Held], incoming: Iterable[Incoming]) -> dict[Key, Held]:
    result = dict(tree)
    for key, group in group_runs(incoming).items():
        result[key] = after(result.get(key, NOTHING), settle(group, result.get(key, NOTHING)))
    return result


RECORDS = st.lists(
    st.builds(coming, st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from("xyz"), st.sampled_from(["r1", "r2"]))
)
TREES = st.dictionaries(
    st.sampled_from([("r1"), ("r2")]),
    st.builds(Held, published=st.sampled_from(["", a, b]), local=st.sampled_from(["", a, C.digest])),
).map(lambda tree: {(CELL.id, run): held for run, held in tree.items()})


@given(TREES, RECORDS, RECORDS, st.randoms())
def test_merging_gives_the_same_in_any_order_and_grouping(
    tree: dict[Key, Held], first: list[Incoming], second: list[Incoming], random: Any
) -> None:
    shuffled = [*first, *second]
    random.shuffle(shuffled)
    wanted = merged(tree, [*first, *second])
    assert merged(tree, shuffled) == wanted
    assert merged(merged(tree, first), second) == wanted
    assert merged(merged(tree, second), first) == wanted


@given(TREES, RECORDS)
def test_merging_again_changes_nothing_and_loses_nothing(
    tree: dict[Key, Held], records: list[Incoming]
) -> None:
    once = merged(tree, records)
    assert merged(once, records) == once
    for one in records:
        held = once[one.key]
        assert one.digest in {held.published, held.local} or mark_of(one.digest) in held.apart
    for key, held in tree.items():
        assert once[key].local == held.local
        assert held.published in {once[key].published, ""} or mark_of(held.published) in once[key].apart


@pytest.mark.parametrize(
    ("place", "right"),
    [
        ("r1.json", True),
        ("sdpa-tf32/r1.json", True),
        ("h200/10.7.0/sdpa-scale/sdpa-tf32/r1.json", True),
        ("local/h200/10.7.0/sdpa-scale/sdpa-tf32/r1.json", True),
        ("r2.json", False),
        ("10.8.0/sdpa-scale/sdpa-tf32/r1.json", False),
        ("l4/10.7.0/sdpa-scale/sdpa-tf32/r1.json", False),
        ("some/folder/r1.json", False),
    ],
)
def test_a_file_lies_where_its_content_says(place: str, right: bool) -> None:
    words = misplaced(make_record(CELL, run="r1"), place.split("/"))
    assert bool(words) is not right
    assert right or "h200/10.7.0/sdpa-scale/sdpa-tf32/r1.json" in words


def test_a_digest_is_that_of_the_content_not_of_its_layout() -> None:
    assert content_digest({"a": 1, "b": [2]}) == content_digest({"b": [2], "a": 1})
    assert content_digest({"a": 1}) != content_digest({"a": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        content_digest({"a": float("nan")})


def test_differences_are_named_with_both_values() -> None:
    first = {"a": {"b": 1, "c": [1, 2]}, "gone": "x" * 100, "same": None}
    second = {"a": {"b": 2, "c": [1, 3]}, "new": [1], "same": None}
    assert find_differences(first, second) == [
        "a.b: 1 | 2", "a.c[1]: 2 | 3", f"gone: '{'x' * 58}… | nothing", "new: nothing | [1]",
    ]  # fmt: skip
    assert find_differences({"a": 1}, {"a": 1.0}) == ["a: 1 | 1.0"]
    assert find_differences([1], [1, 2]) == [": [1] | [1, 2]"]
    assert find_differences(first, first) == []


def on(driver: str | None, variant: str = "140 GiB", name: str = "NVIDIA H200") -> Record:
    return make_record(CELL, gpu={"name": name, "driver": driver, "variant": variant})


@pytest.mark.parametrize(
    ("here", "came", "words"),
    [
        ([on("580.1")], [on("580.1")], ()),
        ([on("580.1"), on("570.2")], [on("570.2")], ()),
        ([on("580.1")], [make_record(CELL)], ()),
        ([], [on("580.1")], ("NVIDIA H200: no records of this GPU were here", "driver 580.1, 140 GiB")),
        ([on("580.1")], [on("570.2")], ("driver 570.2, 140 GiB in what comes", "driver 580.1, 140 GiB here")),
        ([on("580.1")], [on("580.1", "140 GiB, MIG 1g")], ("MIG 1g in what comes",)),
        ([on("580.1")], [on(None, "")], ("driver unknown in what comes",)),
    ],
)
def test_other_drivers_and_variants_are_told(
    here: list[Record], came: list[Record], words: tuple[str, ...]
) -> None:
    lines = gpu_lines(here, came)
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)
