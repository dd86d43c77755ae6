"""What this tool pulled: nothing is ours that we did not bring, nothing goes that is used."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trtmatrix.common.paths import own_identity
from trtmatrix.launchers.pulled import (
    FILE,
    Ledger,
    PulledImage,
    Speed,
    Use,
    open_ledger,
    pull_speed,
    read_ledger,
)

PULLING = PulledImage(engine="e", reference="r:1", owner="me", began="2026-01-01T00:00:00Z", drop=True)
PULLED = PULLING.model_copy(update={"image_id": "i1"})
FAST = Speed(size=100, seconds=2.0)
DEAD = own_identity().rsplit(":", 1)[0] + ":0"


@pytest.mark.parametrize(
    ("old", "new"),
    [("{", ""), ("1,", "2,"), ("true", '"yes"'), ('"r:1"', "7"), ("100", '"100"'), ('"owner"', '"keeper"')],
)
def test_a_ledger_that_cannot_be_believed_is_none(old: str, new: str, tmp_path: Path) -> None:
    text = Ledger(pulled=[PULLED], speeds=[FAST]).model_dump_json(by_alias=True)
    (tmp_path / FILE).write_text(text)
    assert read_ledger(tmp_path).pulled == [PULLED]
    (tmp_path / FILE).write_text(text.replace(old, new))
    assert read_ledger(tmp_path) == Ledger()


def test_opening_it_strikes_the_dead_and_what_they_had_only_begun_to_pull(tmp_path: Path) -> None:
    theirs = PULLED.model_copy(update={"owner": DEAD})
    with open_ledger(tmp_path) as ledger:
        ledger.pulled += [theirs, PULLING.model_copy(update={"owner": DEAD})]
        ledger.uses += [Use(engine="e", image_id="i1", owner=owner) for owner in (DEAD, own_identity())]
    with open_ledger(tmp_path) as ledger:
        assert ledger.pulled == [theirs]
        assert ledger.is_used("e", "i1")
        ledger.uses.clear()
    assert not read_ledger(tmp_path).is_used("e", "i1")


def test_one_at_a_time_has_it_open_and_nothing_is_lost(tmp_path: Path) -> None:
    def pull(number: int) -> None:
        with open_ledger(tmp_path) as ledger:
            ledger.pulled.append(PULLED.model_copy(update={"reference": str(number)}))

    threads = [threading.Thread(target=pull, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_ledger(tmp_path).pulled) == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pulled.json", "pulled.lock"]


def test_the_speed_of_pulls_is_known(tmp_path: Path) -> None:
    assert pull_speed(tmp_path) is None
    with open_ledger(tmp_path) as ledger:
        ledger.speeds += [FAST, Speed(size=300, seconds=6.0)]
    assert pull_speed(tmp_path) == 50
