"""From a host with a network to one without: packed here, unpacked there by a bare Python, and run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import command, matrix_text

from tests.containers.conftest import IMAGE
from tests.pack.conftest import REPROS, FarHost, Untagged, call
from trtmatrix.images.lock import format_matrix_lock
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.plan.context import own_platform
from trtmatrix.plan.lockfile import Lock, LockedImage, LockedPlatform
from trtmatrix.suite.matrix import ImageOrigin, Pin

VERSIONS = "onnxruntime-1.30.0,onnxruntime-1.31,onnxruntime-1.31.1"


@pytest.fixture(scope="module")
def pack(untagged: Untagged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack an image with a name, one without, and wheels; removed at the end."""
    folder = tmp_path_factory.mktemp("near")
    columns = (
        ("onnxruntime-1.30.0", untagged.name, "1.30.0"),  # locked, and known by its ID alone
        ("onnxruntime-1.31", {"wheels": ["onnxruntime==1.31.1", "numpy"]}, "1.31.1"),  # there: an environment
        ("onnxruntime-1.31.1", IMAGE, "1.31.1"),  # not locked, known by its name
    )
    (folder / "matrix.yaml").write_text(matrix_text(*columns))
    platform = LockedPlatform(manifest=f"sha256:{'0' * 64}", image_id=untagged.id, layers=())
    locked = LockedImage(
        digest=f"sha256:{'0' * 64}", registry="127.0.0.1:1", platforms={own_platform(): platform},
        resolved="2026-11-22T00:00:00Z",
    )  # fmt: skip
    (folder / "matrix.lock").write_text(format_matrix_lock(Lock(images={untagged.name: locked})))
    done = call(folder, "pack", f"--to={folder / 'pack'}", f"--trt={VERSIONS}")
    assert done.returncode == 0, done.stderr
    return folder / "pack"


def script(pack: Path) -> list[str]:
    return ["sh", str(pack / "unpack"), f"--python={Path(sys.executable).resolve()}"]


def test_a_spoilt_pack_is_refused_and_the_engine_sees_none(pack: Path, far: FarHost, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(pack, spoilt)
    with (spoilt / "images.tar").open("r+b") as images:
        images.seek(10_000)
        images.write(b"another byte")
    before = far.images()
    done = far.run(*script(spoilt), f"--into={tmp_path / 'into'}")
    assert done.returncode == 1, done.stderr
    assert "images.tar differs" in done.stderr
    assert far.images() == before
    assert not (tmp_path / "into").exists()


def test_what_was_packed_here_runs_there_without_a_network(
    pack: Path, far: FarHost, untagged: Untagged, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert far.images() == {}
    links = far.run("cat", "/proc/net/dev").stdout
    assert [line.split(":")[0].strip() for line in links.splitlines()[2:]] == ["lo"]
    done = far.run(*script(pack))
    assert done.returncode == 0, done.stderr + done.stdout
    images = far.images()
    assert images.pop(untagged.id) == [], "it had no name, and gets none"
    assert list(images.values()) == [[IMAGE]]
    _, command = done.stdout.strip().splitlines()[-2:]
    assert command.strip().endswith(f"-m trtmatrix run --offline --trt {VERSIONS}")
    chosen = command.replace("onnxruntime-1.30.0,", "")  # nothing could run in that image
    ran = far.run("sh", "-c", f"{chosen} --case plain --memory=1g --json")
    assert ran.returncode == 0, ran.stderr
    cells = {c["version"]: c["verdict"] for c in json.loads(ran.stdout)["cells"] if c["case"] == "plain"}
    assert cells == {"onnxruntime-1.31": "PASS", "onnxruntime-1.31.1": "PASS"}, ran.stdout
    monkeypatch.setenv("DOCKER_HOST", far.address)
    pin = Pin(manifest=f"sha256:{'0' * 64}", ids=(untagged.id,))
    engine = find_engine(gpu_here=False)
    assert engine.held(ImageOrigin(image=untagged.name, pin=pin)) == untagged.id
    assert untagged.name not in engine.images
    again = far.run(*script(pack))
    assert again.returncode == 0, again.stderr
    assert "loading" not in again.stdout
    assert "making" not in again.stdout


def test_a_pack_that_is_interrupted_leaves_nothing(pack: Path, tmp_path: Path) -> None:
    near = pack.parent
    for name in ("matrix.yaml", "matrix.lock"):
        shutil.copy(near / name, tmp_path / name)
    line = command("pack", tmp_path, REPROS, f"--to={tmp_path / 'cut'}")
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    told = next(line for line in process.stderr if line.startswith("fetching"))
    assert "wheels" in told
    process.terminate()
    assert process.wait(60) == 130
    assert not (tmp_path / "cut").exists()
    assert not list(tmp_path.glob(".partial-*"))
