"""The scripts for nodes: all that they are told is quoted, and what they do by themselves is right."""

from __future__ import annotations

import json
import shutil
import string
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slurmscripts import DIGEST, import_of, site_of, task_of

from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.slurm.script_apptainer import apptainer_uri
from trtmatrix.core.slurm.script_child import CHILD
from trtmatrix.core.slurm.script_gpu import GPU
from trtmatrix.core.slurm.script_pyxis import enroot_uris
from trtmatrix.core.slurm.scripts import import_script, task_script
from trtmatrix.core.slurm.shell import assign, assign_words
from trtmatrix.core.slurm.site import NodeRuntime, SiteGpu
from trtmatrix.core.slurm.submission import array_words

BASH = shutil.which("bash")


def test_what_is_told_stands_at_the_top_and_the_rest_is_the_same_for_all() -> None:
    site = site_of(NodeRuntime.DOCKER)
    other = replace(task_of(replace(site, shared="/else where")), key="0", version="9", slug="nvidia-l4")
    bodies = [task_script(spec).partition("job=${SLURM_JOB_ID")[2] for spec in (task_of(site), other)]
    assert bodies[0] == bodies[1] != ""


def run_bash(text: str) -> str:
    """Run lines of bash; bytes, since Python's own newlines are not what is tested."""
    done = subprocess.run([str(BASH), "-s"], input=text.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@settings(max_examples=60, deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=5))
def test_bash_reads_back_what_was_put_in(one: str, many: list[str]) -> None:
    lines = [assign("one", one), assign_words("many", many), 'printf \'%s\\0\' "$one" "${many[@]}"']
    assert run_bash("\n".join(lines)).split("\0")[:-1] == [one, *many]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(string.printable, max_size=40), min_size=1, max_size=20))
def test_a_name_of_a_gpu_is_the_same_on_the_node_as_in_cells(names: list[str]) -> None:
    names = [name.strip() for name in names]  # as nvidia-smi's line is read
    calls = [f"{assign('name', name)}\nslug_of \"$name\"; printf '\\0'" for name in names]
    slugs = run_bash("\n".join([GPU, *calls])).split("\0")[:-1]
    assert slugs == [slug_of(name) if any(c.isalnum() for c in name) else "nvidia-" for name in names]


@pytest.mark.parametrize("hostile", ["a'b", "a b", "$(touch x)", "`x`", 'a"b', "a\nb", "é", "-n", "a\\b"])
@pytest.mark.parametrize("runtime", NodeRuntime)
def test_no_name_is_read_as_a_command(runtime: NodeRuntime, hostile: str) -> None:
    site = site_of(runtime, shared=f"/shared/{hostile}")
    spec = replace(task_of(site), version=hostile, gpu=SiteGpu(name=hostile, gres=hostile), key="k")
    for text in (task_script(spec), import_script(replace(import_of(site), reference=hostile))):
        told, _, _ = text.partition("\njob=${SLURM_JOB_ID")
        shown = f'{told}\nprintf \'%s\\0\' "${{array_folder:-}}" "${{gpu_name:-}}" "${{reference:-}}"'
        folder, name, reference = run_bash(shown).split("\0")[:-1]
        assert (folder, name) in {(f"/shared/{hostile}/arrays/k", hostile), ("", "")}
        assert reference in {hostile, ""}


def test_the_client_s_json_of_an_image_is_json_whatever_its_name_is() -> None:
    reference = 'a"b\\c'
    text = import_script(replace(import_of(site_of(NodeRuntime.PYXIS)), reference=reference))
    told = text.partition("\njob=${SLURM_JOB_ID")[0]
    assert json.loads(run_bash(f'{told}\nprintf %s "$reference_json"')) == reference


@pytest.mark.parametrize(
    ("reference", "enroot", "apptainer"),
    [
        ("ubuntu:22.04", ("docker://ubuntu:22.04",), "docker://ubuntu:22.04"),
        ("lab/x", ("docker://lab/x",), "docker://lab/x"),
        ("nvcr.io/nvidia/x:1", ("docker://nvcr.io#nvidia/x:1",), "docker://nvcr.io/nvidia/x:1"),
        (
            f"localhost:5000/x:1@{DIGEST}",
            (f"docker://localhost:5000#x@{DIGEST}", f"docker://localhost:5000#x:{DIGEST}"),
            f"docker://localhost:5000/x@{DIGEST}",
        ),
    ],
)
def test_an_image_is_named_as_each_runtime_has_it(
    reference: str, enroot: tuple[str, ...], apptainer: str
) -> None:
    assert enroot_uris(reference) == enroot
    assert apptainer_uri(reference) == apptainer


V1 = "7:cpu,cpuacct:/\n4:memory:/slurm/uid_5/job_7/step_batch/task_0\n0::/system.slice/slurmd.service\n"
V2 = "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n"
OTHERS = {"memory/slurm/uid_5/job_8/step_0/memory.oom_control": 9, "system.slice/memory.events": 9}


@pytest.mark.parametrize(
    ("own", "counts", "killed"),
    [
        (V1, {"job_7": 0, "job_7/step_batch/task_0": 2, "job_7/step_0/task_0": 1}, 3),
        (V1, {"job_7": 0}, 0),
        (V2, {"system.slice/slurmstepd.scope/job_7/memory.events": 2}, 2),
        ("0::/\n", {"memory.events": 4}, 0),
        ("0::/system.slice/slurmd.service\n", {"system.slice/slurmd.service/memory.events": 4}, 0),
        ("", {}, 0),
    ],
)
def test_processes_killed_for_memory_are_counted_in_all_of_the_job_s_cgroups(
    own: str, counts: dict[str, int], killed: int, tmp_path: Path
) -> None:
    for name, count in {**counts, **OTHERS}.items():
        path = name if "memory." in name else f"memory/slurm/uid_5/{name}/memory.oom_control"
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n")
    (tmp_path / "own").write_text(own)
    told = [assign("own_cgroups", f"{tmp_path}/own"), assign("cgroups", str(tmp_path)), "oom_kills"]
    assert run_bash("\n".join([CHILD, *told])) == f"{killed}\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "yes"),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0 cgroup.", "yes"),
        ("srun: error: node1: task 0: Out Of Memory", "yes"),
        ("srun: error: node1: task 0: Killed", ""),
        ("CUDA error: out of memory", ""),
    ],
)
def test_slurm_s_word_of_memory_is_known_from_a_program_s(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "whole").write_text(f"a line\n{line}\n")
    lines = [CHILD, assign("local", str(tmp_path)), "slurm_says_oom && echo yes; true"]
    assert run_bash("\n".join(lines)).strip() == told


def test_a_script_names_the_file_that_slurm_keeps_of_what_it_says() -> None:
    site = site_of(NodeRuntime.DOCKER)
    words = array_words(site, SiteGpu(name="", gres=""), key="5f1c2a", tasks=[3], attempt=2, minutes=5)
    (output,) = (word.removeprefix("--output=") for word in words if word.startswith("--output="))
    told, _, body = task_script(task_of(site)).partition("\njob=${SLURM_JOB_ID")
    (line,) = (line for line in body.splitlines() if line.startswith("said=$"))
    shown = run_bash(f'{told}\ntask=3 attempt=2 array=77\n{line}\nprintf %s "$said"')
    assert shown == output.replace("%a", "3").replace("%A", "77")
