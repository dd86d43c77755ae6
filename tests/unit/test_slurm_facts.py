"""What clusters of several releases say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.slurm.facts import (
    PartitionFacts,
    parse_config,
    parse_minutes,
    parse_nodes,
    parse_partitions,
    parse_ping,
    parse_version,
)

FIXTURES = Path(__file__).parent / "slurm_json"
RELEASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


@pytest.mark.parametrize("release", RELEASES)
def test_facts_of_a_release(release: str) -> None:
    folder = FIXTURES / release
    assert parse_version((folder / "version").read_text()) == release
    up, words = parse_ping((folder / "ping.txt").read_text())
    assert up, words
    config = parse_config((folder / "config.txt").read_text())
    assert (config.cluster, config.max_array, config.max_jobs) == ("fake", 1001, 10000)
    assert (config.epilogs, config.accounting, config.kill_wait) == ((), "slurmdbd", 2)
    nodes = {node.name: node for node in parse_nodes((folder / "nodes.txt").read_text())}
    assert nodes["h200a"].gres.startswith("gpu:h200:2")
    assert (nodes["h200a"].state, nodes["h200a"].silent) == ("mixed", False)
    assert (nodes["l4a"].state, nodes["l4a"].partitions) == ("down", ("gpu",))
    assert parse_partitions((folder / "partitions.txt").read_text()) == (
        PartitionFacts(name="gpu", default=True, up=True, minutes=2 * 24 * 60),
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_controller_that_is_down_is_not_up(release: str) -> None:
    assert parse_ping((FIXTURES / release / "away-ping.txt").read_text())[0] is False


def test_epilogs_of_old_and_new_releases() -> None:
    assert parse_config("Epilog                  = /etc/slurm/epilog.d/*\n").epilogs == (
        "/etc/slurm/epilog.d/*",
    )
    numbered = "Epilog[0]     = /a\nEpilog[1] = /b\nEpilogMsgTime = 2000 usec\nEpilogSlurmctld[0] = /c\n"
    assert parse_config(numbered).epilogs == ("/a", "/b")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("infinite", None), ("UNLIMITED", None), ("n/a", None), ("2-00:00:00", 2880), ("1-12", 2160),
        ("1-12:30", 2190), ("1:30:00", 90), ("30:00", 30), ("45", 45), ("0:59", 0),
    ],
)  # fmt: skip
def test_times(text: str, minutes: int | None) -> None:
    assert parse_minutes(text) == minutes


def test_a_node_of_several_partitions_is_one() -> None:
    (node,) = parse_nodes("a|idle~|gpu:1|x*|f1,f2\na|idle~|gpu:1|y|f1,f2\nrubbish\n")
    assert (node.state, node.partitions, node.features) == ("idle", ("x", "y"), ("f1", "f2"))


@given(st.text())
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (parse_version, parse_ping, parse_config, parse_nodes, parse_partitions, parse_minutes):
        read(text)
