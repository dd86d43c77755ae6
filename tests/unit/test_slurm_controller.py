"""What scontrol writes of a cluster is read as a real Slurm wrote it, and no text is a crash.

``slurm_scontrol/22.05.8`` was written by Debian 12's Slurm (scontrol show config, show nodes --oneliner, show
partition --oneliner); the controller's name and folder were replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.slurm.controller import (
    ClusterNode,
    Config,
    Partition,
    parse_config,
    parse_gres,
    parse_minutes,
    parse_nodes,
    parse_partitions,
)

REAL = Path(__file__).parent / "slurm_scontrol" / "22.05.8"


def test_a_real_configuration() -> None:
    assert parse_config((REAL / "config.txt").read_text()) == Config(
        version="22.05.8", cluster="fake", array=1001, jobs=10000, accounting="accounting_storage/none",
        tracking="proctrack/linuxproc",
    )  # fmt: skip


def test_real_nodes() -> None:
    nodes = parse_nodes((REAL / "nodes.txt").read_text())
    assert [node.name for node in nodes] == ["h200a", "l4a", "l4b"]
    assert nodes[0] == ClusterNode(name="h200a", gpus=(("h200", 2),), state="IDLE", partitions=("gpu",))
    assert all(node.takes_jobs for node in nodes)


def test_a_real_partition() -> None:
    found = parse_partitions((REAL / "partitions.txt").read_text())
    assert found == (Partition(name="gpu", default=True, state="UP", minutes=None),)


@pytest.mark.parametrize(("line", "epilogs"), [
    ("Epilog                  = (null)", ()),
    ("Epilog                  = /etc/slurm/epilog", ("/etc/slurm/epilog",)),
    ("Epilog[0]               = /a\nEpilog[1] = /b/*", ("/a", "/b/*")),
    ("EpilogSlurmctld         = /a\nTaskEpilog = /b", ()),
])  # fmt: skip
def test_epilogs_of_the_nodes_alone(line: str, epilogs: tuple[str, ...]) -> None:
    assert parse_config(line).epilogs == epilogs


@pytest.mark.parametrize(("text", "gpus"), [
    ("gpu:h200:8(S:0-1)", [("h200", 8)]), ("gpu:2", [("", 2)]), ("gpu", [("", 1)]),
    ("gpu:a100:4(S:0,1),nvme:2", [("a100", 4)]), ("gpu:l4:1,gpu:t4:2", [("l4", 1), ("t4", 2)]),
    ("(null)", []), ("mps:100", []), ("gpu:tesla:2(IDX:0-1)", [("tesla", 2)]),
    ("gpu:3090:8", [("3090", 8)]), ("gpu:3090:8(S:0-1)", [("3090", 8)]), ("gpu:2080ti:4", [("2080ti", 4)]),
    ("gpu:2080ti", [("2080ti", 1)]),
])  # fmt: skip
def test_gres_in_all_forms(text: str, gpus: list[tuple[str, int]]) -> None:
    assert list(parse_gres(text)) == gpus


@pytest.mark.parametrize(("text", "minutes"), [
    ("UNLIMITED", None), ("30", 30), ("01:30:00", 90), ("2-00:00:00", 2880), ("1-12", 2160), ("00:00:30", 1),
    ("10:30", 11),
])  # fmt: skip
def test_times_in_all_forms(text: str, minutes: int | None) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(("state", "takes"), [
    ("IDLE", True), ("MIXED", True), ("ALLOCATED", True), ("IDLE+CLOUD+POWERED_DOWN", True), ("DOWN", False),
    ("IDLE+DRAIN", False), ("DOWN*", False), ("IDLE*", False), ("MIXED+MAINT", False), ("INVAL", False),
    ("DOWN+NOT_RESPONDING", False), ("PLANNED", True), ("COMPLETING", True),
])  # fmt: skip
def test_states_that_take_jobs(state: str, *, takes: bool) -> None:
    assert parse_nodes(f"NodeName=n State={state} Gres=gpu:1")[0].takes_jobs is takes


def test_a_reason_is_no_further_name() -> None:
    (node,) = parse_nodes("NodeName=n State=DOWN Gres=gpu:1 Reason=disk full State=IDLE [root@2026]")
    assert node.state == "DOWN"


@given(st.text())
def test_no_text_is_a_crash(text: str) -> None:
    parse_config(text)
    parse_nodes(f"NodeName={text}")
    parse_partitions(f"PartitionName=a MaxTime={text} Default={text}")
    list(parse_gres(f"gpu:{text}"))
