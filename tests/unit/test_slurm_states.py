"""What Slurm's words for a state mean, alone and together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.core.slurm.states import BASES, FLAGS, phase_of, state_of
from trtmatrix.core.slurm.tasks import Tasks, parse_tasks

OVER = [word for word, phase in BASES.items() if phase is Phase.GONE]


@pytest.mark.parametrize("word", OVER)
def test_a_job_that_is_over_is_gone_once_nothing_completes(word: str) -> None:
    assert phase_of((word,)) is Phase.GONE
    assert phase_of((word, "COMPLETING")) is Phase.RUNNING
    assert phase_of((word, "COMPLETING", "REQUEUED")) is Phase.WAITING


@given(st.lists(st.sampled_from([*BASES, *FLAGS, "NEW_WORD", ""])))
def test_gone_needs_a_word_that_says_so(words: list[str]) -> None:
    if phase_of(words) is Phase.GONE:
        assert any((BASES | FLAGS).get(word) is Phase.GONE for word in words)


def test_a_word_of_a_later_release_is_not_taken_for_gone() -> None:
    assert phase_of(("HIBERNATED",)) is Phase.RUNNING
    assert phase_of(("FAILED", "HIBERNATED")) is Phase.RUNNING
    assert phase_of(()) is Phase.RUNNING


def test_the_state_is_told_rather_than_its_flags() -> None:
    assert state_of(("COMPLETING", "FAILED")) == "FAILED"
    assert state_of(("COMPLETING",)) == "COMPLETING"
    assert state_of(()) == ""


@pytest.mark.parametrize(
    ("text", "numbers", "whole"),
    [
        ("0-3%2", (0, 1, 2, 3), True),
        ("1,5-7%2", (1, 5, 6, 7), True),
        ("[0-8:4]", (0, 4, 8), True),
        ("[1,3,...]", (1, 3), False),
        ("[1,3,24", (1, 3), False),
        ("0xE2", (1, 5, 6, 7), True),
        ("0x7FC%2", tuple(range(2, 11)), True),
        ("0x0", (), False),
        ("0,2,4,...%8", (0, 2, 4), False),
        ("0-...", (), False),
        ("", (), False),
        ("7-3", (), False),
        ("0-999999999", tuple(range(1 << 16)), False),
    ],
)
def test_tasks_of_an_array(text: str, numbers: tuple[int, ...], whole: bool) -> None:
    assert parse_tasks(text) == Tasks(numbers=numbers, whole=whole)


@given(st.text(alphabet="0123456789-,:%[]. x"))
def test_no_expression_breaks_it(text: str) -> None:
    assert len(parse_tasks(text).numbers) <= 1 << 16
