"""What is looked at of a site: which key sbatch refuses, a Slurm that is away, epilogs; nothing is submitted.

A fake for sbatch and scontrol, which refuses by rules of the test; the real ones are asked in tests/slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.slurm.facts import SiteFacts
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu, SiteLimits
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.site_facts import look_at_site, read_epilogs
from trtmatrix.effects.slurm import Slurm
from trtmatrix.effects.slurm_commands import Answer, SlurmAway

GPU = SiteGpu(name="NVIDIA L4", gres="gpu:l4:1", partition="gpu", options=("--nice=5",))
SITE = Site(shared="/nowhere", runtime=NodeRuntime.DOCKER, gpus=(GPU,), limits=SiteLimits(memory=8 << 30))
REAL = Path(__file__).parent / "slurm_scontrol" / "22.05.8"
TEXTS: Mapping[str, str] = {
    "config": (REAL / "config.txt").read_text(), "nodes": (REAL / "nodes.txt").read_text(),
    "partition": (REAL / "partitions.txt").read_text(),
}  # fmt: skip


class Fake:
    """Slurm's commands: sbatch refuses what ``refuses`` says of its words."""

    def __init__(self, refuses: Callable[[Sequence[str]], bool] = lambda _: False) -> None:
        self.refuses, self.asked = refuses, list[Sequence[str]]()

    def __call__(self, words: Sequence[str], seconds: float) -> Answer:
        del seconds
        self.asked.append(words)
        if words[0] == "scontrol" and words[1] == "show":
            return Answer(code=0, out=TEXTS[words[2]], err="")
        if words[0] == "squeue" and "--json" in words:
            return Answer(code=0, out='{"jobs": []}', err="")
        if words[0] == "sbatch" and "--test-only" in words and self.refuses(words):
            return Answer(
                code=1, out="", err="allocation failure: Requested node configuration is not available"
            )
        return Answer(
            code=0, out="", err="sbatch: Job 1 to start at 2026-01-01T10:00:00 using 1 processors on nodes n"
        )


def here(name: str) -> str:
    return f"/usr/bin/{name}"


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path)


def look(folder: SharedFolder, fake: Fake, site: Site = SITE) -> SiteFacts:
    return look_at_site(site, Slurm(run=fake), folder, fake, here)


def test_a_good_site(folder: SharedFolder) -> None:
    fake = Fake()
    facts = look(folder, fake)
    assert [(each.gpu, each.refused) for each in facts.requests] == [("NVIDIA L4", ""), ("", "")]
    assert (facts.away, facts.json, facts.accounting, facts.config.version) == ("", True, False, "22.05.8")
    assert len(facts.nodes) == 3
    assert facts.folder_free > 0
    assert not facts.folder_trouble


def test_nothing_is_submitted(folder: SharedFolder) -> None:
    fake = Fake(lambda _: True)
    look(folder, fake)
    submitting = [words for words in fake.asked if words[0] == "sbatch" and "--version" not in words]
    assert submitting
    assert all("--test-only" in words for words in submitting)


@pytest.mark.parametrize(("refused", "because"), [
    ("--gres=gpu:l4:1", "gres: gpu:l4:1"), ("--partition=gpu", "partition: gpu"),
    ("--mem=8192M", "limits.memory"),
    ("--cpus-per-task=4", "limits.cpus"), ("--time=60", "limits.minutes"),
    ("--nice=5", "options of this GPU"),
])  # fmt: skip
def test_the_key_that_is_refused_is_found(folder: SharedFolder, refused: str, because: str) -> None:
    facts = look(folder, Fake(lambda words: refused in words))
    assert facts.requests[0].because == (because,)
    assert facts.requests[0].refused.startswith("allocation failure")
    assert "sinfo" in facts.requests[0].remedy


def test_an_import_is_asked_for_without_a_gpu(folder: SharedFolder) -> None:
    site = replace(SITE, import_options=("--partition=cpu",))
    facts = look(folder, Fake(lambda words: "--partition=cpu" in words), site)
    assert facts.requests[1].because == ("import_options",)
    assert not facts.requests[0].refused


@pytest.mark.parametrize("error", [SlurmAway("no answer\n  is it up?"), UsageError("no sbatch\n  is it up?")])
def test_a_slurm_that_is_away_is_a_fact(folder: SharedFolder, error: MachineryError | UsageError) -> None:
    def away(_words: Sequence[str], _seconds: float) -> Answer:
        raise error

    facts = look_at_site(SITE, Slurm(run=away), folder, away, here)
    assert (facts.away, facts.away_remedy) == (str(error).split("\n")[0], "is it up?")
    assert facts.folder_free > 0


def test_commands_that_are_not_here_are_named(folder: SharedFolder) -> None:
    facts = look_at_site(SITE, Slurm(run=Fake()), folder, Fake(), lambda n: None if n == "sbatch" else n)
    assert facts.away == "sbatch: not on this host"
    assert "login node" in facts.away_remedy


def test_a_folder_in_trouble_is_a_fact(tmp_path: Path) -> None:
    facts = look(SharedFolder(tmp_path / "missing"), Fake())
    assert "missing" in facts.folder_trouble
    assert not facts.away


def test_a_refusing_scontrol_leaves_the_rest(folder: SharedFolder) -> None:
    fake = Fake()

    def run(words: Sequence[str], seconds: float) -> Answer:
        if words[:3] == ["scontrol", "show", "nodes"]:
            return Answer(code=1, out="", err="Access denied")
        return fake(words, seconds)

    facts = look_at_site(SITE, Slurm(run=run), folder, run, here)
    assert facts.nodes == ()
    assert len(facts.requests) == 2


def test_epilogs_are_read_where_they_are_here(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("one")
    (tmp_path / "b.sh").write_text("two")
    assert read_epilogs((f"{tmp_path}/*.sh", "/none/here")) == {
        f"{tmp_path}/a.sh": "one", f"{tmp_path}/b.sh": "two", "/none/here": None,
    }  # fmt: skip


@pytest.mark.parametrize("error", [UsageError("srun cannot be started"), SlurmAway("srun did not answer")])
def test_a_host_without_srun_is_no_slurm_that_is_away(
    folder: SharedFolder, error: MachineryError | UsageError
) -> None:
    def run(words: Sequence[str], seconds: float) -> Answer:
        if words[0] == "srun":
            raise error
        return Fake()(words, seconds)

    facts = look_at_site(replace(SITE, runtime=NodeRuntime.PYXIS), Slurm(run=run), folder, run, here)
    assert (facts.away, facts.pyxis, len(facts.requests)) == ("", None, 2)


def test_pyxis_is_looked_for_in_sruns_help(folder: SharedFolder) -> None:
    def run(words: Sequence[str], seconds: float) -> Answer:
        if words == ["srun", "--help"]:
            return Answer(code=0, out="      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]", err="")
        return Fake()(words, seconds)

    pyxis = replace(SITE, runtime=NodeRuntime.PYXIS)
    assert look_at_site(pyxis, Slurm(run=run), folder, run, here).pyxis is True
    assert look(folder, Fake(), pyxis).pyxis is False
    assert look(folder, Fake()).pyxis is None
