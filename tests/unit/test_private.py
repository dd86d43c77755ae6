"""What a host knows to be private: read from its files and its environment."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from trtmatrix.core.redact import Private, Secrets, redact
from trtmatrix.effects import private
from trtmatrix.effects.private import known_secrets, own_words, warnings


def of(**environment: str) -> Secrets:
    return known_secrets(environment=environment)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("MY_TOKEN", "q1w2e3r4", Private.TOKEN),
        ("DB_PASSWORD", "swordfish", Private.TOKEN),
        ("PIN_SECRET", "471108", Private.TOKEN),
        ("TEAM", "quantum-otter", Private.VARIABLE),
        ("BANNER", "welcome to Initech", Private.VARIABLE),
        ("PIP_INDEX_URL", "https://pypi.initech.example/simple", Private.VARIABLE),
        ("DATA", "/mnt/raid/orbital", Private.WORKSPACE),
        ("PYTHONPATH", "/usr/lib:/mnt/raid/orbital", Private.WORKSPACE),
        ("HOME", "/export/people/wilhelmina", Private.HOME),
        ("USER", "wilhelmina", Private.USER),
        ("SUDO_USER", "wilhelmina", Private.USER),
        ("HOSTNAME", "gpu-box-07.initech.example", Private.HOST),
    ],
)
def test_variables_are_taken_out_of_texts(name: str, value: str, kind: Private) -> None:
    found = redact(f"it says {value} here", of(**{name: value}))
    assert kind in found.counts
    assert value not in found.text
    assert found.text.startswith("it says")
    assert found.text.endswith("here")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TERM", "xterm-256color"), ("LANG", "en_US.UTF-8"), ("SHELL", "/usr/bin"), ("X", "1"), ("X", "true"),
        ("CUDA_VERSION", "12.6.3"), ("NVIDIA_TF32_OVERRIDE", "0"), ("OMP_NUM_THREADS", "1"),
        ("Y", "10.7.0.23"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("IMAGE", "tensorrt"), ("MODE", "container image"),
        ("API_KEY", ""), ("KEY", "no"), ("HOME", "/root"), ("USER", "root"), ("HOSTNAME", "localhost"),
    ],
)  # fmt: skip
def test_variables_that_say_nothing_are_no_secrets(name: str, value: str) -> None:
    was, now = of(), of(**{name: value})
    assert now == was


def test_passwords_and_hosts_of_addresses_are_known_by_themselves() -> None:
    secrets = of(HTTPS_PROXY="http://me:swordfish@proxy.initech.example:3128")
    text = "swordfish via proxy.initech.example and pypi.org"
    assert redact(text, secrets).text == "<secret> via <host> and pypi.org"
    assert redact("from github.com", of(U="https://github.com/o-o/q-q")).text == "from github.com"


def test_folders_are_known_as_given_and_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, link = tmp_path / "secret-real", tmp_path / "secret-link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.chdir("/")
    secrets = known_secrets([link], environment={})
    for path in (real, link):
        assert redact(f"{path}/x", secrets).text == "<workspace>/x"
    monkeypatch.chdir(real)
    assert redact(f"{real}/x", known_secrets(environment={})).text == "<workspace>/x"


@pytest.mark.parametrize("path", ["/opt/hush", "/usr/src/hush", "/var/lib/ci/hush", "/hush", "/mnt/hush/a"])
def test_a_folder_of_work_is_private_wherever_it_lies(path: str) -> None:
    assert redact(f"{path}/x.py", known_secrets([Path(path)], environment={})).text == "<workspace>/x.py"


@pytest.mark.parametrize("path", ["/", "/tmp", "/usr/local", "/workspace", "/home"])  # noqa: S108 - as above
def test_folders_of_everybody_are_not(path: str) -> None:
    assert path not in known_secrets([Path(path)], environment={}).workspaces


def test_this_host_is_taken_out_of_a_text() -> None:
    secrets = known_secrets()
    text = f"cwd {Path.cwd()} home {Path.home()} host={platform.node()} by {platform.node()}@"
    found = redact(text, secrets).text
    assert str(Path.cwd()) not in found
    assert f" {Path.home()} " not in found
    assert f"host={platform.node()}" not in found or platform.node() == "localhost"
    if Path("/etc/machine-id").exists() and (identity := Path("/etc/machine-id").read_text().strip()):
        assert redact(f"id {identity}", secrets).text == "id <serial>"


def test_names_that_are_ordinary_words_are_warned_of() -> None:
    secrets = known_secrets(environment={"USER": "engine", "HOSTNAME": "wopr-7"})
    told = " ".join(warnings(secrets))
    assert "'engine'" in told
    assert "wopr-7" not in told
    assert redact("the engine of engine@wopr-7", secrets).text == "the engine of <user>@<host>"


def test_the_programs_own_words_hold_its_files_and_no_secrets() -> None:
    words = own_words()
    assert {"sha256", "engine", "h200", "tensorrt", "measurements"} <= words
    assert not {"wilhelmina", "swordfish", "initech"} & words


def test_what_is_wanted_stays() -> None:
    secrets = known_secrets(environment={"MODEL": "zorblax-net"}, keep=["zorblax-net/tf32@10.7.0#h200"])
    assert redact("zorblax-net/tf32@10.7.0#h200", secrets).counts == {}
    assert redact("zorblax-net", secrets).text == "<environment>"
    assert "CAREFUL: zorblax-net/tf32@10.7.0#h200 holds something private" in " ".join(warnings(secrets))


def test_files_of_the_host_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "serial").write_text("PF3XQ1Z9\n")
    (tmp_path / "none").write_text("Not Specified\n")
    files = tuple(str(tmp_path / name) for name in ("serial", "none", "gone"))
    monkeypatch.setattr(private, "SERIALS", files)
    assert known_secrets(environment={}).serials[:1] == ("PF3XQ1Z9",)
    assert os.environ  # the process's own stay as they are
