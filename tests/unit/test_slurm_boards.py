"""What nvidia-smi told on a site's nodes: boards, models, and which records they make current."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from builders import make_cell, make_record
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.compare import is_current
from trtmatrix.core.model import Gpu, Seen
from trtmatrix.core.slurm.boards import (
    Board,
    BoardError,
    Node,
    add_board,
    host_hash,
    parse_gpu_csv,
    renew_cells,
    site_gpus,
)
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.effects.gpu import known_gpu
from trtmatrix.workshop import gpu_facts

H200 = "NVIDIA H200, GPU-1, 9.0, 143771, 580.159.04, Disabled, 345, 3201, 700.00"
"""As a real one tells it (driver 580.159.04), but for the UUID."""
OLD = "NVIDIA H200, GPU-2, 9.0, 143771, 570.86.15, Disabled, 1980, 3201, 700.00"
L4 = "NVIDIA L4, GPU-3, 8.9, 23034, 580.159.04, [N/A], 210, 405, 72.00"
SITE = Site(
    shared="/shared", runtime=NodeRuntime.DOCKER,
    gpus=(SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"), SiteGpu(name="NVIDIA L4", gres="gpu:l4:1")),
)  # fmt: skip


def test_a_board_is_described_as_nvml_describes_one_of_this_host() -> None:
    board = parse_gpu_csv(H200 + "\n", "h200a", known_gpu)
    assert board.gpu == Gpu(
        slug="nvidia-h200", name="NVIDIA H200", compute="9.0", variant="140 GiB", driver="580.159.04",
        datacenter=True, uuid="GPU-1", uuid_hash=sha256(b"GPU-1").hexdigest(), remote=True,
        host=host_hash("h200a"),
        seen=(Seen(name="NVIDIA H200", variant="140 GiB", driver="580.159.04"),),
    )  # fmt: skip
    assert board.clocks == {"sm_mhz": 345, "memory_mhz": 3201, "power_limit_w": 700.0}
    assert board.gpu.present
    assert board.gpu.is_board


@pytest.mark.parametrize(
    ("line", "variant"),
    [
        ("NVIDIA A100-SXM4-80GB, GPU-1, 8.0, 81920, 580.1, Enabled, 1, 1, 400.00", "80 GiB, MIG on"),
        ("NVIDIA A100-SXM4-80GB, GPU-1, 8.0, 81920, 580.1, Disabled, 1, 1, 400.00", "80 GiB"),
        ("NVIDIA L4, GPU-1, 8.9, 23034 MiB, 580.1, [N/A], 1 MHz, 1 MHz, 72.00 W", "22 GiB"),
        ("NVIDIA GB10, GPU-1, 12.1, [N/A], 580.1, [N/A], 1, 1, [N/A]", ""),
        ("NVIDIA GB10, GPU-1, 12.1, [N/A], 580.1, Enabled, 1, 1, [N/A]", "MIG on"),
    ],
)
def test_the_variant_is_what_nvml_gives(line: str, variant: str) -> None:
    assert parse_gpu_csv(line).gpu.variant == variant


def test_what_nvidia_smi_does_not_know_is_left_out_or_the_tables() -> None:
    line = "Tesla T4, [Unknown Error], [Not Supported], 15360, 470.82.01, [N/A], [N/A], [N/A], [N/A]"
    board = parse_gpu_csv(line, known=known_gpu)
    assert (board.gpu.compute, board.gpu.uuid_hash, board.gpu.is_board) == ("7.5", None, False)
    assert parse_gpu_csv(line).gpu.compute is None
    assert board.clocks == {"unknown": "nvidia-smi does not tell"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 GPUs instead of one"),
        (f"{H200}\n{L4}\n", "2 GPUs instead of one"),
        ("No devices were found\n", "did not tell name, uuid"),
        ('Field "compute_cap" is not a valid field to query.\n\n', "does not know compute_cap: its driver"),
        ("[N/A], GPU-1, 9.0, 1, 580.1, Disabled, 1, 1, 1", "told no name"),
        (H200.replace("580.159.04", "580-dev"), "driver_version is '580-dev'"),
        (H200.replace("9.0", "nine"), "compute_cap is 'nine'"),
    ],
)
def test_what_is_not_one_gpu_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(BoardError, match=words):
        parse_gpu_csv(text)


@given(st.one_of(st.text(), st.lists(st.text(), min_size=9, max_size=9).map(",".join)))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        board = parse_gpu_csv(text, "node", known_gpu)
    except BoardError:
        return
    assert isinstance(board, Board)
    assert site_gpus(SITE, [Node(name="node", gpus=(text,))])


def test_a_models_boards_are_counted_by_driver_and_node_the_newest_first() -> None:
    more = H200.replace("GPU-1", "GPU-9")
    nodes = [Node(name="a", gpus=(H200, more)), Node(name="b", gpus=(H200,)), Node(name="c", gpus=(OLD, L4))]
    h200, l4 = site_gpus(SITE, nodes, known_gpu)
    assert (h200.slug, h200.driver, h200.variant, h200.remote) == (
        "nvidia-h200",
        "580.159.04",
        "140 GiB",
        True,
    )
    assert [(board.driver, board.hosts) for board in h200.seen] == [("580.159.04", 2), ("570.86.15", 1)]
    assert [(board.variant, board.hosts) for board in l4.seen] == [("22 GiB", 1)]
    assert (h200.present, h200.is_board, h200.host) == (True, False, "")


def test_drivers_are_ordered_as_versions() -> None:
    nodes = [Node(name="a", gpus=(H200.replace("580.159.04", "99.2"),)), Node(name="b", gpus=(H200,))]
    assert [board.driver for board in site_gpus(SITE, nodes)[0].seen] == ["580.159.04", "99.2"]


def test_a_model_that_no_job_has_seen_is_known_from_the_table() -> None:
    h200, _ = site_gpus(SITE, [], known_gpu)
    assert (h200.compute, h200.datacenter, h200.driver, h200.seen) == ("9.0", True, None, ())


def test_a_node_has_one_driver_boards_seen_with_another_are_forgotten() -> None:
    node = add_board(Node(name="a", gpus=(OLD, "damaged")), H200, "2026-01-02T00:00:00Z")
    assert node == Node(name="a", gpus=(H200,), seen="2026-01-02T00:00:00Z")
    other = H200.replace("GPU-1", "GPU-9")
    assert add_board(node, other, "2026-01-01T00:00:00Z") == replace(node, gpus=(H200, other))
    assert add_board(node, H200.replace("345", "1980"), node.seen).gpus == (H200.replace("345", "1980"),)


def test_what_is_collected_late_takes_nothing_away() -> None:
    node = Node(name="a", gpus=(H200,), seen="2026-01-02T00:00:00Z")
    assert add_board(node, OLD, "2026-01-01T00:00:00Z") == node
    assert add_board(node, H200.replace("345", "1980"), "2026-01-01T00:00:00Z") == node
    assert add_board(node, OLD, "2026-01-03T00:00:00Z").gpus == (OLD,)


def test_a_record_is_current_if_its_board_is_among_those_seen() -> None:
    nodes = [Node(name="a", gpus=(H200,)), Node(name="b", gpus=(OLD,))]
    for driver, current in (("580.159.04", True), ("570.86.15", True), ("560.1", False)):
        board = parse_gpu_csv(H200.replace("580.159.04", driver), "a").gpu
        record = make_record(make_cell(gpu=board), gpu=gpu_facts(board, {}))
        assert is_current(record, {}, make_cell(gpu=site_gpus(SITE, nodes)[0])) is current
        assert not is_current(record, {}, make_cell(gpu=site_gpus(SITE, [])[0]))


def test_cells_learn_which_boards_were_seen_since() -> None:
    cell = make_cell(gpu=site_gpus(SITE, [])[0])
    renewed = renew_cells([cell], site_gpus(SITE, [Node(name="a", gpus=(H200,))]))
    assert renewed[0].gpu.driver == "580.159.04"
    assert renewed[0].id == cell.id


def test_a_record_says_which_node_it_is_of_without_its_name() -> None:
    board = parse_gpu_csv(H200, "dgx-7.cluster.example.org")
    facts = gpu_facts(board.gpu, board.clocks)
    assert facts["host"] == sha256(b"dgx-7.cluster.example.org").hexdigest()[:16]
    assert "dgx" not in str(facts)
    assert facts["clocks"] == {"sm_mhz": 345, "memory_mhz": 3201, "power_limit_w": 700.0}


def test_a_record_of_nobody_knows_which_board_says_no_driver() -> None:
    model = site_gpus(SITE, [Node(name="a", gpus=(H200,))])[0]
    assert gpu_facts(model, {}) == {"name": "NVIDIA H200"}
    assert "host" not in gpu_facts(replace(parse_gpu_csv(H200).gpu, remote=False, index=0), {})
