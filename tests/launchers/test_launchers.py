"""Cells through Apptainer and pyxis by the command line; the runtimes are stand-ins (standins.py)."""

import io
import signal
from hashlib import sha256
from pathlib import Path

import docker
import pytest

from tests.launchers.conftest import CHOSEN, REFERENCE, Project
from tests.models.images import CURRENT_VERSION
from tests.waiting import wait_until

JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1", "SLURMD_NODENAME": "node1", "SLURM_CPUS_PER_TASK": "3",
    "FAKE_GPUS": "2", "PYXIS_CONTAINER_NAME": "others",
}  # fmt: skip


def own(project: Project, text: str = "squashed") -> str:
    (project.folder / "own.sif").write_text(text)
    return f"--image=10.7.0={project.folder / 'own.sif'}"


def digest(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def images(project: Project) -> set[str]:
    return {path.suffix for path in (project.folder / "cache" / "images").iterdir()}


@pytest.mark.parametrize("lacking", ["", "1"])
def test_a_cell_runs_in_apptainer_from_a_file(project: Project, lacking: str) -> None:
    done = project.call_run(
        "apptainer", own(project), APPTAINER_BIND="/", SINGULARITYENV_A="7", NO_NET=lacking
    )
    assert (done.code, "cannot start" in done.told) == (0, False), done.told
    (record,) = project.records()
    scalars = record["measurements"]["scalars"]
    assert (scalars["scheduler"], scalars["gpu"], scalars["network"] > 1) == (0, 0, bool(lacking))
    assert (record["digests"]["image"], "host" in record["gpu"]) == (digest("squashed"), False)
    assert "10.7.0: memory and processes cannot be limited here: FATAL: no cgroups" in done.told
    assert ("the network cannot be taken away here: FATAL: this takes root" in done.told) == bool(lacking)
    again = project.call_run("apptainer", own(project))
    assert (again.code, len(project.records())) == (0, 1)  # the same file: the record stands for it


@pytest.mark.parametrize("newer", ["", "--container-unshare"])
def test_a_cell_runs_by_pyxis_on_the_job_s_own_gpu(project: Project, newer: str) -> None:
    done = project.call_run("pyxis", f"--image=10.7.0={REFERENCE}@{digest('x')}", **JOB, NEWER=newer)
    assert done.code == 0, done.told
    (record,) = project.records()
    scalars = record["measurements"]["scalars"]
    assert (scalars["scheduler"], scalars["gpu"], scalars["network"] == 1) == (0, 1, bool(newer))
    assert record["gpu"]["host"] == sha256(b"node1").hexdigest()[:16]
    pull, gpu = project.told()
    assert pull.split()[1] == f"docker://registry.lab#tensorrt:{digest('x')}"  # its enroot knows no "@"
    assert gpu == "gpu GPU-1111-1 node1 3"


def test_a_container_that_cannot_be_started_is_the_launcher_s_failure(project: Project) -> None:
    assert project.call_run("apptainer", own(project, "broken")).code == 3
    (record,) = project.records()
    assert record["ended"] == "launcher failed"
    told = record["detail"]
    assert told.startswith("the probe did not start: Apptainer cannot start the container of ")
    assert told.endswith("FATAL: this image cannot be opened\n")


def test_an_image_is_pulled_once_by_two_at_the_same_time(project: Project) -> None:
    words = ("run", *project.files, "--engine=apptainer", *CHOSEN)
    both = [project.start(*words, f"--results={project.folder}/results{n}") for n in range(2)]
    told = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    (pull,) = project.told()
    below = {Path(word).parent.parent for word in pull.split()[2:]}
    assert below == {project.folder / "cache" / "images"}  # its layers went neither home nor to /tmp
    named = {record["digests"]["image"] for record in project.records()}
    assert named == {digest(f"docker://{REFERENCE}")}
    assert images(project) == {"", ".lock"}


def test_a_pull_that_fails_says_why_and_leaves_nothing(project: Project) -> None:
    done = project.call_run("apptainer", "--image=10.7.0=lab/nosuch:1")
    assert done.code == 3
    assert "lab/nosuch:1 cannot be had: FATAL: manifest unknown" in done.told
    assert "/bin/apptainer pull " in done.told
    assert images(project) == {".lock"}


def test_an_interrupted_run_leaves_no_container(project: Project) -> None:
    words = ("--engine=apptainer", "--trt=10.7.0", "--case=hangs", "--no-controls", own(project))
    process, client = project.start("run", *project.files, *words), docker.from_env()
    mine: dict[str, str | list[str] | bool] = {"label": f"io.trtmatrix.standin={project.folder / 'bin'}"}
    wait_until(lambda: list(project.folder.glob("cache/jobs/*/out/0.started.json")), 60, "the cell")
    assert client.containers.list(filters=mine)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    wait_until(lambda: not client.containers.list(all=True, filters=mine), 60, "Docker to remove it")


def test_doctor_plan_and_table_ask_the_runtime(project: Project) -> None:
    looked = project.call("doctor", "--engine=apptainer", own(project))
    assert "Apptainer 1.3.4; containers get GPUs by: the runtime's own way" in looked.printed
    planned = project.call_run("apptainer", "--plan", own(project))
    assert "/bin/apptainer exec --containall --cleanenv --no-home --no-privs --pwd=/tmp" in planned.printed
    assert "--bind=JOB/job:/opt/trtmatrix/job:ro" in planned.printed
    assert "CUDA_VISIBLE_DEVICES=GPU-1111-0" in planned.printed
    assert project.call("table", "--engine=pyxis").code == 4


@pytest.mark.parametrize(("engine", "gone", "reason"), [
    ("apptainer", "apptainer", "neither apptainer nor singularity is in PATH"),
    ("pyxis", "enroot", "enroot is not in PATH"), ("pyxis", "", "this is no Slurm job"),
    ("docker", "", "no container engine answers at tcp://host:999999: "),
])  # fmt: skip
def test_a_runtime_that_is_not_here_is_told(project: Project, engine: str, gone: str, reason: str) -> None:
    (project.folder / "bin" / gone).unlink() if gone else None
    done = project.call_run(engine, PATH=str(project.folder / "bin"), DOCKER_HOST="tcp://host:999999")
    assert done.code == 3
    assert f"--engine {engine}: {reason}" in done.told


@pytest.mark.parametrize(("engine", "image", "reason"), [
    ("apptainer", "10.7.0=own.sqsh", "takes files that end in .sif"),
    ("pyxis", "10.9.9=lab/x:1", "10.9.9 runs in no image"),
    ("apptainer", "10.7.0=/nowhere/own.sif", "/nowhere/own.sif cannot be read: No such file"),
])  # fmt: skip
def test_an_image_of_another_kind_is_refused(project: Project, engine: str, image: str, reason: str) -> None:
    done = project.call_run(engine, f"--image={image}")
    assert (done.code, reason in done.told) == (2, True), done.told


def test_a_tar_of_docker_save_is_loaded_where_the_engine_lacks_it(project: Project) -> None:
    del project.environment["DOCKER_HOST"]
    client, tag = docker.from_env(), f"trtmatrix/test-tar:{sha256(bytes(project.folder)).hexdigest()[:8]}"
    text = f"FROM trtmatrix/test:latest\nLABEL mine={tag}\n".encode()
    image, _ = client.images.build(fileobj=io.BytesIO(text), tag=tag, rm=True, network_mode="none")
    matrix = project.folder / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace('"value": "9"', f'"value": "{CURRENT_VERSION}"'))
    tar = project.folder / "own.tar"
    with tar.open("wb") as stream:
        stream.writelines(image.save(named=True))
    client.images.remove(tag)
    words = ("--engine=docker", *CHOSEN[1:], "--trt=onnxruntime-9", f"--image=onnxruntime-9={tar}")
    wrong = project.call("run", *words, TRTMATRIX_GPU_ACCESS="magic")
    assert (wrong.code, "TRTMATRIX_GPU_ACCESS is 'magic' of toolkit" in wrong.told) == (3, True), wrong.told
    try:
        done = project.call("run", *words)
        assert (done.code, f"loading {tar}" in done.told) == (0, True), done.told
        (record,) = project.records()
        assert record["digests"]["image"] == image.id
    finally:
        client.images.remove(str(image.id), force=True)
