"""Nothing private of host, environment, logs or paths is in an archive, which still shows the failure."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

UNIT = Path(__file__).resolve().parents[1] / "unit"
sys.path.insert(0, str(UNIT))

from planting import HOST, all_planted, as_log, said  # noqa: E402 - it lies beside the unit tests

from tests.bundles.archives import read_files  # noqa: E402
from tests.bundles.conftest import WRONG, Made  # noqa: E402
from tests.models.conftest import Project  # noqa: E402
from trtmatrix import cli  # noqa: E402
from trtmatrix.core.errors import ExitCode  # noqa: E402
from trtmatrix.core.redact import Secrets  # noqa: E402
from trtmatrix.effects import private  # noqa: E402

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


def test_none_of_forty_planted_secrets_goes_out_and_the_failure_still_comes_back(
    spied: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In environment, log and paths of a record; the host knows what that host would know of itself."""
    real = private.known_secrets

    def known(*given: Any, **more: Any) -> Secrets:
        here = real(*given, **more)
        both = {
            f.name: getattr(here, f.name) + getattr(HOST, f.name) for f in fields(HOST) if f.name in KNOWN
        }
        return replace(here, **both)

    file = spied.record(WRONG)
    record = json.loads(file.read_text())
    record["log"] = as_log()
    record["environment"] = {f"V{number}": said(secret) for number, secret in enumerate(all_planted())}
    record["observed"]["libcuda"] = "/home/zbigniew/lib/libcuda.so.1"
    file.write_text(json.dumps(record))
    monkeypatch.setattr(private, "known_secrets", known)
    monkeypatch.chdir(spied.project.folder)
    words = ["bundle", "make", spied.cell, *spied.project.files, f"--to={spied.archive}", "--yes"]
    assert cli.run(words) == ExitCode.AS_EXPECTED
    files = read_files(spied.archive)
    assert len(all_planted()) >= 40
    whole = b"\n".join([*files.values(), *(name.encode() for name in files)])
    assert [secret for secret in all_planted() if secret.encode() in whole] == []
    outcome = json.loads(spied.archive.with_name("a.tar.gz.verify.json").read_text())
    assert outcome["verified"], outcome["problems"]


KNOWN = ("users", "hosts", "domains", "homes", "workspaces", "serials", "tokens", "values")
