"""Every release's own way to tell of the same jobs is read as the same: fixtures of real Slurms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.parse import TroubledError, UnreadableError, find_task, parse_sacct, parse_squeue
from trtmatrix.core.slurm.parse_lines import parse_sacct_lines, parse_squeue_lines

FIXTURES = Path(__file__).parent / "slurm_json"
FILES = {"squeue": parse_squeue, "sacct": parse_sacct}
WITH_JSON = sorted(FIXTURES.glob("*/s*.json"))
QUEUES = [path for path in WITH_JSON if path.name.startswith("squeue") and "cut" not in path.name]
ACCOUNTS = [path for path in WITH_JSON if path.name.startswith("sacct")]
W, R, G = Phase.WAITING, Phase.RUNNING, Phase.GONE
DOTS = sorted({*range(0, 121, 3), *range(1, 122, 7)})

EXPECTED: dict[tuple[str, int | None], tuple[Phase, str]] = {
    ("failed", None): (G, "FAILED"),
    ("killed", None): (G, "FAILED"),
    ("engine", None): (G, "FAILED"),
    ("never", None): (W, "PENDING"),
    ("never-kill", None): (G, "CANCELLED"),
    ("array", 0): (G, "COMPLETED"),
    ("array", 1): (G, "FAILED"),
    ("array", 2): (G, "FAILED"),
    ("limit", None): (G, "TIMEOUT"),
    ("cancelled", None): (G, "CANCELLED"),
    ("lost", None): (G, "NODE_FAIL"),
    ("dropped", None): (G, "CANCELLED"),
    **{("many", task): (R, "RUNNING") for task in (0, 1)},
    **{("many", task): (W, "PENDING") for task in range(2, 11)},
    **{("holes", task): (W, "PENDING") for task in (1, 5, 6, 7)},
    **{("dots", task): (W, "PENDING") for task in DOTS},
}
"""What the jobs of ``capture`` had come to: phase, state."""


def named(jobs: list[JobStatus]) -> dict[tuple[str, int | None], JobStatus]:
    found = {(job.name.removeprefix("trtmatrix-"), job.task): job for job in jobs}
    assert len(found) == len(jobs)
    return found


def facts(job: JobStatus) -> tuple[Phase, str]:
    return job.phase, job.state


@pytest.mark.parametrize("path", QUEUES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_squeue_of_each_release_tells_the_same(path: Path) -> None:
    found = named(parse_squeue(path.read_text(), user=0))
    assert {key: facts(job) for key, job in found.items()} == EXPECTED
    assert found["failed", None].comment == "trtmatrix=failed gpu=l4"
    assert found["never", None].reason == "DependencyNeverSatisfied"
    assert found["many", 0].node == "h200a"
    assert found["many", 5].reason == "JobArrayTaskLimit"
    assert found["holes", 1].node == ""
    assert len({job.job for job in found.values() if job.name == "trtmatrix-many"}) == 1


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/squeue.txt")), ids=lambda path: path.parent.name)
def test_squeue_s_lines_tell_the_same(path: Path) -> None:
    found = named(parse_squeue_lines(path.read_text(), user=0))
    assert {key: facts(job) for key, job in found.items()} == EXPECTED
    assert found["failed", None].comment == "trtmatrix=failed gpu=l4"
    assert found["never", None].reason == "DependencyNeverSatisfied"
    assert (found["many", 0].node, found["many", 5].node) == ("h200a", "")


@pytest.mark.parametrize("path", ACCOUNTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_sacct_of_each_release_tells_the_same(path: Path) -> None:
    found = named([job for job in parse_sacct(path.read_text()) if job.name != "trtmatrix-other"])
    assert {key: facts(job) for key, job in found.items()} == EXPECTED


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/sacct.txt")), ids=lambda path: path.parent.name)
def test_sacct_s_lines_tell_the_same(path: Path) -> None:
    found = named([job for job in parse_sacct_lines(path.read_text()) if job.name != "trtmatrix-other"])
    told = {key: facts(job) for key, job in found.items()}
    if path.parent.name == "20.11.4":  # it cuts the expression in the middle of a number
        assert told.pop(("dots", None)) == (W, "PENDING")
        told |= {key: fact for key, fact in EXPECTED.items() if key[0] == "dots"}
    assert told == EXPECTED


@pytest.mark.parametrize("path", QUEUES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_waiting_task_that_was_cancelled_is_listed_nowhere(path: Path) -> None:
    jobs = parse_squeue(path.read_text(), user=0)
    many = next(job.job for job in jobs if job.name == "trtmatrix-many")
    assert find_task(jobs, many, 10) is not None
    assert find_task(jobs, many, 11) is None


def test_a_list_with_errors_is_not_taken_for_an_empty_queue() -> None:
    text = (FIXTURES / "22.05.8" / "away-squeue.txt").read_text()
    assert text.endswith("exit 0\n")
    with pytest.raises(TroubledError, match="Failed while looking for jobs"):
        parse_squeue(text)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/squeue-cut.*")), ids=lambda path: path.parent.name)
def test_tasks_that_dots_stand_for_are_one_status_without_a_task(path: Path) -> None:
    parse = parse_squeue if path.suffix == ".json" else parse_squeue_lines
    jobs = parse(path.read_text(), user=0)
    dots = [job for job in jobs if job.name == "trtmatrix-dots"]
    told = [job.task for job in dots if job.task is not None]
    assert told
    assert set(told) < set(DOTS)
    last = find_task(jobs, dots[0].job, DOTS[-1])
    assert last is not None
    assert (last.task, last.phase) == (None, Phase.WAITING)


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error: Unable to contact", "[]", "{}", '{"jobs": 5}', "{" * 9000]
)
def test_what_is_no_list_of_jobs_is_refused(text: str) -> None:
    for parse in FILES.values():
        with pytest.raises(UnreadableError):
            parse(text)


def test_a_warning_before_the_json_is_skipped() -> None:
    assert parse_squeue('squeue: error: plugin\n{"jobs": []}\n') == []


@pytest.mark.parametrize(
    ("state", "phase", "word"),
    [
        (["CANCELLED", "COMPLETING"], R, "CANCELLED"),  # since 23.02
        ("COMPLETING", R, "COMPLETING"),  # before
        (["FAILED", "REQUEUED"], W, "FAILED"),
        (["RUNNING", "CONFIGURING"], W, "RUNNING"),
        ("PREEMPTED", G, "PREEMPTED"),
        ([], R, ""),
    ],
)
def test_states_that_pass_too_quickly_to_be_kept(state: object, phase: Phase, word: str) -> None:
    (job,) = parse_squeue(json.dumps({"jobs": [{"job_id": 5, "job_state": state}]}))
    assert (job.phase, job.state) == (phase, word)


def test_an_entry_that_says_only_its_id_is_not_taken_for_gone() -> None:
    assert parse_squeue('{"jobs": [{"job_id": 5, "future": {"a": 1}}, {}, 3]}') == [
        JobStatus(job="5", task=None, phase=Phase.RUNNING)
    ]


def test_of_several_entries_the_one_that_is_the_least_over_counts() -> None:
    gone = JobStatus(job="1", task=2, phase=Phase.GONE)
    waits = JobStatus(job="1", task=2, phase=Phase.WAITING)
    rest = JobStatus(job="1", task=None, phase=Phase.RUNNING)
    assert find_task([gone, waits, rest], "1", 2) == waits
    assert find_task([gone, waits, rest], "1", 3) == rest
    assert find_task([gone, waits], "1", 3) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "job_id", "array_job_id", "array_task_id", "array_task_string", "job_state", "state", "exit_code",
    "array", "user_id", "nodes", "name", "comment", "state_reason",
)  # fmt: skip
INNER = (
    "set",
    "infinite",
    "number",
    "status",
    "return_code",
    "signal",
    "id",
    "task",
    "task_id",
    "job_id",
    "current",
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), JSON | st.dictionaries(st.sampled_from(INNER), JSON))


@given(st.lists(OBJECTS))
def test_no_shape_of_a_job_breaks_the_parsers(jobs: list[object]) -> None:
    for parse in FILES.values():
        parse(json.dumps({"jobs": jobs}))


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_squeue, parse_sacct, parse_squeue_lines, parse_sacct_lines):
        try:
            parse(text)
        except UnreadableError:
            continue


LINES = st.lists(
    st.sampled_from(["5", "5_3", "0-3%2", "[1,...]", "FAILED", "0:9", "0", "|", "|", "|", "\n", "x"])
).map("".join)


@given(LINES)
def test_no_line_breaks_the_parsers(text: str) -> None:
    for parse in (parse_squeue_lines, parse_sacct_lines):
        try:
            parse(text)
        except UnreadableError:
            continue


def test_lines_of_other_users_are_left_out() -> None:
    text = "1|N/A|RUNNING|0|None|a|trtmatrix-x|\n2|N/A|RUNNING|7|None|a|trtmatrix-x|\n"
    assert [job.job for job in parse_squeue_lines(text, user=7)] == ["2"]
    assert len(parse_squeue_lines(text)) == 2
