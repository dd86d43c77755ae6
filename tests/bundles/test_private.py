"""Nothing private of host, environment, logs or paths is in an archive, which still shows the failure."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles.archives import read_files
from tests.bundles.conftest import WRONG, Made
from tests.models.conftest import Project

PLANTED = {
    "an IP address": "203.0.113.77",
    "an IPv6 address": "2001:db8:77::1f",
    "a MAC address": "02:42:ac:7e:00:9d",
    "an e-mail address": "jane.roe77@corp.example",
    "a GPU's UUID": "GPU-5d7ce17b-93f0-4d3b-9c77-3a1bd7dd7777",
    "a home path": "/home/jroe77/models/secret.onnx",
    "a token": "ghp_0123456789abcdefABCDEF0123456789abcd",
    "a URL's password": "https://jroe77:hunter2hunter2@host.example/x",
    "a key of the environment": "nvapi-77-abcdefghijklmnopqrstuvwxyz0123456789",
}


@pytest.fixture
def spied(made: Made, tmp_path: Path) -> Made:
    """Return a copy of the project whose record's log and environment name private things."""
    folder = tmp_path / "jroe77-project"
    shutil.copytree(made.project.folder, folder, symlinks=True)
    project = object.__new__(Project)
    project.folder, project.results = folder, folder / "results"
    other = replace(made, project=project, archive=folder / "a.tar.gz")
    file = other.record(WRONG)
    record = json.loads(file.read_text())
    record["log"] = "\n".join(
        [*PLANTED.values(), f"loaded {folder}/model/model.onnx on {socket.gethostname()}"]
    )
    record["environment"]["SOME_PATH"] = f"{folder}/data"
    file.write_text(json.dumps(record))
    return other


def test_nothing_private_is_in_an_archive_that_still_shows_the_failure(spied: Made) -> None:
    target = spied.archive
    secret = PLANTED["a key of the environment"]
    done = spied.call(
        "make", spied.cell, *spied.project.files, f"--to={target}", "--yes", "--json", NGC_API_KEY=secret,
    )  # fmt: skip
    assert done.code == 0, done.told
    assert done.data["verify"]["verified"]
    assert "Taken out: " in done.told
    text = b"\n".join([*read_files(target).values(), "\n".join(read_files(target)).encode()])
    for what, value in {**PLANTED, "the workspace": str(spied.project.folder)}.items():
        assert value.encode() not in text, what
    assert b"jroe77" not in text
    assert b"hunter2" not in text
    if getpass.getuser() != "root":  # which stands in every Dockerfile
        assert getpass.getuser().encode() not in text
