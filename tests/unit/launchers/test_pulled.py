"""What this tool pulled: nothing is ours that we did not bring."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trtmatrix.common.paths import own_identity
from trtmatrix.launchers.pulled import FILE, Ledger, PulledImage, open_ledger, read_ledger

PULLING = PulledImage(engine="e", reference="r:1", owner="me", drop=True)
PULLED = PULLING.model_copy(update={"image_id": "i1"})
DEAD = own_identity().rsplit(":", 1)[0] + ":0"


@pytest.mark.parametrize(
    ("old", "new"),
    [("{", ""), ("2,", "3,"), ("true", '"yes"'), ('"r:1"', "7"), ('"owner"', '"keeper"')],
)
def test_a_ledger_that_cannot_be_believed_is_none(old: str, new: str, tmp_path: Path) -> None:
    text = Ledger(pulled=[PULLED]).model_dump_json(by_alias=True)
    (tmp_path / FILE).write_text(text)
    assert read_ledger(tmp_path).pulled == [PULLED]
    (tmp_path / FILE).write_text(text.replace(old, new))
    assert read_ledger(tmp_path) == Ledger()


def test_opening_it_strikes_what_the_dead_had_only_begun_to_pull(tmp_path: Path) -> None:
    theirs = PULLED.model_copy(update={"owner": DEAD})
    with open_ledger(tmp_path) as ledger:
        ledger.pulled += [theirs, PULLING.model_copy(update={"owner": DEAD})]
    with open_ledger(tmp_path) as ledger:
        assert ledger.pulled == [theirs]


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
