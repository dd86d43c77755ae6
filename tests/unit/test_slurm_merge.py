"""Records of several hosts in one tree of results: merged, shown together, and told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from merges import CELL, MATRIX, Place, make_place

from trtmatrix import cli
from trtmatrix.core.errors import ExitCode
from trtmatrix.core.slurm.boards import parse_gpu_csv
from trtmatrix.workshop import gpu_facts

NEW = "NVIDIA H200, GPU-1, 9.0, 143771, 580.159.04, Disabled, 345, 3201, 700.00"
OLD = "NVIDIA H200, GPU-2, 9.0, 143771, 570.86.15, Disabled, 1980, 3201, 700.00"
COLUMN = """\
  - version: "10.8.0"
    origin: {image: "example.org/tensorrt:10.8.0"}
    library: {value: "10.8.0", known: read, source: here}
"""


def site(folder: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    """A project with two versions of TensorRT."""
    place = make_place(folder, capsys)
    (folder / "matrix.yaml").write_text(MATRIX + COLUMN)
    return place


def measure(place: Place, run: str, line: str, node: str, version: str) -> None:
    """Leave a record of a cell that a node's board ran."""
    board = parse_gpu_csv(line, node)
    place.measure(run, cell=replace(CELL, version=version), gpu=gpu_facts(board.gpu, board.clocks))


def test_records_of_two_sites_are_merged_and_their_drivers_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = site(tmp_path / "here", capsys), site(tmp_path / "there", capsys)
    measure(here, "r1", NEW, "gpu-a", "10.7.0")
    measure(there, "r2", OLD, "gpu-b", "10.8.0")
    code, pack, text = there.pack()
    assert code is ExitCode.AS_EXPECTED, text
    code, text = here.merge(pack)
    assert code is ExitCode.AS_EXPECTED, text
    assert "driver 570.86.15, 140 GiB in what comes, driver 580.159.04, 140 GiB here" in text
    capsys.readouterr()
    cli.run(here.words("table", "--offline"))
    shown = capsys.readouterr().out
    assert "TensorRT: NVIDIA H200 · 140 GiB · compute capability 9.0 · driver 570.86.15, 580.159.04" in shown
    assert "no mark: driver 580.159.04, 140 GiB: 1 cell, 1 host" in shown
    assert "§b: driver 570.86.15, 140 GiB: 1 cell, 1 host" in shown


def test_the_same_cell_of_two_nodes_with_one_driver_counts_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = site(tmp_path / "here", capsys), site(tmp_path / "there", capsys)
    measure(here, "r1", NEW, "gpu-a", "10.7.0")
    measure(there, "r2", NEW.replace("GPU-1", "GPU-3"), "gpu-b", "10.7.0")
    code, text = here.merge(there.pack()[1])
    assert code is ExitCode.AS_EXPECTED, text
    capsys.readouterr()
    cli.run(here.words("table", "--offline"))
    shown = capsys.readouterr().out
    assert "all with driver 580.159.04, 140 GiB: 1 cell, 2 hosts" in shown
    assert "§" not in shown


def test_no_pack_names_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = site(tmp_path / "here", capsys)
    measure(place, "r1", NEW, "dgx-7.lab.example.org", "10.7.0")
    assert b"dgx-7" not in b"".join(place.files().values())
