"""The books of pulled images: nothing is ours that we did not bring, nothing goes that is used."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.owner import own_identity
from trtmatrix.launchers.pulled import FILE, Ledger, pull_speed
from trtmatrix.launchers.pulled_rules import Books, PulledImage, Speed, Use, format_books, parse_books

TEXTS = st.text(max_size=6)
IMAGES = st.builds(
    PulledImage, engine=TEXTS, reference=TEXTS, owner=TEXTS, began=TEXTS, drop=st.booleans(), image_id=TEXTS
)
BOOKS = st.builds(
    Books, pulled=st.lists(IMAGES, max_size=4).map(tuple),
    uses=st.lists(st.builds(Use, engine=TEXTS, image_id=TEXTS, owner=TEXTS), max_size=4).map(tuple),
    speeds=st.lists(
        st.builds(Speed, size=st.integers(0), seconds=st.floats(0, 1e9, allow_nan=False)), max_size=3
    ).map(tuple),
)  # fmt: skip
PULL = PulledImage(engine="e", reference="r:1", owner="me", began="2026-01-01T00:00:00Z", drop=True)
FAST = Speed(size=100, seconds=2.0)


@given(BOOKS)
def test_books_come_back_as_they_were_written(books: Books) -> None:
    assert parse_books(format_books(books)) == books


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '{"schema": 2, "pulled": [], "uses": [], "speeds": []}', "{", '{"schema": 1}',
        format_books(Books(pulled=(PULL,))).replace("true", '"yes"'),
        format_books(Books(pulled=(PULL,))).replace('"r:1"', "7"),
        format_books(Books(speeds=(FAST,))).replace("100", '"100"'),
        format_books(Books(pulled=(PULL,))).replace('"owner"', '"keeper"'),
    ],
)  # fmt: skip
def test_books_that_cannot_be_believed_are_none(text: str, tmp_path: Path) -> None:
    assert parse_books(text) is None
    (tmp_path / FILE).write_text(text)
    assert Ledger(tmp_path).read() == Books()


def test_a_pull_is_ours_once_it_has_ended_and_only_under_its_own_id() -> None:
    begun = Books().begin(PULL)
    assert begun.ours("e", "") == begun.ours("e", "i1") == ()
    done = begun.finish(PULL, "i1", FAST)
    assert [image.reference for image in done.ours("e", "i1")] == ["r:1"]
    assert done.ours("other", "i1") == done.ours("e", "i2") == ()
    assert done.is_used("e", "i1")
    assert not done.release("e", "i1", "me").is_used("e", "i1")
    assert done.bytes_per_second == 50
    assert done.forget(done.pulled[0]).pulled == ()


def test_two_runs_that_pull_the_same_do_not_strike_each_others() -> None:
    other = replace(PULL, owner="you")
    done = Books().begin(PULL).begin(other).finish(PULL, "i1", FAST)
    assert [image.owner for image in done.forget(other).ours("e", "i1")] == ["me"]
    assert [image.owner for image in done.finish(other, "i1", FAST).ours("e", "i1")] == ["you"]


def test_a_pull_that_a_killed_run_had_begun_is_nobodys() -> None:
    books = (
        Books()
        .begin(PULL)
        .finish(replace(PULL, owner="me"), "i1", FAST)
        .begin(replace(PULL, reference="r:2"))
    )
    left = books.without_dead(lambda owner: owner == "me")
    assert [image.reference for image in left.pulled] == ["r:1"]
    assert left.uses == ()
    assert left.leftovers("e", lambda owner: owner == "me") == ("i1",)
    assert left.leftovers("other", lambda _: True) == ()
    assert left.leftovers("e", lambda _: False) == ()
    assert left.set_drop("e", "i1", drop=False).leftovers("e", lambda _: True) == ()
    assert left.use("e", "i1", "you").leftovers("e", lambda owner: owner == "me") == ()


@given(BOOKS, IMAGES, TEXTS)
def test_what_is_struck_is_never_dropped(books: Books, image: PulledImage, owner: str) -> None:
    left = books.without_dead(lambda who: who == owner)
    assert all(use.owner != owner for use in left.uses)
    assert all(item.image_id for item in left.pulled if item.owner == owner)
    assert image not in books.begin(image).forget(image).pulled


def test_one_at_a_time_has_the_books_open_and_none_is_lost(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)

    def pull(number: int) -> None:
        with Ledger(tmp_path).open() as page:
            page.write(page.books.begin(replace(PULL, reference=str(number), owner=own_identity())))

    threads = [threading.Thread(target=pull, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.read().pulled) == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pulled.json", "pulled.lock"]


def test_opening_them_strikes_the_dead(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    dead = own_identity().rsplit(":", 1)[0] + ":0"
    with ledger.open() as page:
        page.write(Books().begin(replace(PULL, owner=dead)).use("e", "i1", dead))
    with ledger.open() as page:
        assert page.books == Books()


def test_the_speed_of_pulls_is_remembered(tmp_path: Path) -> None:
    assert pull_speed(tmp_path) is None
    with Ledger(tmp_path).open() as page:
        for _ in range(30):
            page.write(page.books.finish(PULL, "i1", FAST).finish(PULL, "i2", Speed(size=0, seconds=9.0)))
    assert pull_speed(tmp_path) == 50
    assert len(Ledger(tmp_path).read().speeds) == 10
