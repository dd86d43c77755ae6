"""Whose GPUs are meant: words for who reads records that a cluster made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import make_case, make_cell, make_repro
from nowhere import go_nowhere
from test_slurm_cluster import make_context

from trtmatrix import cli, slurm_doctor
from trtmatrix.cli import make_parser
from trtmatrix.commands import show
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import Selection
from trtmatrix.core.model import Evidence, Exclusion, Gpu
from trtmatrix.core.plan import Engine, Excluded, Host, Pull, make_plan
from trtmatrix.core.slurm.facts import SiteFacts
from trtmatrix.core.slurm.site import Site
from trtmatrix.core.slurm.sitefile import EXAMPLE
from trtmatrix.core.summary import count_products, headline
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Slurm
from trtmatrix.where import open_where, tell_of_site

L4 = Gpu(slug="nvidia-l4", name="NVIDIA L4", remote=True)
H200 = Gpu(slug="nvidia-h200", name="NVIDIA H200")


@pytest.mark.parametrize("command", ["table", "report", "publish"])
def test_who_reads_records_can_mean_the_clusters_gpus(command: str) -> None:
    args = make_parser().parse_args([command, "--executor", "slurm"])
    assert args.executor == "slurm"


@pytest.mark.parametrize(
    ("command", "site", "told"),
    [("table", True, True), ("publish", True, True), ("run", True, False), ("table", False, False)],
)
def test_a_site_that_is_not_asked_is_pointed_out(
    command: str, site: bool, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("TRTMATRIX_SITE", raising=False)
    if site:
        (tmp_path / "slurm.yaml").touch()
    tell_of_site(command, None, tmp_path)
    assert ("--executor slurm" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    ("runtime", "command", "refused"),
    [
        ("docker", "run", True), ("docker", "run --plan", True), ("docker", "run --memory 8193m", True),
        ("docker", "run --memory 8g", False), ("docker", "table", False), ("pyxis", "run", False),
        ("apptainer", "run", False),
    ],
)  # fmt: skip
def test_a_container_of_dockers_takes_no_more_than_its_job_reserves(
    runtime: str, command: str, refused: bool, tmp_path: Path
) -> None:
    site, shared = tmp_path / "slurm.yaml", tmp_path / "shared"
    shared.mkdir()
    text = EXAMPLE.replace("/shared/me/trtmatrix", str(shared)).replace("pyxis  ", f"{runtime}  ")
    site.write_text(f"{text}limits: {{memory: 8g}}\n")
    args = make_parser().parse_args([*command.split(), "--executor", "slurm", "--site", str(site)])
    if refused:
        with pytest.raises(UsageError, match=r"reserves 8192m of the node .*slurm.yaml: limits.memory"):
            open_where(args, make_context(tmp_path))
    else:
        assert open_where(args, make_context(tmp_path))[1] is not None


def test_a_gpu_that_the_site_lacks_is_told_as_that() -> None:
    cell = make_cell(make_repro(make_case("a")), make_case("a"), gpu=H200)
    plan = make_plan([cell], Host(engine=Engine(available=True), gpus=(L4,)), Selection(), Pull.ALL)
    (excluded,) = plan.excluded
    assert isinstance(excluded, Excluded)
    assert excluded.why is Exclusion.OTHER_GPU
    (counts,) = count_products([Entry(cell=cell, excluded=excluded, evidence=Evidence.NONE)])
    assert headline(counts) == "0 TensorRT cells measured, 1 not run: 1 no such GPU in slurm.yaml"


def test_a_file_that_was_written_is_told_beside_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.md"
    show(make_parser().parse_args(["table", "-o", str(file), "--json"]), [])
    told = capsys.readouterr()
    assert told.err == f"trtmatrix: wrote {file}\n"
    assert isinstance(json.loads(told.out), dict)
    assert file.is_file()


def test_doctor_too_says_who_holds_the_shared_folder_that_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm.yaml").write_text(
        f"schema: 1\nshared: {tmp_path}\nruntime: docker\n"
        "gpus:\n  - name: NVIDIA H200\n    gres: gpu:h200:1\n"
    )
    told = list[str]()

    def look(site: Site, slurm: Slurm, folder: SharedFolder) -> SiteFacts:
        del slurm
        told.append(site.shared)
        folder.tell("waiting for the lock: node-a holds it")
        return SiteFacts(folder_trouble="no more of it here", away="no Slurm here")

    monkeypatch.setattr(slurm_doctor, "look_at_site", look)
    args = make_parser().parse_args(["doctor", "--executor", "slurm", "--site", str(tmp_path / "slurm.yaml")])
    slurm_doctor.examine_site(args, make_context(tmp_path))
    assert told == [str(tmp_path)]
    assert capsys.readouterr().err == "trtmatrix: waiting for the lock: node-a holds it\n"


def test_doctor_names_what_this_host_runs_beside_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_nowhere(monkeypatch, tmp_path)
    site = tmp_path / "slurm.yaml"
    site.write_text(EXAMPLE.replace("/shared/me/trtmatrix", str(tmp_path)))
    monkeypatch.setattr(slurm_doctor, "look_at_site", lambda *_: SiteFacts(away="no Slurm here"))
    words = ["doctor", "--executor=slurm", f"--site={site}", "--no-controls", "--json"]
    assert cli.run(words) == 3, "Slurm does not answer"
    lets = json.loads(capsys.readouterr().out)["can_run"]
    assert {line.split()[0].rpartition("-")[0] for line in lets} == {"onnxruntime", "tensorrt-rtx"}
    assert all(" on CPU: " in line for line in lets)
