"""A cluster in a scene: its GPUs and images stand for this host's, and the CPU's columns stay here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_case, make_matrix, make_repro
from slurmdouble import BOARD, NODE
from slurmtries import leave_image
from test_cases import loaded

from trtmatrix import scene
from trtmatrix.cluster import NOT_HAD, Cluster, look_at, open_cluster, renewed
from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import Selection
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import Engine, Host, Pull
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.effects.gpu import GpuScan
from trtmatrix.effects.paths import Project
from trtmatrix.effects.shared_folder import SharedFolder

TRT, ORT = "10.7.0", "onnxruntime-1.31.1"


def make_context(folder: Path, **selected: tuple[str, ...]) -> Context:
    repro = make_repro(make_case("a"))
    project = Project(
        matrix=folder / "m.yaml", repros=folder, results=folder / "results", cache=folder / "cache"
    )
    return Context(
        project=project, matrix=make_matrix(TRT, "10.8.0", ORT), selection=Selection(**selected),
        repros={repro.id: replace(loaded(), repro=repro)}, pythons=(),
    )  # fmt: skip


def make_site(folder: Path, **images: str) -> Site:
    (folder / "shared").mkdir(exist_ok=True)
    return Site(
        shared=str(folder / "shared"), runtime=NodeRuntime.DOCKER, images=images, file="slurm.yaml",
        gpus=(SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"),),
    )  # fmt: skip


def open_in(folder: Path, context: Context, **images: str) -> tuple[Context, Cluster]:
    site = make_site(folder, **images)
    return open_cluster(context, site, SharedFolder(Path(site.shared)))


@pytest.fixture(autouse=True)
def _login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a GPU and without an engine."""
    monkeypatch.setattr(scene, "find_gpus", lambda: GpuScan(gpus=()))
    host = Host(engine=Engine(available=False, reason="no engine on a login node"))
    monkeypatch.setattr(scene, "find_host", lambda *_: host)


def test_nodes_run_tensorrt_and_this_host_the_rest(tmp_path: Path) -> None:
    context, cluster = open_in(tmp_path, make_context(tmp_path))
    looked = scene.look_around(context, Pull.ALL, cluster)
    ran = {(launch.version.name, launch.gpu.slug): launch for launch in looked.plan.launches}
    assert set(ran) == {(TRT, "nvidia-h200"), ("10.8.0", "nvidia-h200"), (ORT, "cpu")}
    assert [launch.gpu.remote for launch in ran.values()] == [True, True, False]
    assert looked.plan.excluded == ()


def test_an_image_is_had_for_who_names_its_version_as_on_one_host(tmp_path: Path) -> None:
    for selected, excluded in ({}, {Exclusion.IMAGE_NOT_PULLED}), ({"versions": (TRT,)}, set()):
        context, cluster = open_in(tmp_path, make_context(tmp_path, **selected))
        looked = scene.look_around(context, Pull.NAMED, cluster)
        assert {item.why for item in looked.plan.excluded} == excluded


def test_a_sites_own_image_needs_no_name_and_a_registrys_is_known_once_it_was_had(tmp_path: Path) -> None:
    context, cluster = open_in(tmp_path, make_context(tmp_path), **{TRT: "example.org/own:1"})
    looked = scene.look_around(context, Pull.NAMED, cluster)
    assert [launch.version.name for launch in looked.plan.launches] == [TRT, ORT]
    origin = looked.plan.launches[0].version.origin
    assert isinstance(origin, ImageOrigin)
    assert cluster.planned.engine.held(origin) == NOT_HAD
    digests = {cell.version: found for cell, found in scene.digests_now(context, looked).items()}
    assert "image" not in digests[TRT], "what is not known is not compared"
    key = cluster.key_of(looked.plan.launches[0].version)
    leave_image(cluster.folder.root, key, "example.org/own:1")
    after = renewed(context, cluster)
    assert after.host.engine.held(origin) == "sha256:1"
    digests = {
        cell.version: found
        for cell, found in scene.digests_now(context, replace(looked, cluster=after)).items()
    }
    assert digests[TRT]["image"] == "sha256:1"


def test_a_node_that_was_seen_says_what_its_gpu_is(tmp_path: Path) -> None:
    context, cluster = open_in(tmp_path, make_context(tmp_path))
    assert cluster.host.gpus[0].seen == ()
    with cluster.folder.lock():
        cluster.folder.note_node(NODE, BOARD, "2026-01-01T00:00:00Z")
    (gpu,) = look_at(context, cluster.site, cluster.folder, cluster.past).host.gpus
    assert gpu.is_seen("NVIDIA H200", "140 GiB", "580.159.04")


def test_a_file_that_the_site_names_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"10\.7\.0: /nowhere/a\.sif cannot be read"):
        open_in(tmp_path, make_context(tmp_path), **{TRT: "/nowhere/a.sif"})


def test_a_files_key_changes_with_the_file_and_not_while_a_run_lasts(tmp_path: Path) -> None:
    file = tmp_path / "a.tar"
    file.write_text("1")
    context, cluster = open_in(tmp_path, make_context(tmp_path), **{TRT: str(file)})
    version = context.matrix.versions[0]
    before = cluster.key_of(version)
    file.write_text("22")
    assert cluster.key_of(version) == renewed(context, cluster).key_of(version) == before
    assert open_in(tmp_path, make_context(tmp_path), **{TRT: str(file)})[1].key_of(version) != before
    file.unlink()
    assert cluster.key_of(version) == before


def test_interpreters_of_this_host_are_not_run_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--runtime host"):
        open_in(tmp_path, make_context(tmp_path, runtimes=("host",)))
