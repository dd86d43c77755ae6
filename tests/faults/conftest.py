"""The image of the real containers."""

import subprocess

import pytest

from tests.containers import conftest


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    subprocess.run([str(conftest.BUILD)], check=True)
