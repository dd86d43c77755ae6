"""``--offline``: what is refused, with which words; what a wheelhouse lacks."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engines import serving
from projects import ROOT, files_of, matrix_text, write_wheel

from trtmatrix.cli import entry as cli
from trtmatrix.common import offline
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network, without_network
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.launchers.wheels import find_lacking

REFUSED: dict[str, Callable[[], object]] = {
    "a connection": lambda: socket.create_connection(("192.0.2.1", 9)),
    "a name": lambda: socket.getaddrinfo("nvcr.io", 443),
}


@pytest.mark.parametrize("what", REFUSED)
def test_no_connection_gets_out(what: str) -> None:
    with without_network(), pytest.raises(MachineryError, match=r"^--offline: "):
        REFUSED[what]()


def test_sockets_of_this_host_are_used_and_all_are_again_afterwards(tmp_path: Path) -> None:
    with serving(tmp_path / "docker.sock"), without_network():
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(tmp_path / "docker.sock"))
        assert os.environ[offline.ENVIRONMENT] == "1"
    assert offline.ENVIRONMENT not in os.environ
    socket.socket(socket.AF_INET).close()
    need_network("nothing")


@pytest.mark.parametrize("address", ["tcp://192.0.2.1:2375", "ssh://user@192.0.2.1"])
def test_an_engine_over_a_network_is_refused_with_words(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    engine = find_engine(gpu_here=False, offline=True)
    assert not engine.available
    assert f"DOCKER_HOST is {address}, which is reached over the network" in engine.reason


OURS = f"cp{sys.version_info[0]}{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("wheels", "why"),
    [
        (("onnxruntime==1.31.1", "numpy"), ""),
        (("onnxruntime==1.31.2",), "onnxruntime==1.31.2"),
        (("runtime==1.0",), "buffers was not found in the provided package locations"),
        (("no requirement !",), "no requirement !"),
    ],
)
def test_what_a_wheelhouse_lacks_for_this_python(wheels: tuple[str, ...], why: str, tmp_path: Path) -> None:
    write_wheel(tmp_path, "numpy", "2.0.0", {})
    write_wheel(tmp_path, "onnxruntime", "1.31.1", {}, tag=f"{OURS}-{OURS}-linux_x86_64")
    write_wheel(tmp_path, "onnxruntime", "1.31.2", {}, tag="cp27-cp27m-linux_x86_64")
    write_wheel(tmp_path, "runtime", "1.0", {}, "buffers>=1", "old; python_version < '3'")
    words = find_lacking(tmp_path, wheels)
    assert words.startswith(f"{', '.join(wheels)}: not installed, and not in {tmp_path}: " if why else "")
    assert why in words
    assert bool(words) is bool(why)
    assert find_lacking(None, wheels) == f"{', '.join(wheels)}: not installed, and there is no wheelhouse"


def test_an_offline_run_installs_from_the_wheelhouse_that_is_named_else_from_the_project_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    column = ("onnxruntime-1.31.1", {"wheels": ["onnxruntime==1.31.1"]}, "1.31.1")
    (tmp_path / "matrix.yaml").write_text(matrix_text(column))
    words = ["run", "--plan", "--offline", "--trt", column[0], "--case", "controls/matmul-softmax-fp32"]

    def plan() -> str:
        cli.run([*words, *files_of(tmp_path, ROOT / "repros")])
        return capsys.readouterr().out

    named = tmp_path / "named"
    monkeypatch.delenv("TRTMATRIX_WHEELHOUSE", raising=False)
    assert "not installed, and there is no wheelhouse" in plan()
    write_wheel(tmp_path / "wheelhouse", "onnxruntime", "1.31.1", {})
    assert "on CPU: run 1 " in plan()
    monkeypatch.setenv("TRTMATRIX_WHEELHOUSE", str(named))
    assert "not installed, and there is no wheelhouse" in plan()
    named.mkdir()
    assert f"not installed, and not in {named}: " in plan()
    (tmp_path / "wheelhouse").rename(tmp_path / "elsewhere")
    write_wheel(named, "onnxruntime", "1.31.1", {})
    assert "on CPU: run 1 " in plan()
