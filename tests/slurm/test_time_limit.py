"""A cell that has taken down what watches over it: nothing but Slurm's time limit ends that."""

from __future__ import annotations

from tests.slurm.nodes import H200
from tests.slurm.project import Client, Project


def test_a_hang_beyond_the_time_limit_is_data_and_not_tried_again(halted: tuple[Project, Client]) -> None:
    project, client = halted
    done = client.wait(150)
    assert done.code == 3, done.told  # the probe failed, and that is trouble with the machinery
    cell = done.cells["halts", H200.slug]
    assert (cell["cause"], cell["executed"]) == ("probe failed", True)
    assert "a cell was long over its time limit" in cell["reason"]
    (array,) = [a for a in project.arrays() if '"halts"' in (a / "manifest.json").read_text()]
    assert [path.name for path in (array / "tries").iterdir()] == ["0.1"]
    assert not [line for line in project.cluster.queue() if array.name in line]
    assert not [c for c in project.cluster.containers() if array.name in c.attrs["Names"][0]]
