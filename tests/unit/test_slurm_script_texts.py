"""The scripts for nodes are the accepted ones, and shellcheck has no complaint of any, whole.

A golden has one script's own text. What scripts have in common is accepted once, as ``common-….sh``: a line
says where it stands. Of a script that is another one but for what it is told, only the difference is kept.
"""

from __future__ import annotations

import difflib
import shutil
import subprocess
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from goldenfile import check_golden
from slurmscripts import import_of, site_of, task_of

from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm import script_task
from trtmatrix.core.slurm.script_base import BASE
from trtmatrix.core.slurm.script_child import CHILD
from trtmatrix.core.slurm.script_gpu import GPU
from trtmatrix.core.slurm.script_image import IMPORT, READ_IMAGE
from trtmatrix.core.slurm.scripts import import_script, task_script
from trtmatrix.core.slurm.site import NodeRuntime

EPILOG = Path(__file__).resolve().parents[2] / "docker" / "slurm" / "epilog"


def joined(*parts: str) -> str:
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def texts() -> dict[str, str]:
    docker = {
        f"task-docker-{a.name.lower()}": task_script(task_of(site_of(NodeRuntime.DOCKER, a)))
        for a in GpuAccess
    }
    others = {
        f"task-{runtime.value}": task_script(task_of(site_of(runtime)))
        for runtime in NodeRuntime
        if runtime is not NodeRuntime.DOCKER
    }
    imports = {
        f"import-{runtime.value}": import_script(import_of(site_of(runtime))) for runtime in NodeRuntime
    }
    own = replace(
        import_of(site_of(NodeRuntime.APPTAINER)), reference="", file="/shared/our own/it's.sif", ids=()
    )
    return {**docker, **others, **imports, "import-file": import_script(own)}


TEXTS = texts()


def told_alike(*names: str) -> str:
    """Return the lines that these scripts begin with below their opening."""
    bodies = [TEXTS[name].partition("\n\n")[2].splitlines(keepends=True) for name in names]
    alike = takewhile(lambda lines: len(set(lines)) == 1, zip(*bodies, strict=False))
    return "".join(line for line, *_ in alike)


COMMON = {
    "common-task-told": told_alike("task-docker-toolkit", "task-pyxis", "task-apptainer"),
    "common-base": joined(BASE),
    "common-task": joined(*script_task.PARTS, GPU, READ_IMAGE),
    "common-task-main": joined(script_task.MAIN),
    "common-child": joined(CHILD),
    "common-import": joined(IMPORT),
}
TASK = {"common-task-told", "common-base", "common-task", "common-task-main"}
EACH = {
    "task-docker-toolkit": TASK,
    "task-pyxis": {*TASK, "common-child"},
    "task-apptainer": {*TASK, "common-child"},
    "import-docker": {"common-base", "common-import"},
    "import-pyxis": {"common-base", "common-import"},
    "import-apptainer": {"common-base", "common-import"},
}
"""The common texts of each script that has a golden of its own."""

DIFFERS = {
    "task-docker-cdi": "task-docker-toolkit",
    "task-docker-nodes": "task-docker-toolkit",
    "import-file": "import-apptainer",
}
"""Which scripts are kept as what differs from which other one."""


def test_each_script_is_accepted() -> None:
    assert EACH.keys() | DIFFERS.keys() == TEXTS.keys()
    assert set().union(*EACH.values()) == COMMON.keys()


@pytest.mark.parametrize("name", COMMON)
def test_what_scripts_have_in_common_is_the_accepted_text(name: str) -> None:
    check_golden(f"slurm/{name}.sh", COMMON[name])


@pytest.mark.parametrize("name", EACH)
def test_a_script_is_the_accepted_one(name: str) -> None:
    text, has = TEXTS[name], set()
    for common, part in COMMON.items():
        if part in text:
            text = text.replace(part, f"# (Here stands {common}.sh.)\n", 1)
            has.add(common)
    assert has == EACH[name]
    check_golden(f"slurm/{name}.sh", text)


@pytest.mark.parametrize("name", DIFFERS)
def test_a_script_differs_from_another_as_accepted(name: str) -> None:
    other = DIFFERS[name]
    lines = difflib.unified_diff(
        TEXTS[other].splitlines(), TEXTS[name].splitlines(), other, name, lineterm="", n=1
    )
    told = ["@@" if line.startswith("@@ ") else line for line in lines]  # lines before it may come and go
    check_golden(f"slurm/{name}.diff", "\n".join([*told, ""]))


@pytest.mark.parametrize("name", [*TEXTS, "epilog"])
def test_shellcheck_has_no_complaint(name: str, tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.fail("no shellcheck: pip install --group test (it is among the project's test tools)")
    file = tmp_path / name
    file.write_text(EPILOG.read_text() if name == "epilog" else TEXTS[name])
    done = subprocess.run([shellcheck, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("path", [{"PATH": ""}, {}, {"PATH": "/nowhere"}])
def test_the_epilog_runs_nothing_of_the_current_folder(path: dict[str, str], tmp_path: Path) -> None:
    for name in ("docker", "timeout"):
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
        command.chmod(0o755)
    told = {"SLURM_JOB_ID": "no-job-of-any-cluster", **path}
    subprocess.run(["/bin/sh", str(EPILOG)], env=told, cwd=tmp_path, check=True)
    assert not (tmp_path / "ran").exists()
