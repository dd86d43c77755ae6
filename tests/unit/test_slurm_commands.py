"""What is made of Slurm's answers: jobs, refusals with remedies, a controller that is away, no accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.core.slurm.refusals import REMEDIES, is_away, remedy_of
from trtmatrix.effects.slurm import Refused, Slurm, SlurmAway, TakesLater
from trtmatrix.effects.slurm_commands import Answer, run_command

FIXTURES = Path(__file__).parent / "slurm_json"
RELEASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
WITH_JSON = [name for name in RELEASES if (FIXTURES / name / "squeue.json").exists()]


def kept(release: str, name: str) -> Answer:
    """An answer as ``capture`` kept it: both streams, then the exit code."""
    text, _, code = (FIXTURES / release / name).read_text().rpartition("exit ")
    return Answer(code=int(code), out="", err=text) if int(code) else Answer(code=0, out=text, err="")


class Cluster:
    """Answers commands by their first word, and notes them; a fake for answers that were captured."""

    def __init__(self, **answers: Answer | Exception | list[Answer | Exception]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, words: Sequence[str], seconds: float) -> Answer:
        assert 0 < seconds < 600
        self.asked.append(list(words))
        answer = self.answers[words[0]]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def said(text: str) -> Answer:
    return Answer(code=0, out=text, err="")


def failed(text: str, code: int = 1) -> Answer:
    return Answer(code=code, out="", err=text)


@pytest.mark.parametrize(
    "text", ["123\n", "123;cluster\n", "sbatch: a note\n123\n", "Submitted batch job 123\n"]
)
def test_the_id_of_a_submitted_job(text: str) -> None:
    cluster = Cluster(sbatch=said(text))
    assert Slurm(run=cluster).submit(["--array=0-3%2"], "/shared/task.sh", "1") == "123"
    assert cluster.asked == [["sbatch", "--parsable", "--array=0-3%2", "/shared/task.sh", "1"]]


def test_an_answer_without_an_id_leaves_open_whether_there_is_a_job() -> None:
    with pytest.raises(SlurmAway, match="did not say"):
        Slurm(run=Cluster(sbatch=said(""))).submit([], "task.sh")


REFUSED = {
    "gres": "gres", "partition": "sinfo -o", "array": "MaxArraySize", "constraint": "constraint",
    "memory": "limits.memory", "dependency": "run again", "option": "man sbatch", "script": "shared folder",
    "account": "sacctmgr", "qos": "sacctmgr", "time": "limits.minutes", "cpus": "limits.cpus",
}  # fmt: skip


ACCEPTED = {("20.11.4", "dependency"), ("22.05.8", "dependency")}
"""What these releases do not refuse."""


@pytest.mark.parametrize("release", RELEASES)
def test_each_answer_that_was_kept_is_of_its_release_and_each_refusal_is_looked_at(release: str) -> None:
    assert (FIXTURES / release / "version").read_text() == f"slurm-wlm {release}\n"
    found = {path.stem.removeprefix("refused-") for path in (FIXTURES / release).glob("refused-*")}
    assert found == set(REFUSED)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_has_slurm_s_words_and_the_remedy(release: str, what: str) -> None:
    answer = kept(release, f"refused-{what}.txt")
    if (release, what) in ACCEPTED:
        assert not answer.code
        return
    with pytest.raises(Refused) as caught:
        Slurm(run=Cluster(sbatch=answer)).submit([], "task.sh")
    assert caught.value.words
    assert "error:" not in caught.value.words
    assert caught.value.words in str(caught.value)
    assert REFUSED[what] in str(caught.value).splitlines()[-1]


@pytest.mark.parametrize("release", RELEASES)
def test_a_request_is_tried_without_submitting_it(release: str) -> None:
    slurm = Slurm(run=Cluster(sbatch=[kept(release, "test-refused.txt"), kept(release, "test-only.txt")]))
    with pytest.raises(Refused, match="configuration is not available"):
        slurm.test(["--gres=gpu:a100:1"], "task.sh")
    assert slurm.test(["--gres=gpu:h200:1"], "task.sh").startswith("Job ")


@pytest.mark.parametrize("release", RELEASES)
def test_a_controller_that_is_away_is_no_refusal_and_no_empty_queue(release: str) -> None:
    answers: dict[str, Any] = {
        name: kept(release, f"away-{name}.txt") for name in ("sbatch", "squeue", "scancel")
    }
    if release == "22.05.8":  # its JSON says so in words, with exit code 0; its lines with an exit code
        answers["squeue"] = [
            answers["squeue"],
            failed("Unable to contact slurm controller"),
        ]
    slurm = Slurm(run=Cluster(**answers))
    with pytest.raises(SlurmAway):
        slurm.submit([], "task.sh")
    with pytest.raises(SlurmAway, match="scontrol ping"):
        slurm.jobs()
    with pytest.raises(SlurmAway):
        slurm.cancel(["5"])
    assert slurm.json


@pytest.mark.parametrize("release", RELEASES)
def test_the_jobs_are_this_user_s_and_this_tool_s(release: str) -> None:
    folder = FIXTURES / release
    source = folder / "squeue.json"
    json = said(source.read_text()) if source.exists() else kept(release, "squeue-json.txt")
    lines = said((folder / "squeue.txt").read_text())
    cluster = Cluster(squeue=[json] if source.exists() else [json, lines, lines])
    slurm = Slurm(run=cluster, user=0)
    names = {job.name for job in slurm.jobs()}
    assert {"trtmatrix-many", "trtmatrix-failed"} <= names
    assert "trtmatrix-other" not in names
    if not source.exists():  # remembered: JSON is not asked for again
        slurm.jobs()
        assert ["--json" in words for words in cluster.asked] == [True, False, False]


def test_a_release_whose_json_has_everybody_s_many_jobs_is_asked_for_lines() -> None:
    text = '{"jobs": [{"job_id": 1, "user_id": 7, "name": "trtmatrix-a", "job_state": "RUNNING"},'
    text += '{"job_id": 2, "user_id": 8, "name": "trtmatrix-b", "job_state": "RUNNING"}]}'
    slurm = Slurm(run=Cluster(squeue=said(text)), user=7)
    assert [job.job for job in slurm.jobs()] == ["1"]
    assert slurm.json
    slurm = Slurm(
        run=Cluster(squeue=[said(text + " " * 4_000_000), said("1|N/A|RUNNING|7|None|a|trtmatrix-a|")]),
        user=7,
    )
    assert [job.job for job in slurm.jobs()] == [job.job for job in slurm.jobs()] == ["1"]
    assert not slurm.json


def test_jobs_that_are_not_this_tool_s_are_left_out() -> None:
    lines = said("1|N/A|RUNNING|0|None|a|train|\n2|N/A|RUNNING|0|None|a|trtmatrix-x|\n")
    assert [job.job for job in Slurm(run=Cluster(squeue=[failed("no --json"), lines]), user=0).jobs()] == [
        "2"
    ]


def test_what_no_parser_reads_is_an_error_and_not_an_empty_queue() -> None:
    with pytest.raises(MachineryError, match="cannot be read"):
        Slurm(run=Cluster(squeue=said("hello")), user=0).jobs()


def test_trouble_with_an_answer_passes_once_squeue_was_understood() -> None:
    strange = failed("slurm_load_jobs error: Unexpected message received")
    with pytest.raises(MachineryError, match="by hand") as caught:
        Slurm(run=Cluster(squeue=strange), user=0).jobs()
    assert not isinstance(caught.value, SlurmAway)
    slurm = Slurm(run=Cluster(squeue=[said('{"jobs": []}'), strange, strange]), user=0)
    assert slurm.jobs() == []
    with pytest.raises(SlurmAway, match="Unexpected message"):
        slurm.jobs()


@pytest.mark.parametrize("release", RELEASES)
def test_accounting_tells_of_jobs_that_are_over(release: str) -> None:
    folder = FIXTURES / release
    source = folder / "sacct.json"
    answers = [said(source.read_text())] if source.exists() else [kept(release, "sacct-json.txt")]
    slurm = Slurm(run=Cluster(sacct=[*answers, said((folder / "sacct.txt").read_text())]), user=0)
    past = {job.name: job for job in slurm.past(["1", "2"])}
    assert past["trtmatrix-failed"].state == "FAILED"
    assert past["trtmatrix-lost"].state == "NODE_FAIL"
    assert slurm.accounting


@pytest.mark.parametrize("release", RELEASES)
def test_without_accounting_there_is_no_past_and_it_is_asked_once(release: str) -> None:
    cluster = Cluster(sacct=kept(release, "sacct-disabled.txt"))
    slurm = Slurm(run=cluster)
    if not (FIXTURES / release / "sacct.json").exists():
        cluster.answers["sacct"] = [kept(release, "sacct-json.txt"), kept(release, "sacct-disabled.txt")]
    assert slurm.past(["1"]) == slurm.past(names=["trtmatrix-a"]) == []
    assert len(cluster.asked) == (1 if (FIXTURES / release / "sacct.json").exists() else 2)
    assert slurm.accounting is False


def test_without_sacct_there_is_no_past_either() -> None:
    cluster = Cluster(sacct=UsageError("sacct cannot be started"))
    slurm = Slurm(run=cluster)
    assert slurm.past(["1"]) == slurm.past(["1"]) == []
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("release", RELEASES)
def test_accounting_that_is_away_is_asked_again(release: str) -> None:
    cluster = Cluster(sacct=kept(release, "sacct-away.txt"))
    slurm = Slurm(run=cluster)
    assert slurm.past(["1"]) == slurm.past(["1"]) == []
    assert len(cluster.asked) == 2
    assert slurm.accounting is None


def test_a_name_is_looked_for_in_the_last_days() -> None:
    cluster = Cluster(sacct=said('{"jobs": []}'))
    assert Slurm(run=cluster, user=5).past(names=["trtmatrix-a"]) == []
    assert cluster.asked[0][1:4] == ["--name=trtmatrix-a", "--user=5", "--starttime=now-14days"]


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_that_are_looked_for_by_their_names_are_found_as_each_release_tells_of_them(
    release: str,
) -> None:
    lines = said((FIXTURES / release / "sacct-by-name.txt").read_text())
    cluster = Cluster(sacct=[failed("sacct: unrecognized option '--json'"), lines])
    found = Slurm(run=cluster, user=0).past(names=["trtmatrix-failed", "trtmatrix-many"])
    assert [word in cluster.asked[1] for word in ("--allocations", "--noheader", "--parsable2")] == [True] * 3
    assert [(job.name, job.task, job.state) for job in found] == [
        ("trtmatrix-failed", None, "FAILED"),
        ("trtmatrix-many", 0, "RUNNING"),
        ("trtmatrix-many", 1, "RUNNING"),
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_that_are_gone_are_cancelled_without_an_error(release: str) -> None:
    for name in ("cancel-gone.txt", "cancel-unknown.txt"):
        Slurm(run=Cluster(scancel=kept(release, name))).cancel(["5", "7_3", "5"])


def test_no_job_is_no_command_and_many_are_several() -> None:
    cluster = Cluster(scancel=said(""))
    Slurm(run=cluster).cancel([])
    Slurm(run=cluster).cancel(str(number) for number in range(250))
    assert [len(words) - 1 for words in cluster.asked] == [100, 100, 50]


def test_a_job_of_someone_else_is_not_cancelled_silently() -> None:
    text = "scancel: error: Kill job error on job id 5: Access/permission denied"
    with pytest.raises(MachineryError, match="permission denied"):
        Slurm(run=Cluster(scancel=failed(text))).cancel(["5"])


POLICY = (
    "Batch job submission failed: Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("words", "lasting"),
    [
        (f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: {POLICY}", True),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {POLICY}", True),
        (f"sbatch: error: {POLICY}", True),
        ("sbatch: error: Slurm job queue full, sleeping and retrying", False),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", False),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", False),
    ],
)
def test_too_many_jobs_are_no_refusal_and_no_doubt_about_the_job(words: str, lasting: bool) -> None:
    with pytest.raises(TakesLater) as caught:
        Slurm(run=Cluster(sbatch=failed(words))).submit([], "task.sh")
    assert caught.value.lasting == lasting
    assert "limits.tasks" in str(caught.value)


@pytest.mark.parametrize("reason", ["QOSMaxWallDurationPerJobLimit", "AssocMaxGRESPerJob"])
def test_a_limit_of_a_job_s_own_size_is_a_refusal(reason: str) -> None:
    with pytest.raises(Refused, match=r"limits\.minutes"):
        Slurm(run=Cluster(sbatch=failed(f"sbatch: error: {reason}\nsbatch: error: {POLICY}"))).submit([], "t")


def test_what_room_a_user_has_hangs_on_all_their_jobs() -> None:
    for state, has in (("PENDING", True), ("RUNNING", True), ("COMPLETED", False)):
        lines = said(f"2|N/A|{state}|0|None|a|train|\n")
        assert Slurm(run=Cluster(squeue=[failed("no --json"), lines]), user=0).has_jobs() == has


@pytest.mark.parametrize(("words", "remedy"), REMEDIES)
def test_each_remedy_is_found_by_its_words(words: str, remedy: str) -> None:
    assert remedy_of(f"Batch job submission failed: {words.upper()}") == remedy
    assert not is_away(words)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_command_that_hangs_is_killed_with_its_children(commands: Path) -> None:
    put(commands, "squeue", f"sleep 60 & echo $! > {commands}/child; wait")
    before = time.monotonic()
    with pytest.raises(SlurmAway, match="did not answer within 1 s"):
        run_command(["squeue"], 1.0)
    assert time.monotonic() - before < 10
    child = int((commands / "child").read_text())
    status = Path(f"/proc/{child}/stat")
    deadline = time.monotonic() + 5
    while status.exists() and status.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_a_command_that_is_not_there_says_where_it_would_be() -> None:
    with pytest.raises(UsageError, match="login node"):
        run_command(["trtmatrix-no-such-command"], 5.0)


def test_a_user_s_own_formats_and_filters_do_not_reach_slurm(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(commands, "squeue", "env; exit 3")
    for name in ("SQUEUE_STATES", "SCANCEL_INTERACTIVE", "SBATCH_WAIT", "SBATCH_ARRAY_INX", "SACCT_FORMAT",
                 "SBATCH_CLUSTERS", "SLURM_CLUSTERS", "SQUEUE_CLUSTERS", "SCANCEL_CLUSTERS"):  # fmt: skip
        monkeypatch.setenv(name, "hers")
    for name in ("SBATCH_ACCOUNT", "SLURM_CONF", "SBATCH_PARTITION"):
        monkeypatch.setenv(name, "site")
    answer = run_command(["squeue"], 30.0)
    assert answer.code == 3
    assert "=hers" not in answer.out
    assert answer.out.count("=site") == 3
    assert "SLURM_BITSTR_LEN=0" in answer.out


def test_a_job_that_is_listed_is_told_with_its_phase() -> None:
    lines = said("9|0-1%1|PENDING|0|Priority||trtmatrix-x|c\n9|2|COMPLETING|0|None|n|trtmatrix-x|c\n")
    jobs = Slurm(run=Cluster(squeue=[failed("no JSON"), lines]), user=0).jobs()
    assert [(job.task, job.phase) for job in jobs] == [
        (0, Phase.WAITING),
        (1, Phase.WAITING),
        (2, Phase.RUNNING),
    ]
