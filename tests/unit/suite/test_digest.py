"""Digests of code: the same under every Python, deaf to what no run can see, and to nothing else."""

import re
from pathlib import Path

import pytest

from trtmatrix.suite.digest import PROBE, digest_code
from trtmatrix.suite.repro_files import APART

ROOT = Path(__file__).resolve().parents[3]

SAMPLE = '''\
"""A module."""
import os  # where files lie

FACTS = {"title": "one", "expectations": [{"cases": ["a"]}]}
LIMIT = 1.5e-3


def cases():
    yield {"id": "a", "params": {}}


def run(params, files, trt):
    """Run it."""
    y = f"{params['a']!r:>{LIMIT}} # no comment {{}}" + rb"\\"".decode() + 'é' + """
    text  # that stays
    """
    if y:
        return trt.run(
            y,
            os.sep,
        )
    return {}
'''
DIGEST = "3b392cf7015fe5c274f1c00c6cf6af4c9279d717204e0296b2917ef283b3e798"
"""Of the sample, under each Python that runs these tests."""


def digest(source: str) -> str:
    compile(source.removeprefix("\ufeff"), "sample", "exec")
    return digest_code(source, APART)


def changed(*pairs: tuple[str, str]) -> str:
    source = SAMPLE
    for old, new in pairs:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def test_the_sample_has_its_digest_under_every_python() -> None:
    assert digest(SAMPLE) == DIGEST


UNSEEN = {
    "comment in brackets": changed(("            y,", "            # first\n            y,  # y")),
    "broken lines": changed(("trt.run(\n            y,\n            os.sep,", "trt.run(y,\n os.sep,")),
    "line ends": SAMPLE.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + SAMPLE,
    "docstring of the module": changed(('"""A module."""', '"""Another\n\nmodule."""')),
    "docstring of a constant": changed(("LIMIT = 1.5e-3", 'LIMIT = 1.5e-3\n"""The limit."""')),
    "expectation": changed(('[{"cases": ["a"]}]', "[]")),
    "list of cases": changed(('{"id": "a", "params": {}}', '{"id": "b", "params": {"n": 1}}')),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_run_can_see_does_not_change_the_digest(name: str) -> None:
    assert digest(UNSEEN[name]) == digest(SAMPLE)


SEEN = {
    "number": changed(("1.5e-3", "1.5e-4")),
    "what looks like a comment in a string": changed((" # no comment", " # a comment")),
    "indentation": changed(("    return {}\n", "        return {}\n")),
    "a trailing comma": changed(("os.sep,", "os.sep")),
    "a decorator": changed(("def run", "@staticmethod\ndef run")),
}


@pytest.mark.parametrize("name", SEEN)
def test_all_else_changes_the_digest(name: str) -> None:
    assert digest(SEEN[name]) != digest(SAMPLE)
    assert len({digest(source) for source in SEEN.values()}) == len(SEEN)


@pytest.mark.parametrize(
    ("added", "change"),
    [
        ("print(FACTS)\n", ('"one"', '"two"')),
        ("def emulate(params):\n    return FACTS['title']\n", ('"one"', '"two"')),
        ("def prepare(params):\n    return cases\n", ('{"id": "a"', '{"id": "b"')),
        ("print(__doc__)\n", ("A module.", "Another.")),
    ],
)
def test_what_the_rest_of_a_repro_reads_counts(added: str, change: tuple[str, str]) -> None:
    assert digest(SAMPLE + added) != digest(changed(change) + added)
    assert digest(SAMPLE) == digest(changed(change))


def test_whatever_opens_builds_runs_or_measures_counts() -> None:
    """A new backend, or a module that one of those that count needs, is not forgotten."""
    probe = ROOT / "src" / "trtprobe"
    assert {f"backends/{file.stem}" for file in (probe / "backends").glob("*.py")} <= set(PROBE)
    needed = {
        name.replace(".", "/")
        for file in PROBE
        for name in re.findall(r"from trtprobe\.([a-z_.]+) import", (probe / f"{file}.py").read_text())
    }
    guarding = {"answer", "observe"}
    assert needed - {"backends"} <= set(PROBE) | guarding
