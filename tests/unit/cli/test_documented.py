"""Every command in the README and the documents is understood as pasted, and run where a host can."""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from nowhere import ROOT, go_nowhere
from onnxmodels import mlp, saved

from trtmatrix.cli import entry as cli
from trtmatrix.cli.entry import COMMANDS as PARSED
from trtmatrix.cli.entry import parse

PAGES = (ROOT / "README.md", ROOT / "docker" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
DOOR = re.compile(r"(?:\$ )?(?:pipx run )?(nox -s |python -m trtmatrix |trtmatrix |python -m bench\.)")

NOT_RUN = {
    r"run .*--executor slurm|doctor .*--executor slurm": "needs a cluster: tests/slurm",
    r"bundle|bisect|minimise": "needs a failing cell, and versions that run: tests/bundles, tests/containers",
    r"lock": "asks registries: tests/registry",
    r"pack|merge": "needs an engine, or what another host made: tests/pack",
    r"upgrade .*--(model|explain)": "a model of one's own is prepared by ONNX Runtime: tests/models",
}
"""A command of trtmatrix that is only parsed here → why, and what runs it."""
OTHER_SESSIONS = {
    "tests": "it is what runs this", "lint": "CI runs it", "bench": "takes minutes to hours",
    "image": "builds an image: tests/containers/test_recipes.py",
}  # fmt: skip
"""A session that is no command of trtmatrix → why it is not run here."""


def sessions() -> dict[str, tuple[str, ...]]:
    """Each session of the noxfile with the words that it calls trtmatrix with; none of the other ones."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and any("session" in ast.dump(d) for d in node.decorator_list):
            calls = [c for c in ast.walk(node) if isinstance(c, ast.Call) and ast.unparse(c.func) == "_call"]
            words = [a.value for c in calls for a in c.args if isinstance(a, ast.Constant)]
            found[node.name] = tuple(str(word) for word in words)
    return found


def commands_of(text: str) -> Iterator[str]:
    """Yield the commands in blocks and in code spans."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = (line.strip() for line in block.replace("\\\n", "").splitlines())
        yield from (line for line in lines if DOOR.match(line))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (span for span in re.findall(r"`([^`\n]+)`", prose) if DOOR.match(span))


def words_of(command: str) -> list[str]:
    """Return what trtmatrix is called with by a command, nothing by one of another program of ours.

    ``AssertionError`` where there is no such session, command, option or benchmark.
    """
    words = shlex.split(command.removeprefix("$ ").removeprefix("pipx run "), comments=True)
    if words[0] == "nox":
        name, _, version = words[2].rstrip(")").partition("(")
        known = sessions()
        assert name in known, f"{command}: there is no session {name}"
        assert len(words) == 3 or words[3] == "--", f"{command}: what is for trtmatrix comes after --"
        if not known[name]:
            assert name in OTHER_SESSIONS, command
            return []
        version_words = ["--trt", version] if version else []
        words = [*(w for w in known[name] if w != "--trt"), *version_words, *words[4:]]
    elif words[0] == "python" and words[2].startswith("bench."):
        module = ROOT / "bench" / words[2].removeprefix("bench.")
        assert module.with_suffix(".py").is_file() or module.is_dir(), f"{command}: no such benchmark"
        return []
    else:
        words = words[1:] if words[0] == "trtmatrix" else words[3:]
    try:
        parse(words)
    except SystemExit as end:
        if end.code:
            pytest.fail(f"{command}: not understood")
    return words


COMMANDS = {command: f"{page.name}: {command}" for page in PAGES for command in commands_of(page.read_text())}


RUN = set[tuple[str, ...]]()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with what the documents' examples name."""
    folder = tmp_path_factory.mktemp("documented")
    with pytest.MonkeyPatch.context() as patched:
        go_nowhere(patched, folder, "nvidia-*/8.6.0/controls")  # few: each command reads them all
        here = Path.cwd()
        saved(mlp(), here / "my.onnx")
        for name in ("samples", "src", "M"):
            (here / name).mkdir()
        np.savez(here / "samples" / "0.npz", x=np.zeros((1, 64), np.float32))
        (here / "src" / "build.py").write_text("import tensorrt as trt\nprint(trt.__version__)\n")
        yield here


@pytest.mark.parametrize("command", COMMANDS, ids=COMMANDS.values())
def test_a_command_as_pasted(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of(command)
    placeholder = any(word in {"A", "B", "DIR", "CELL", "CASE", "VERSION", "FILES", "…"} for word in words)
    if not words or placeholder or any(re.match(pattern, " ".join(words)) for pattern in NOT_RUN):
        return
    if tuple(words) in RUN:  # by another page, or by nox
        return
    RUN.add(tuple(words))
    monkeypatch.chdir(place)
    instead = {"run": ["--plan"], "operators": ["--no-run"]}.get(words[0], [])
    with patch.dict(os.environ):  # --engine sets it for what the command starts
        assert cli.run([*words, *instead]) not in {2, 3}, capsys.readouterr().err


@pytest.mark.parametrize("command", PARSED)
def test_the_example_in_each_command_s_help_is_understood(command: str) -> None:
    words_of(f"python -m trtmatrix {command} {PARSED[command].example}".strip())


def test_the_first_table_is_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = (ROOT / "README.md").read_text().split("```\n")[1]
    command, shown = block.split("\nTensorRT on ", maxsplit=1)
    words = shlex.split(command.removeprefix("$ python -m trtmatrix ").replace("\\\n", ""))
    go_nowhere(monkeypatch, tmp_path)
    assert cli.run(words) == 0
    assert capsys.readouterr().out == f"TensorRT on {shown}"
