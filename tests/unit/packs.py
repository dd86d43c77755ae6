"""Packs of a few bytes, as ``pack`` writes them, and a command that stands in for an engine's."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from trtmatrix.images.pack import FILES, IMAGES, PackedImage, write_lists, write_tar

SUITE = {"matrix.yaml": b"schema: 1\n", "src/a.py": b"print()\n"}
IMAGE_BYTES = bytes(range(256)) * 40
IMAGE = PackedImage(id=f"sha256:{'a' * 64}", names=("a/b:1",))

TOOLS = (
    "basename", "cat", "chmod", "cmp", "cut", "dirname", "find", "grep", "mkdir", "mktemp", "mv", "rm", "sed",
    "sha256sum", "tar", "timeout", "tr", "uname", "wc",
)  # fmt: skip
COMMAND = """\
#!{python} -IS
import hashlib, json, pathlib, sys
file = pathlib.Path({state!r})
state = json.loads(file.read_text())
words = sys.argv[1:]
state["asked"].append(words)
code = 0
print('level=warning msg="{{a warning"', file=sys.stderr)
if words[0] == "info":
    podman = "Host" in words[-1]
    print(state["info"])
    code = int(not state["info"] or podman != state["podman"])
elif words[0] == "image":
    held = state["held"].get(words[-1])
    print(held or "Error: No such image")
    code = int(held is None)
elif words[0] == "load":
    state["loaded"].append(hashlib.sha256(pathlib.Path(words[-1]).read_bytes()).hexdigest())
    if state["error"]:
        sys.exit(state["error"])
    state["held"][state["loads"]] = state["loads"]
elif words[0] == "tag":
    state["held"][words[2]] = words[1]
file.write_text(json.dumps(state))
sys.exit(code)
"""


class StandIn:
    """An engine that knows images by name and ID, and loads one that it is told of."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the only engine on PATH, beside the tools that the script needs; hold nothing."""
        self._file, self.bin = folder / "engine.json", folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.bin / tool).symlink_to(found)
        (self.bin / "python3").symlink_to(sys.executable)
        (self.bin / "docker").write_text(COMMAND.format(python=sys.executable, state=str(self._file)))
        (self.bin / "docker").chmod(0o755)
        self.set(info="linux/x86_64", podman=False, held={}, loads=IMAGE.id, error="", loaded=[], asked=[])
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.delenv("DOCKER_HOST", raising=False)

    def set(self, **facts: object) -> None:
        """Change what it is."""
        state = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._file.write_text(json.dumps({**state, **facts}))

    def __getattr__(self, name: str) -> Any:
        return json.loads(self._file.read_text())[name]


def write_pack(folder: Path, *, images: tuple[PackedImage, ...] = (IMAGE,)) -> None:
    """Write a pack with two files, and an image's stream that no engine would load."""
    source = folder.parent / f"{folder.name}-source"
    source.mkdir(parents=True)
    found = {}
    for number, (name, content) in enumerate(SUITE.items()):
        found[name] = source / str(number)
        found[name].write_bytes(content)
    folder.mkdir()
    write_tar(folder / FILES, found)
    if images:
        (folder / IMAGES).write_bytes(IMAGE_BYTES)
    facts = {
        "pack": "20261122t000000-00000001", "made": "2026-11-22T00:00:00+00:00", "by": "trtmatrix 0",
        "commit": "", "changed": "no", "platform": "linux/amd64", "python": "3.12",
        "version": "onnxruntime-1.31.1",
    }  # fmt: skip
    write_lists(folder, facts.items(), images)


def tree_of(folder: Path) -> dict[str, str]:
    """Return every file below a folder with its digest."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
