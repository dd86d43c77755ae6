"""A pack that is not as it was made is refused by name, before an engine or the disk sees any of it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from packs import IMAGE, IMAGE_BYTES, tree_of, write_pack

from trtmatrix import cli
from trtmatrix.core.errors import ExitCode
from trtmatrix.unpacker.pack_check import FIELDS, HEADER, MANIFEST, SCRIPT, SUMS, parse_manifest

Spoil = Callable[[Path], object]


class StandIn:
    """An engine that knows images by name and ID, and loads one that it is told of."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.held: dict[str, str] = {}
        self.loads = IMAGE.id
        self.error = ""
        self.loaded: list[bytes] = []
        self.asked: list[str] = []


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            stand_in.asked.append(self.path)
            image = unquote(self.path.removeprefix("/images/").removesuffix("/json"))
            found: Any = {"Id": stand_in.held.get(image)} if self.path != "/info" else {}
            self.answer(404 if found == {"Id": None} else 200, json.dumps(found))

        def do_POST(self) -> None:
            stand_in.asked.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            parts = urlsplit(self.path)
            if parts.path == "/images/load":
                stand_in.loaded.append(body)
                stand_in.held[stand_in.loads] = stand_in.loads
                self.answer(200, stand_in.error)
            else:
                words = re.fullmatch(r"repo=(.*)&tag=(.*)", unquote(parts.query))
                assert words is not None
                stand_in.held[f"{words[1]}:{words[2]}"] = unquote(parts.path.split("/")[2])
                self.answer(201, "")

        def answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield stand_in
        server.shutdown()


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    write_pack(tmp_path / "p", limit=4000, files={"matrix.yaml": b"schema: 1\n", "src/a.py": b"print()\n"})
    return tmp_path / "p"


def unpack(pack: Path, *words: str) -> int:
    return cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}", "--no-venv", *words])


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def of_another_pack(pack: Path) -> None:
    other = pack.parent / "other"
    write_pack(other, pack="20261122t999999-ffffffff", limit=4000)
    shutil.copyfile(other / "images.002", pack / "images.002")


def exchange(pack: Path) -> None:
    first, second = pack / "images.001", pack / "images.002"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def manifest_of(pack: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest and give it its digest: what is then refused is refused for what it says."""
    data = json.loads((pack / MANIFEST).read_text())
    change(data)
    text = json.dumps(data)
    (pack / MANIFEST).write_text(text)
    lines = (pack / SUMS).read_text().splitlines()
    new = [f"{sha256(text.encode()).hexdigest()}  {MANIFEST}" if MANIFEST in line else line for line in lines]
    (pack / SUMS).write_text("\n".join(new) + "\n")


SPOILT: dict[str, tuple[Spoil, str]] = {
    "a byte of a part": (lambda p: flip(p / "images.002", 2000), r"images\.002 differs"),
    "the last byte": (lambda p: flip(p / "images.003", -1), r"images\.003 differs"),
    "a byte of the suite": (lambda p: flip(p / "files.001", 600), r"files\.001 differs"),
    "a byte of a header": (lambda p: flip(p / "images.001", HEADER - 2), r"images\.001 (differs|is)"),
    "a byte of the manifest": (lambda p: flip(p / MANIFEST, -3), MANIFEST),
    "a byte of the digests": (lambda p: flip(p / SUMS, 3), SUMS),
    "a byte of the script": (lambda p: flip(p / SCRIPT, 300), "unpack differs"),
    "a part is missing": (lambda p: (p / "images.002").unlink(), r"images\.002 is missing"),
    "a part is cut": (
        lambda p: (p / "images.002").write_bytes((p / "images.002").read_bytes()[:-1]),
        r"images\.002 has 3,999 bytes",
    ),
    "of another pack": (of_another_pack, r"images\.002 is images\.002 of the pack 20261122t999999-ffffffff"),
    "two exchanged": (exchange, r"images\.001 is images\.002 of the pack 20261122t000000-00000001"),
    "one too many": (lambda p: shutil.copy(p / "images.001", p / "images.009"), r"images\.009 is extra"),
    "no manifest": (lambda p: (p / MANIFEST).unlink(), "writing it was cut off"),
    "no digests": (lambda p: (p / SUMS).unlink(), f"{SUMS} or {MANIFEST} cannot be used"),
    "a newer schema": (lambda p: manifest_of(p, lambda d: d.update(schema=2)), "of schema 2"),
    "a way out": (
        lambda p: manifest_of(p, lambda d: d["files"][0].update(name="../x")), r"'\.\./x' is no name"
    ),
    "a part elsewhere": (
        lambda p: manifest_of(p, lambda d: d["parts"][0].update(name="/etc/passwd")), "no name for a file"
    ),
    "other digests": (
        lambda p: manifest_of(p, lambda d: d["parts"][0].update(sha256="0" * 64)), "other digests of the"
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_pack_is_refused_by_name_before_anything_is_loaded(
    how: str, pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, told = SPOILT[how]
    spoil(pack)
    assert unpack(pack) == ExitCode.SURPRISE
    assert re.search(told, capsys.readouterr().err)
    assert engine.asked == []
    assert not (pack.parent / "into").exists()


@pytest.mark.parametrize("key", [key for key in FIELDS if key])
def test_every_field_of_a_manifest_must_be_there_and_no_other(key: str, pack: Path) -> None:
    text = (pack / MANIFEST).read_text()
    for name in [*FIELDS[""], *(f"{key}.{inner}" for inner in FIELDS[key])]:
        data = json.loads(text)
        outer, _, inner = name.partition(".")
        place = data[outer][0] if inner else data
        del place[inner or outer]
        with pytest.raises(ValueError, match=f"lacks {inner or outer}"):
            parse_manifest(json.dumps(data))
        place[inner or outer] = None
        with pytest.raises(ValueError, match=f"lacks {inner or outer}"):
            parse_manifest(json.dumps(data))
    data = json.loads(text)
    data[key][0]["more"] = 1
    with pytest.raises(ValueError, match="'more'"):
        parse_manifest(json.dumps(data))


def test_a_whole_pack_is_loaded_and_the_second_time_changes_nothing(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unpack(pack) == 0
    assert engine.loaded == [IMAGE_BYTES]
    assert engine.held == {IMAGE.id: IMAGE.id, "a/b:1": IMAGE.id}
    assert (pack.parent / "into" / "src" / "a.py").read_bytes() == b"print()\n"
    printed = capsys.readouterr().out
    assert "-m trtmatrix run --offline --trt onnxruntime-1.31.1" in printed
    before = tree_of(pack.parent / "into")
    assert unpack(pack) == 0
    assert (engine.loaded, tree_of(pack.parent / "into")) == ([IMAGE_BYTES], before)


def test_check_looks_at_every_byte_and_loads_nothing(pack: Path, engine: StandIn) -> None:
    assert unpack(pack, "--check") == 0
    assert (engine.asked, (pack.parent / "into").exists()) == ([], False)


def test_a_name_that_another_image_has_is_not_taken(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.held["a/b:1"] = "sha256:mine"
    assert unpack(pack) == ExitCode.USAGE
    assert "docker tag a/b:1 OTHER" in capsys.readouterr().err
    assert (engine.loaded, (pack.parent / "into").exists()) == ([], False)


def test_an_engine_that_loads_something_else_is_told_of(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.loads = "sha256:other"
    assert unpack(pack) == ExitCode.MACHINERY
    assert "containerd" in capsys.readouterr().err
    engine.error = '{"errorDetail": {"message": "no space"}, "error": "no space left on device"}'
    assert unpack(pack) == ExitCode.MACHINERY
    assert "no space left" in capsys.readouterr().err


def test_without_an_engine_the_rest_is_unpacked(
    pack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("trtmatrix.unpacker.pack_engine.SOCKETS", ("/nowhere.sock",))
    assert unpack(pack) == 0
    assert "THE IMAGES WERE NOT LOADED" in capsys.readouterr().out
    assert (pack.parent / "into" / "matrix.yaml").is_file()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "ssh://user@host"])
def test_an_engine_behind_a_network_is_refused(
    address: str, pack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    monkeypatch.setattr(socket, "socket", pytest.fail)
    assert unpack(pack) == ExitCode.USAGE
    assert "opens no connection" in capsys.readouterr().err


def test_a_file_that_somebody_changed_is_never_overwritten(
    pack: Path, engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    into = pack.parent / "into"
    (into / "results").mkdir(parents=True)
    (into / "results" / "mine.json").write_text("{}")
    (into / "matrix.yaml").write_text("mine")
    assert unpack(pack) == ExitCode.USAGE
    assert "other files of the same names (matrix.yaml)" in capsys.readouterr().err
    assert engine.loaded == []
    (into / "matrix.yaml").unlink()
    assert unpack(pack) == 0
    assert (into / "results" / "mine.json").read_text() == "{}"


def test_a_python_without_wheels_is_told_before_anything_is_loaded(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trtmatrix.unpacker.unpack_pack.shutil.which", lambda _: None)
    assert cli.run(["unpack", str(pack), f"--into={pack.parent / 'into'}"]) == ExitCode.USAGE
    assert "for Python 3.12" in capsys.readouterr().err
    assert engine.loaded == []


def test_nothing_is_loaded_where_the_disk_is_full(
    pack: Path, engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    assert unpack(pack) == ExitCode.MACHINERY
    assert "are free there" in capsys.readouterr().err
    assert engine.loaded == []
