"""Images from wheels, built for real: from small stand-ins for NVIDIA's wheels, on a base like NVIDIA's."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pip
import pytest
from projects import write_wheel

from tests.containers.engines import INVENTS_DIGESTS
from trtmatrix.images.lock import format_matrix_lock
from trtmatrix.plan.context import own_platform
from trtmatrix.plan.lockfile import Lock, LockedImage, LockedPlatform

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "docker" / "wheels" / "build"
TEST_BASE, BASE = "trtmatrix/test-base:latest", "trtmatrix/test-ngc-base:latest"
IMAGE = "trtmatrix/test-wheels"
DOCKER = shutil.which("docker") or "docker"
SITE = "usr/local/lib/python3.11/dist-packages"

WHEELS = ("tensorrt-bindings==9.2.0.dev5", "tensorrt-libs==9.2.0.dev5", "nvidia-cudnn-cu12==8.9")


def entry(version: str, wheels: Sequence[str], python: str = "3.11") -> dict[str, Any]:
    build = {"base": BASE, "index": "INDEX", "wheels": list(wheels)}
    return {
        "version": version, "origin": {"image": f"{IMAGE}:{version}", "build": build},
        "library": {"value": version, "known": "measured", "source": "here"},
        "python": {"value": python, "known": "measured", "source": "here"},
    }  # fmt: skip


MATRIX = {
    "schema": 1,
    "sources": {"here": {"title": "This test"}},
    "versions": [
        entry("9.2.0", WHEELS),
        entry("9.3.0", WHEELS, python="3.10"),
        entry("9.1.0", ["tensorrt==9.1.0"]),
        entry("9.0.0", ["tensorrt-bindings==9.0.0"]),
        {**entry("8.6.1", WHEELS), "origin": {"image": BASE}},
    ],
}

# As NVIDIA's images have them: an older TensorRT with a Torch-TensorRT for it, constraints of pip that forbid
# every other version, and their own folders for libraries.
NGC = f"""\
FROM {TEST_BASE}
COPY site/ /{SITE}/
COPY constraint.txt /etc/pip/constraint.txt
ENV PIP_CONSTRAINT=/etc/pip/constraint.txt LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/usr/local/nvidia/lib64
"""


def write_sdist(folder: Path) -> None:
    """Write a package that leaves a mark where its build is begun."""
    mark = f"open({str(folder / 'it-was-run')!r}, 'w')"
    system = '[build-system]\nrequires = []\nbuild-backend = "mark"\nbackend-path = ["."]\n'
    folder.mkdir()
    with tarfile.open(folder / "tensorrt-9.1.0.tar.gz", "w:gz") as sdist:
        for name, text in (("pyproject.toml", system), ("mark.py", mark)):
            entry = tarfile.TarInfo(f"tensorrt-9.1.0/{name}")
            entry.size = len(text)
            sdist.addfile(entry, io.BytesIO(text.encode()))


def write_index(folder: Path) -> None:
    """Write an index of the stand-ins: bindings, libraries, cuDNN, and a package that is an sdist alone."""
    bindings = {"tensorrt_bindings/__init__.py": '__version__ = "9.2.0.dev5"\n'}
    libraries = {"tensorrt_libs/__init__.py": "", "tensorrt_libs/libnvinfer.so.9": "a stand-in"}
    parts = ("lib/libcudnn_cnn_train.so.8", "lib/libcudnn_adv_infer.so.8", "include/cudnn.h")
    cudnn = {f"nvidia/cudnn/{part}": "a stand-in" for part in parts}
    write_wheel(folder / "tensorrt-bindings", "tensorrt_bindings", "9.2.0.dev5", bindings)
    write_wheel(folder / "tensorrt-bindings", "tensorrt_bindings", "9.0.0", bindings)
    write_wheel(folder / "tensorrt-libs", "tensorrt_libs", "9.2.0.dev5", libraries)
    write_wheel(folder / "nvidia-cudnn-cu12", "nvidia_cudnn_cu12", "8.9", cudnn)
    write_sdist(folder / "tensorrt")
    for package in folder.iterdir():
        links = "".join(f'<a href="{file.name}">{file.name}</a>\n' for file in package.iterdir())
        (package / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>")


class Recipes:
    """A matrix.yaml, its locks and an index, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index, self.locks = folder, folder / "simple", folder / "locks"
        (folder / "matrix.yaml").write_text(json.dumps(MATRIX).replace("INDEX", self.index.as_uri()))
        write_index(self.index)
        self.locks.mkdir()
        self.lock("9.2.0", **self.hashes())

    def hashes(self) -> dict[str, str]:
        return {wheel: sha256(self.file(wheel).read_bytes()).hexdigest() for wheel in WHEELS}

    def file(self, wheel: str) -> Path:
        name = wheel.replace("-", "_").replace("==", "-")
        return self.index / wheel.partition("==")[0] / f"{name}-py3-none-any.whl"

    def lock(self, version: str, **hashes: str) -> None:
        lines = "".join(f"{wheel} --hash=sha256:{value}\n" for wheel, value in hashes.items())
        (self.locks / f"{version}.txt").write_text(f"# measured: by this test\n{lines}")

    def build(self, version: str, *words: str) -> subprocess.CompletedProcess[str]:
        files = [f"--matrix={self.folder / 'matrix.yaml'}", f"--locks={self.locks}"]
        return subprocess.run(
            [sys.executable, str(BUILD), version, *files, *words], capture_output=True, text=True, check=False
        )


def docker(*words: str) -> str:
    return subprocess.run([DOCKER, *words], capture_output=True, text=True, check=True).stdout.strip()


def images(name: str) -> list[str]:
    return docker("images", "--quiet", "--no-trunc", name).split()


def run_in(image: str, code: str) -> str:
    words = ["--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--user=12345:12345"]
    return docker("run", *words, "--entrypoint=python3", image, "-c", code)


@pytest.fixture(scope="module", autouse=True)
def _base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build the base; at the end remove it and what was built on it."""
    context = tmp_path_factory.mktemp("ngc")
    ours = Path(pip.__file__).parent
    shutil.copytree(ours, context / "site" / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    for name, version in (("tensorrt", "8.6.1"), ("torch_tensorrt", "2.2.0a0")):
        files = {f"{name}/__init__.py": f'__version__ = "{version}"\n'}
        shutil.unpack_archive(write_wheel(context / "wheels", name, version, files), context / "site", "zip")
    (context / "constraint.txt").write_text("tensorrt-bindings==8.6.1\ntensorrt-libs==8.6.1\n")
    (context / "Dockerfile").write_text(NGC)
    docker("build", "--quiet", "--network=none", f"--tag={BASE}", str(context))
    yield
    unnamed = ["image", "prune", "--force", f"--filter=label=io.trtmatrix.image.base={BASE}"]
    for words in (["rmi", "--force", *images(IMAGE)], unnamed, ["rmi", "--force", BASE]):
        subprocess.run([DOCKER, *words], capture_output=True, check=False)


@pytest.fixture
def recipes(tmp_path: Path) -> Recipes:
    return Recipes(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipes, subprocess.CompletedProcess[str]]:
    recipes = Recipes(tmp_path_factory.mktemp("built"))
    return recipes, recipes.build("9.2.0")


Built = tuple[Recipes, subprocess.CompletedProcess[str]]


@pytest.mark.engines
def test_the_image_has_the_name_that_matrix_yaml_gives_it_and_labels_say_what_went_in(built: Built) -> None:
    recipes, done = built
    assert done.returncode == 0, done.stderr
    (image,) = images(f"{IMAGE}:9.2.0")
    assert f"{IMAGE}:9.2.0 is built: {image}" in done.stdout
    labels = json.loads(docker("inspect", "--format={{json .Config.Labels}}", image))
    ours = {name.removeprefix("io.trtmatrix.image."): value for name, value in labels.items()}
    assert (ours["version"], ours["base"], ours["base-id"]) == ("9.2.0", BASE, images(BASE)[0])
    assert INVENTS_DIGESTS or ours["base-digest"] == "none: made here"
    hashes = {wheel: f"sha256:{value}" for wheel, value in recipes.hashes().items()}
    assert json.loads(ours["wheels"]) == hashes
    for wheel, value in hashes.items():
        assert f"{wheel} --hash={value}  (measured: by this test)" in done.stdout


@pytest.mark.usefixtures("built")
def test_any_user_can_import_it_with_nothing_of_the_base_s_own_and_nothing_that_no_cell_loads() -> None:
    code = "import os, numpy, tensorrt; print(os.getuid(), tensorrt.__version__, tensorrt.__file__)"
    assert run_in(f"{IMAGE}:9.2.0", code) == "12345 9.2.0.dev5 /opt/site/tensorrt.py"
    names = "sorted(d.name for d in m.distributions() if 'tens' in d.name)"
    code = f"import importlib.metadata as m; print(*{names})"
    assert run_in(BASE, code).split() == ["tensorrt", "torch_tensorrt"]
    assert run_in(f"{IMAGE}:9.2.0", code).split() == ["tensorrt_bindings", "tensorrt_libs"]
    path = run_in(f"{IMAGE}:9.2.0", "import os; print(os.environ['LD_LIBRARY_PATH'])").split(":")
    assert path[0] == "/opt/site/tensorrt", "the wheels first, then where the base has libraries"
    assert "/opt/site/tensorrt_libs" in path
    assert path[-3:] == ["/usr/local/cuda/compat/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib64"]
    assert "" not in path
    code = "import pathlib; print(*(p.name for p in pathlib.Path('/opt/site/nvidia/cudnn').rglob('*')))"
    assert run_in(f"{IMAGE}:9.2.0", code).split() == ["lib"]
    template = '{{index .Config.Labels "io.trtmatrix.image.recipe"}}'
    recipe = docker("inspect", f"--format={template}", f"{IMAGE}:9.2.0")
    assert docker("images", "--quiet", f"--filter=label=io.trtmatrix.image.unpacked={recipe}") == ""


LISTING = """\
import hashlib, pathlib
for path in sorted(pathlib.Path("/opt/site").rglob("*")):
    digest = hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()
    print(path, oct(path.stat().st_mode), path.stat().st_mtime_ns, digest)
"""


def test_a_second_build_finds_it_current(built: Built) -> None:
    recipes, _ = built
    assert recipes.build("9.2.0").stdout == f"{IMAGE}:9.2.0 is there and current\n"


def gather(recipes: Recipes) -> Path:
    folder = recipes.folder / "wheels"
    folder.mkdir()
    for file in recipes.index.rglob("*.whl"):
        shutil.copy(file, folder)
    return folder


def test_other_bytes_than_the_lock_has_are_refused(recipes: Recipes, built: Built) -> None:
    assert built[1].returncode == 0
    hashes = recipes.hashes()
    before = images(f"{IMAGE}:9.2.0")
    recipes.lock("9.2.0", **{**hashes, "tensorrt-libs==9.2.0.dev5": "0" * 64})
    for words in ((), ("--lock",)):
        done = recipes.build("9.2.0", *words)
        assert done.returncode == 3
        assert "gives other bytes than the lock allows; nothing is built" in done.stderr
        assert f"Expected sha256 {'0' * 64}" in done.stderr
        assert f"Got        {hashes['tensorrt-libs==9.2.0.dev5']}" in done.stderr
    assert images(f"{IMAGE}:9.2.0") == before


NGC_NAME = "127.0.0.1:1/nvidia/pytorch:23.11-py3"
"""A base by a name that no registry answers for: it is known by its ID in matrix.lock alone."""


def lock_base(recipes: Recipes, image_id: str) -> None:
    """Name the base otherwise, and lock it as an image of that ID."""
    text = json.dumps(MATRIX).replace(BASE, NGC_NAME).replace("INDEX", recipes.index.as_uri())
    (recipes.folder / "matrix.yaml").write_text(text)
    digest = f"sha256:{'a' * 64}"
    platform = LockedPlatform(manifest=digest, image_id=image_id, layers=())
    image = LockedImage(
        digest=digest, registry="127.0.0.1:1", resolved="2026-11-22T03:36:28Z",
        platforms={own_platform(): platform},
    )  # fmt: skip
    (recipes.folder / "matrix.lock").write_text(format_matrix_lock(Lock(images={NGC_NAME: image})))


def test_the_base_is_the_locked_one_whatever_its_name_stands_for(recipes: Recipes, built: Built) -> None:
    assert built[1].returncode == 0
    docker("tag", TEST_BASE, NGC_NAME)
    try:
        lock_base(recipes, images(BASE)[0])
        done = recipes.build("9.2.0")
        assert (done.returncode, done.stdout) == (0, f"{IMAGE}:9.2.0 is there and current\n"), done.stderr
        lock_base(recipes, f"sha256:{'b' * 64}")
        done = recipes.build("9.2.0")
        assert done.returncode == 3
        assert f"the base 127.0.0.1:1/nvidia/pytorch@sha256:{'a' * 64} cannot be had" in done.stderr
        (recipes.folder / "matrix.lock").unlink()
        done = recipes.build("9.2.0")
        assert f"NOT LOCKED: the base {NGC_NAME} is whatever its tag stands for today" in done.stdout
        assert "it has no pip" in done.stderr
    finally:
        docker("rmi", NGC_NAME)


def test_wheels_without_a_hash_are_refused_until_they_are_locked(recipes: Recipes, built: Built) -> None:
    assert built[1].returncode == 0
    lock = recipes.locks / "9.2.0.txt"
    lock.write_text("# nothing is known\n")
    done = recipes.build("9.2.0")
    assert done.returncode == 2
    assert "no SHA-256 in" in done.stderr
    assert "nox -s image -- 9.2.0 --lock takes them as they come" in done.stderr
    # From scratch, by a folder, as they come: the same image as from the index, by the hashes.
    listing = run_in(f"{IMAGE}:9.2.0", LISTING)
    assert "/opt/site/tensorrt_libs/libnvinfer.so.9 0o100644 1700000000000000000" in listing
    docker("rmi", f"{IMAGE}:9.2.0")
    first = recipes.build("9.2.0", "--lock", f"--wheels={gather(recipes)}")
    assert first.returncode == 0, first.stderr
    assert run_in(f"{IMAGE}:9.2.0", LISTING) == listing
    for wheel, value in recipes.hashes().items():
        assert f"{wheel} --hash=sha256:{value}\n" in lock.read_text()
        assert f"{wheel} --hash=sha256:{value}\n  trust on first use: " in first.stdout


REFUSED = {  # version → further words, the exit code, what is said
    "9.3.0": ((), 2, f"the base {BASE} cannot carry 9.3.0: it has Python 3.11, and matrix.yaml says 3.10"),
    "9.2.0": (("--base=127.0.0.1:1/nowhere:1",), 3, "the base 127.0.0.1:1/nowhere:1 cannot be had"),
    "9.1.0": (
        ("--lock",), 3,
        "wheels alone are taken: where a package is an sdist, name in matrix.yaml what it installs",
    ),
    "9.0.0": (("--lock", "--wheels=INDEX/tensorrt-bindings"), 3, "gets no name"),
}  # fmt: skip


@pytest.mark.parametrize("version", REFUSED)
def test_what_cannot_be_built_is_refused_and_no_sdist_is_run(version: str, recipes: Recipes) -> None:
    words, code, said = REFUSED[version]
    recipes.lock("9.3.0", **recipes.hashes())
    done = recipes.build(version, *(word.replace("INDEX", str(recipes.index)) for word in words))
    assert done.returncode == code
    assert said in done.stderr
    assert not (recipes.index / "tensorrt" / "it-was-run").exists()
    assert version in {"9.3.0", "9.2.0"} or images(f"{IMAGE}:{version}") == []
    assert not (recipes.locks / "9.1.0.txt").exists()
