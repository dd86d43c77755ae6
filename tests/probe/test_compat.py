"""The driver library that a cell loads: the image's own where the host names its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.probe.jobs import Job, Step
from trtprobe.__main__ import COMPAT, with_driver_library


def libcuda_of(python: Path, driver: Path, folder: Path, **environment: str) -> str:
    """Run a cell and return the driver library that its record says was loaded."""
    folder.mkdir()
    job = Job(folder, [Step(does="pass")])
    assert job.run(python, driver, **environment) == 0, job.log()
    record = job.record()
    assert record["ended"] == "ran", record["detail"]
    return str(record["observed"]["libcuda"])


def test_the_first_folder_that_has_one_goes_first(python: Path, driver: Path, tmp_path: Path) -> None:
    ours = tmp_path / "compat" / "lib.real"
    shutil.copytree(driver, ours)
    named = f"{tmp_path / 'nothing'}:{ours}:{driver}"
    loaded = libcuda_of(python, driver, tmp_path / "named", **{COMPAT: named})
    assert loaded == str(ours / "libcuda.so.1")


@pytest.mark.parametrize(("path", "after"), [("", ""), ("/a:/b", ":/a:/b")])
def test_the_image_s_own_path_is_kept_behind_it(tmp_path: Path, path: str, after: str) -> None:
    (tmp_path / "libcuda.so.1").touch()
    environment = {COMPAT: str(tmp_path), "LD_LIBRARY_PATH": path, "HOME": "/h"}
    assert with_driver_library(environment) == {"LD_LIBRARY_PATH": f"{tmp_path}{after}", "HOME": "/h"}
