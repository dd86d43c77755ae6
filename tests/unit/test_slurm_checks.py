"""How a site stands: each rule finds what it is for, and says what to type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.core.slurm.boards import Node
from trtmatrix.core.slurm.checks import is_other_model, runtime_test, site_findings
from trtmatrix.core.slurm.controller import ClusterNode, Config, Partition
from trtmatrix.core.slurm.facts import LeftArray, Request, SiteFacts
from trtmatrix.core.slurm.rules import SITE_RULES
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu, SiteLimits

L4 = SiteGpu(name="NVIDIA L4", gres="gpu:l4:1", partition="gpu")
SITE = Site(shared="/shared/x", runtime=NodeRuntime.DOCKER, gpus=(L4,))
NODE = ClusterNode(name="n1", gpus=(("l4", 2),), state="IDLE", partitions=("gpu",))
PARTITION = Partition(name="gpu", default=True, state="UP", minutes=None)
GOOD = SiteFacts(
    config=Config(version="24.11.5", cluster="c", array=1001, jobs=10000, epilogs=("/e",)),
    nodes=(NODE,), partitions=(PARTITION,), requests=(Request(gpu="NVIDIA L4"), Request(gpu="")),
    folder_kind="nfs4", folder_free=10**12, epilogs={"/e": "docker ps --filter label=io.trtmatrix.slurm=1"},
)  # fmt: skip
SMI = "NVIDIA L4, GPU-1, 8.9, 23034, 550.54.15, [N/A], 210, 405, 72.00"

LEFT = LeftArray(key="5f1c", cells=3, version="10.7.0", gpu="nvidia-l4")
SHORT = Partition(name="short", default=False, state="UP", minutes=5)


def found(rule: str, facts: SiteFacts, site: Site = SITE) -> list[Finding]:
    return [each for each in site_findings(facts, site) if each.rule == rule]


def test_a_good_site_is_well_but_for_what_cannot_be_seen() -> None:
    lacking = [each.rule for each in site_findings(GOOD, SITE) if each.level is not Level.GOOD]
    assert lacking == ["slurm-runtime"]


BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any], Level, str, str]] = {
    "no Slurm": ("slurm", {"away": "gone", "away_remedy": "do"}, {}, Level.TROUBLE, "gone", "do"),
    "the folder": (
        "slurm-folder", {"folder_trouble": "no locks\n  mount it rightly"}, {}, Level.TROUBLE,
        "no locks", "mount it rightly",
    ),
    "no room": ("slurm-folder", {"folder_free": 10**9}, {}, Level.LACKING, "1.0 GB free", "free some"),
    "a disk of its own": (
        "slurm-folder", {"folder_kind": "ext4"}, {}, Level.LACKING, "mostly this host's own",
        "srun --gres=gpu:l4:1 --partition=gpu --time=5 ls /shared/x",
    ),
    "a GPU": (
        "slurm-request",
        {"requests": (Request(gpu="NVIDIA L4", refused="none", remedy="sinfo", because=("gres: a",)),)},
        {}, Level.TROUBLE, "sbatch would refuse it (gres: a): none", "sinfo",
    ),
    "too much": (
        "slurm-request",
        {"requests": (Request(gpu="NVIDIA L4", refused="x", remedy="y", because=("limits.memory",)),)},
        {}, Level.TROUBLE, "(limits.memory)", "lower limits.memory",
    ),
    "an import": (
        "slurm-import", {"requests": (Request(gpu="", refused="no", remedy="y"),)}, {}, Level.TROUBLE, "no",
        "y",
    ),
    "no node": (
        "slurm-nodes", {"nodes": (replace(NODE, state="DOWN*"),)}, {}, Level.LACKING,
        "0 of 1 node can take jobs (n1 down*)", "scontrol show node",
    ),
    "a short partition": (
        "slurm-time", {"partitions": (replace(PARTITION, minutes=30),)}, {}, Level.TROUBLE,
        "gpu takes jobs of 30 minutes at most; limits.minutes is 60", "lower limits.minutes",
    ),
    "a partition that is down": (
        "slurm-time", {"partitions": (replace(PARTITION, state="DOWN"),)}, {}, Level.TROUBLE, "gpu is DOWN",
        "name another",
    ),
    "arrays": (
        "slurm-array", {"config": replace(GOOD.config, array=50)}, {}, Level.TROUBLE, "MaxArraySize is 50",
        "limits.tasks to 50 or less",
    ),
    "no pyxis": (
        "slurm-runtime", {"pyxis": False}, {"runtime": NodeRuntime.PYXIS}, Level.LACKING, "plugstack.conf",
        "--container-image=",
    ),
    "no epilog": (
        "slurm-ends", {"epilogs": {}}, {}, Level.LACKING, "the nodes have none", "docker/slurm/epilog",
    ),
    "another epilog": (
        "slurm-ends", {"epilogs": {"/e": "exit 0"}}, {}, Level.LACKING, "/e knows nothing of our containers",
        "docker/slurm/epilog",
    ),
    "an epilog on the nodes": (
        "slurm-ends", {"epilogs": {"/e": None}}, {}, Level.LACKING, "/e cannot be read", "docker/slurm",
    ),
    "an array that is nobody's": (
        "slurm-left", {"left": (replace(LEFT, jobs=("7", "8"), end="scancel 7 8"),)}, {}, Level.LACKING,
        "no client follows it (3 cells of 10.7.0 on nvidia-l4), and it goes on: jobs 7, 8",
        "type it again; to end it: scancel 7 8",
    ),
    "an array without jobs": (
        "slurm-left", {"left": (LEFT,)}, {}, Level.LACKING, "what came of it was not taken", "type it again",
    ),
    "tracking": (
        "slurm-ends", {"config": Config(tracking="proctrack/pgid")}, {"runtime": NodeRuntime.APPTAINER},
        Level.LACKING, "proctrack/cgroup loses none", "docs/slurm.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_rule_finds_what_it_is_for(name: str) -> None:
    rule, facts, site, level, words, remedy = BAD[name]
    (finding,) = found(rule, replace(GOOD, **facts), replace(SITE, **site))
    assert finding.level is level
    assert words in finding.found
    assert remedy in finding.remedy
    assert bool(finding.prevents) is (level is Level.TROUBLE)


def test_each_rule_is_used() -> None:
    facts = replace(GOOD, seen=(Node(name="n1", gpus=(SMI.replace("L4", "H200"),)),))
    told = {each.rule for each in site_findings(facts, SITE)}
    assert told | {rule for rule, *_ in BAD.values()} == set(SITE_RULES)


def test_a_slurm_that_is_away_hides_nothing_of_the_folder() -> None:
    told = [each.rule for each in site_findings(replace(GOOD, away="gone"), SITE)]
    assert told == ["slurm", "slurm-folder"]


def test_boards_that_jobs_found_are_told_by_kind() -> None:
    other = SMI.replace("GPU-1", "GPU-2")
    nodes = (
        Node(name="n2", gpus=(SMI,), seen="2026-01-02T"), Node(name="n1", gpus=(SMI, "broken", other)),
        Node(name="n3", gpus=(SMI.replace("550.54.15", "[N/A]"),)),
    )  # fmt: skip
    told = found("slurm-seen", replace(GOOD, seen=nodes))
    assert [(each.what, each.found) for each in told] == [
        ("seen", "NVIDIA L4, 22 GiB, driver 550.54.15: 3 boards on 2 nodes (n1, n2), last 2026-01-02"),
        ("seen", "NVIDIA L4, 22 GiB, driver not known: 1 board on 1 node (n3)"),
    ]


H200 = SMI.replace("NVIDIA L4", "NVIDIA H200")


@pytest.mark.parametrize(("nodes", "seen", "level", "words"), [
    ((NODE,), {"n1": H200}, Level.TROUBLE, "gpu:l4:1 is NVIDIA H200 on n1"),
    ((NODE, replace(NODE, name="n2")), {"n1": H200}, Level.LACKING, "on n1; 1 node with it not seen yet"),
    ((NODE, replace(NODE, name="n2")), {"n1": H200, "n2": SMI}, None, ""),
    ((NODE,), {"n1": SMI}, None, ""),
    ((NODE,), {}, None, ""),
    ((NODE,), {"n1": "broken"}, None, ""),
    ((NODE,), {"elsewhere": H200}, None, ""),
    ((replace(NODE, gpus=(("l4", 1), ("h200", 1))),), {"n1": H200}, None, ""),
])  # fmt: skip
def test_a_gres_whose_nodes_have_another_model_is_told(
    nodes: tuple[ClusterNode, ...], seen: dict[str, str], level: Level | None, words: str
) -> None:
    facts = replace(GOOD, nodes=nodes, seen=tuple(Node(name=n, gpus=(line,)) for n, line in seen.items()))
    told = found("slurm-model", facts)
    assert [each.level for each in told] == ([] if level is None else [level])
    assert all(words in each.found and "correct its gres" in each.remedy for each in told)
    assert is_other_model(facts, SITE, L4) is (level is Level.TROUBLE)


@pytest.mark.parametrize(("gpu", "options", "expected"), [
    (L4, (), 1), (replace(L4, partition=""), (), 1), (replace(L4, partition="other"), (), 1),
    (replace(L4, partition=""), ("-p", "short"), 0), (replace(L4, partition=""), ("--partition=short",), 0),
    (replace(L4, gres="gpu:t4:1"), (), 0), (replace(L4, gres="gpu:1"), (), 1),
    (replace(L4, constraint="a100"), (), 0),
])  # fmt: skip
def test_nodes_are_those_of_the_gpu_and_its_partition(
    gpu: SiteGpu, options: tuple[str, ...], expected: int
) -> None:
    facts = replace(GOOD, partitions=(PARTITION, SHORT))
    assert len(found("slurm-nodes", facts, replace(SITE, gpus=(gpu,), options=options))) == expected


def test_one_partition_of_several_that_is_long_enough_is_enough() -> None:
    facts = replace(GOOD, partitions=(PARTITION, SHORT))
    site = replace(SITE, gpus=(replace(L4, partition="short,gpu"),))
    assert not found("slurm-time", facts, site)
    assert found("slurm-time", facts, replace(site, gpus=(replace(L4, partition="short"),)))


@pytest.mark.parametrize("runtime", NodeRuntime)
def test_a_runtime_is_tried_by_one_command(runtime: NodeRuntime) -> None:
    site = replace(SITE, runtime=runtime, setup=("module load it's",), limits=SiteLimits())
    assert runtime_test(site).startswith("srun --gres=gpu:l4:1 --partition=gpu --time=5 ")
    assert "nvidia-smi -L" in runtime_test(site)


def test_a_command_to_type_has_a_gpus_own_words_after_those_for_all() -> None:
    site = replace(SITE, options=("--partition=cpu",), gpus=(replace(L4, options=("--reservation=r",)),))
    told = "srun --gres=gpu:l4:1 --partition=cpu --partition=gpu --time=5 --reservation=r "
    assert runtime_test(site).startswith(told)
