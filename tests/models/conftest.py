"""The exported models, the images, and a project of them; without torch or an engine all fail."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from tests.calling import Project
from tests.models import images

OLDER, CURRENT = f"onnxruntime-{images.OLDER_VERSION}", f"onnxruntime-{images.CURRENT_VERSION}"
RTX = "tensorrt-rtx-1.7"


def make_project(folder: Path, current: str = images.CURRENT) -> Project:
    columns = (
        (RTX, images.CURRENT, "1.7.1.116"), (OLDER, images.OLDER, images.OLDER_VERSION),
        (CURRENT, current, images.CURRENT_VERSION),
    )  # fmt: skip
    return Project(folder, columns)


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    images.make_older()
    images.make_defective()


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    from tests.models.export import write

    folder = tmp_path_factory.mktemp("exported")
    return lru_cache(maxsize=None)(lambda name: write(name, folder / name))
