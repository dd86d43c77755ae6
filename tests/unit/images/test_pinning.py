"""What is not locked is told once and loudly, or refused; the lock is written whole or not at all."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, make_cell, make_version
from locks import IMAGE, digest_of, lock_of, make_image, make_platform
from projects import matrix_text
from reprosource import write_project

from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.images.lock import FILES, check_pins, recipe_digest, update_lock
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform
from trtmatrix.plan.lockfile import Lock
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Launch

WHEEL = f"a==1.0 --hash=sha256:{'b' * 64}"
ROOT = Path(__file__).resolve().parents[3]
OURS = {"image": "trtmatrix/tensorrt:8.6.0", "build": {"base": IMAGE, "wheels": ["a==1.0"]}}
MATRIX = matrix_text(
    ("8.6.0", OURS, "8.6.0"), ("10.7.0", IMAGE, "10.7.0.23"),
    ("onnxruntime-1.31.1", {"wheels": ["onnxruntime==1.31.1"]}, "1.31.1"),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the files that images are made of."""
    shutil.copytree(ROOT / "docker" / "wheels", tmp_path / "docker" / "wheels")
    (tmp_path / "docker/wheels/locks/8.6.0.txt").write_text(WHEEL)
    return write_project(tmp_path, MATRIX, monkeypatch)


def opened(lock: Lock = Lock()) -> Context:  # noqa: B008 - frozen
    """The project, with a lock written beside it."""
    update_lock(Path("matrix.lock"), lambda _: lock)
    return open_context(ProjectOptions())


def whole_lock() -> Lock:
    """The lock that has all that the project's versions need."""
    return lock_of(make_image(platforms={own_platform(): make_platform()}))


def launches(context: Context, python: str | None = None) -> list[Launch]:
    return [
        Launch(version=v, gpu=H200, cells=(make_cell(version=v),), python=python)
        for v in context.matrix.versions
    ]


@pytest.mark.usefixtures("folder")
def test_what_is_not_locked_is_told_with_the_command_or_refused() -> None:
    context = opened()
    assert check_pins(context, launches(context), False) == [
        f"NOT LOCKED: 8.6.0: trtmatrix/tensorrt:8.6.0: its base {IMAGE} is not locked",
        f"NOT LOCKED: 10.7.0: {IMAGE} is whatever its tag stands for today",
        "  to lock: nox -s lock -- --trt 8.6.0,10.7.0 --update",
    ]
    assert check_pins(context, launches(context, python="/usr/bin/python3"), False) == []
    with pytest.raises(UsageError) as caught:
        check_pins(context, launches(context), True)
    for word in ("8.6.0: ", "10.7.0: ", "nox -s lock -- --trt 8.6.0,10.7.0 --update"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"recipe": "0" * 64}, {"recipe": ""},
        {"base": "a/b:1", "base-id": digest_of("8"), "base-digest": "none: made here"},
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_an_image_of_ours_that_is_here_must_be_made_of_the_locked_parts(changed: dict[str, str]) -> None:
    context = opened(whole_lock())
    looked, base_id = list[str](), make_platform().image_id
    contents = [(Path("docker/wheels") / name).read_bytes() for name in FILES]
    labels = {  # what docker/wheels/build writes
        "base": IMAGE, "base-id": base_id, "base-digest": f"nvcr.io/nvidia/pytorch@{digest_of('b')}",
        "recipe": recipe_digest(base_id, contents, [WHEEL]),
    }  # fmt: skip

    def look(name: str) -> tuple[str, dict[str, str]]:
        looked.append(name)
        return digest_of("1"), labels

    here = launches(context)
    assert check_pins(context, here, True, look) == check_pins(context, here, True, lambda _: None) == []
    assert looked == ["trtmatrix/tensorrt:8.6.0"]
    labels |= changed
    (line,) = check_pins(context, here, False, look)
    assert line.startswith("NOT LOCKED: 8.6.0: trtmatrix/tensorrt:8.6.0: ")
    assert line.endswith("built on another base, or from other wheels or files: nox -s image -- 8.6.0")
    with pytest.raises(UsageError, match=r"nox -s image -- 8\.6\.0"):
        check_pins(context, here, True, look)
    to_build = [replace(launch, build=True) for launch in here]
    assert check_pins(context, to_build, True, look) == []


@pytest.mark.usefixtures("folder")
def test_another_platform_s_lock_is_none_and_a_digest_in_the_name_is_one() -> None:
    context = opened(lock_of(make_image(platforms={"linux/other": make_platform()})))
    (line, *_) = check_pins(context, launches(context)[1:], False)
    assert line == f"NOT LOCKED: 10.7.0: {IMAGE} is not locked for {own_platform()}"
    by_digest = replace(make_version(), origin=ImageOrigin(image=f"{IMAGE}@{digest_of('a')}"))
    assert check_pins(context, [Launch(version=by_digest, gpu=H200, cells=())], True) == []


@pytest.mark.parametrize("value", ["http://my.mirror/nvidia", "a b"])
def test_a_mirror_that_is_none_is_refused_by_the_setting_s_name(
    value: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"the registry .* is none"):
        open_context(ProjectOptions(registry=value))
    monkeypatch.setenv("TRTMATRIX_REGISTRY", value)
    with pytest.raises(UsageError, match=r"the registry .* is none"):
        open_context(ProjectOptions())
    monkeypatch.delenv("TRTMATRIX_REGISTRY")
    (folder / "matrix.yaml").write_text(f'{{"registry": "{value}",{MATRIX[1:]}')
    with pytest.raises(TrtMatrixError, match="registry"):
        open_context(ProjectOptions())
    (folder / "matrix.yaml").write_text(MATRIX)
    context = open_context(ProjectOptions(registry="my.mirror:5000/nvidia/"))
    assert context.matrix.registry == "my.mirror:5000/nvidia/"


def test_wheels_without_a_hash_are_told_by_a_run(folder: Path) -> None:
    context = opened(whole_lock())
    (folder / "docker/wheels/locks/8.6.0.txt").write_text("")
    (line, *_) = check_pins(context, launches(context), False)
    assert line.startswith("NOT LOCKED: 8.6.0: ")
    assert line.endswith("no SHA-256 is known of a==1.0 (nox -s image -- 8.6.0 --lock)")
