"""slurm.yaml's mistakes: each is told with file, line, key and remedy, all at once."""

from __future__ import annotations

import pytest
from test_slurm_site import FULL

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.slurm.sitefile import parse_site


def problems_of(text: str, versions: list[str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_site(text, "s.yaml", versions)
    return caught.value.problems


def replaced(old: str, new: str) -> str:
    assert FULL.count(old) == 1, old
    return FULL.replace(old, new)


WRONG: dict[str, tuple[str, str, str]] = {
    "two GPUs": ('"gpu:h200:1"', "gpu:h200:2", "6: gpus[0].gres: asks for 2 GPUs; a cell runs on one GPU"),
    "as sinfo writes it": ('"gpu:h200:1"', "gpu:h200:8(S:0-1)", "write gpu:h200:1"),
    "two of a type that is a number": ('"gpu:h200:1"', "gpu:3090:2", "has one task: write gpu:3090:1"),
    "a type that begins with a number, as sinfo writes it": (
        '"gpu:h200:1"', "gpu:2080ti:4(S:0-1)", "write gpu:2080ti:1",
    ),
    "a type that begins with a number, alone": ('"gpu:h200:1"', "gpu:2080ti", "write gpu:2080ti:1 "),
    "a part of a GPU, alone": ('"gpu:h200:1"', "gpu:1g.10gb", "1g.10gb is a part of a GPU (MIG)"),
    "a number alone": ('"gpu:h200:1"', "gpu:4(S:0)", "sbatch does not read this: write gpu:1 "),
    "a part of a GPU": ('"gpu:h200:1"', "gpu:1g.10gb:1", "1g.10gb is a part of a GPU (MIG)"),
    "a part with media": ('"gpu:h200:1"', "gpu:1g.10gb+me:1", "cells run on whole ones: name their type"),
    "a part as slurmd names it": ('"gpu:h200:1"', "gpu:a100_1g.5gb:1", "a100_1g.5gb is a part of a GPU"),
    "as TRES": ('"gpu:h200:1"', "gres/gpu:h200:1", "write gpu:h200:1"),
    "no GPU": ('"gpu:h200:1"', "h200", "6: gpus[0].gres: asks for no GPU"),
    "two kinds": ('"gpu:h200:1"', "gpu:h200:1,gpu:l4:1", "or for several kinds"),
    "nvidia-smi's line": (
        '"NVIDIA H200"', "'GPU 0: NVIDIA H200 (UUID: GPU-1)'",
        'write the name alone: "NVIDIA H200"',
    ),
    "a number for a name": ('"NVIDIA H200"', "200", 'write "200"'),
    "partition as a number": ("partition: a,b", "partition: 2", "8: gpus[0].partition: 2 without quotes"),
    "our own option": (
        '"--reservation=x"',
        '"--array=1-3"', "--array: this is set for each job by this tool",
    ),
    "our own letter": ('"--reservation=x"', '"-t60"', "this is set for each job by this tool"),
    "an option with a key": (
        '"--reservation=x"',
        '"--partition=b"', "write it as partition: beside name: and gres:",
    ),
    "a letter with a key": ('"--reservation=x"', '"-pb"', "write it as partition:"),
    "no option": ('"--account=all"', '"account"', "sbatch would take 'account' for its script"),
    "words in one": ('"--account=all"', '"--account all"', 'write ["--account=…"]'),
    "another cluster": ('"--account=all"', '"-M"', "jobs on another cluster would not be found"),
    "a file of nodes": ('"--account=all"', '"--exclude=/etc/bad"', "/etc/bad is a file of nodes: write"),
    "a relative folder": ("/shared/me/with blanks/", "~/shared", "2: shared: write the absolute path"),
    "a colon": ("/shared/me/with blanks/", "/a:b", "2: shared: has ':', which Slurm or a container runtime"),
    "a pattern": ("/shared/me/with blanks/", "/a%b", "has '%'"),
    "a folder above": ("/shared/me/with blanks/", "/a/../b", "write the folder itself"),
    "a relative scratch": ("/local/$SLURM_JOB_ID/", "local", "20: scratch: write an absolute path of the"),
    "a command for scratch": ("/local/$SLURM_JOB_ID/", "/local/$(id)", "scratch: has '$'"),
    "a scratch folder above": ("/local/$SLURM_JOB_ID/", "/local/..", "such as /local/$SLURM_JOB_ID"),
    "a comma in a folder": ("/opt/driver", '"/opt/a,b"', "driver_folder: has ','"),
    "an environment": ('"--account=all"', '"--export=ALL"', "--export: this is set for each job by"),
    "a runtime": ("runtime: docker", "runtime: podman", "3: runtime: 'podman' is not one of"),
    "near a runtime": ("runtime: docker", "runtime: dockr", "perhaps you meant 'docker'"),
    "a time": ("minutes: 30,", "minutes: '1-00:30',", "write 1470"),
    "a time unquoted": (
        "minutes: 30,",
        "minutes: 1:30:00,",
        "1:30:00 without quotes is the YAML number 5400: write the minutes, 90",
    ),
    "no minutes": (
        "minutes: 30,",
        "minutes: 0,",
        "limits.minutes: input should be greater than or equal to 1 (found 0)",
    ),
    "memory without unit": ("4000m", "36", "needs a unit: write 36g"),
    "too little memory": ("4000m", "1m", "too little"),
    "no size": ("4000m", "much", "no size such as 36g"),
    "running": ("running: 2", "running: yes", "limits.running: must be a whole number (found True)"),
    "an unknown key": ("setup:", "set-up:", "15: set-up: unknown key; perhaps you meant 'setup'"),
    "an unknown limit": ("cpus: 3", "cpu: 3", "unknown key; perhaps you meant 'cpus'; known here: minutes"),
    "an unknown key of a GPU": (
        "qos: high",
        "gos: high",
        "10: gpus[0].gos: unknown key; perhaps you meant 'qos'",
    ),
    "setup in one": ("setup:\n  - module load cuda", "setup: module load cuda", "15: setup: must be a list"),
    "a file of another runtime": (
        "/images/trt.tar",
        "/images/trt.sif",
        "docker wants a .tar file",
    ),
    "a file somewhere": ("/images/trt.tar", "images/trt.tar", "write the absolute path that every node sees"),
    "as enroot writes it": (
        "example.org/a/tensorrt:10",
        "docker://example.org#a/tensorrt:10",
        'write it as Docker does: "example.org/a/tensorrt:10"',
    ),
    "no tag": ("example.org/a/tensorrt:10", "example.org/a/tensorrt", "no image with a tag or a digest"),
    "an unknown version": (
        '"8.6.0": /im',
        '"8.6": /im', "images.8.6: matrix.yaml has no such version; perhaps you meant '8.6.0'",
    ),
    "a driver folder for nothing": (
        "access: nodes",
        "access: cdi",
        "13: driver_folder: is needed with access: nodes alone",
    ),
    "access without Docker": (
        "runtime: docker",
        "runtime: pyxis",
        "12: access: only Docker looks at it; pyxis gives",
    ),
    "a newer file": ("schema: 1", "schema: 2", "update it if the file is newer"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_its_remedy(name: str) -> None:
    old, new, told = WRONG[name]
    problems = problems_of(replaced(old, new), ["10.10", "8.6.0"])
    assert any(told in problem for problem in problems), problems
    assert all(problem.startswith("s.yaml:") for problem in problems)


def test_all_mistakes_are_told_at_once_by_line() -> None:
    text = replaced("gpu:h200:1", "gpu:2").replace("4000m", "4").replace("runtime: docker", "runtim: docker")
    lines = [int(problem.split(":")[1]) for problem in problems_of(text)]
    assert lines == sorted(lines)
    assert {3, 6, 14} <= set(lines)


@pytest.mark.parametrize("name", ["nvidia h200", "NVIDIA H200 ", "H200", "NVIDIA-H200-"])
def test_one_gpu_stands_once(name: str) -> None:
    again = replaced("access: nodes", f'  - {{name: "{name}", gres: "gpu:h200:1"}}\naccess: nodes')
    assert "stands twice (first as gpus[0])" in problems_of(again)[0]


def test_a_list_with_a_wrong_entry_alone_is_not_called_empty() -> None:
    (problem,) = problems_of(replaced('"gpu:h200:1"', "gpu:2"))
    assert problem.startswith("s.yaml:6: gpus[0].gres: asks for 2 GPUs")
    (problem,) = problems_of("schema: 1\nshared: /a\nruntime: pyxis\ngpus: []\n")
    assert "gpus: must have an item at least" in problem
