"""What scontrol of several releases writes of one and the same cluster is read as the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.core.slurm.controller import Partition, parse_config, parse_nodes, parse_partitions

FIXTURES = Path(__file__).parent / "slurm_json"
RELEASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


def test_several_releases_are_kept() -> None:
    assert len(RELEASES) > 3


@pytest.mark.parametrize("release", RELEASES)
def test_the_cluster_of_a_release(release: str) -> None:
    folder = FIXTURES / release
    config = parse_config((folder / "config.txt").read_text())
    assert (config.version, config.cluster, config.array, config.jobs) == (release, "fake", 1001, 10000)
    assert (config.epilogs, config.accounting) == ((), "accounting_storage/slurmdbd")
    nodes = {node.name: node for node in parse_nodes((folder / "nodes.txt").read_text())}
    assert (nodes["h200a"].gpus, nodes["h200a"].takes_jobs) == ((("h200", 2),), True)
    assert (nodes["l4a"].gpus, nodes["l4a"].takes_jobs) == ((("l4", 1),), False)  # it was killed
    assert {node.partitions for node in nodes.values()} == {("gpu",)}
    assert parse_partitions((folder / "partitions.txt").read_text()) == (
        Partition(name="gpu", default=True, state="UP", minutes=2 * 24 * 60),
    )
