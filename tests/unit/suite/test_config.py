"""matrix.yaml: what is right reads as written, and every mistake is told with line and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import dotted, parse_yaml
from trtmatrix.suite.matrix import parse_matrix
from trtmatrix.suite.model import Product

ROOT = Path(__file__).resolve().parents[3]
GOOD = """\
schema: 1
sources:
  notes: {title: "release notes", url: "https://example.org"}
versions:
  - version: "10.7.0"
    product: tensorrt
    origin: {image: "example.org/tensorrt:10.7.0"}
    library: {value: "10.7.0.23", known: read, source: notes}
    driver: {least: "560", datacenter: ["470.57"], known: read, source: notes}
    compute: {min: "7.5", max: "9.0", known: read, source: notes}
"""
ENTRY = GOOD.split("versions:\n")[1]
IMAGE = '{image: "example.org/tensorrt:10.7.0"}'


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_matrix(text, "m.yaml")
    return caught.value.problems


def replaced(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_the_projects_own_matrix_reads() -> None:
    matrix = parse_matrix((ROOT / "matrix.yaml").read_text(encoding="utf-8"))
    names = [version.name for version in matrix.versions]
    assert {"8.5.3.1", "10.7.0", "10.8.0", "onnxruntime-1.31.1"} <= set(names)
    assert {version.product for version in matrix.versions} == set(Product)
    assert matrix.version("10.7.0").library.value == "10.7.0.23"
    for product in Product:
        releases = [version.release for version in matrix.versions if version.product is product]
        assert releases == sorted(releases)


MISTAKES = {
    "an unknown key beside the image": (
        replaced(IMAGE, '{image: "a:1", biuld: {}}'), 7, "versions[0].origin.biuld", "you meant 'build'",
    ),
    "no origin": (replaced(IMAGE, "{}"), 7, "versions[0].origin", "image, wheels and interpreter"),
    "two origins": (
        replaced(IMAGE, '{image: "a:1", wheels: [b]}'), 7, "versions[0].origin", "and no other of them",
    ),
    "unquoted 10.10": (replaced('"10.7.0"\n', "10.10\n"), 5, "versions[0].version", 'write "10.10"'),
    "double key": (GOOD + '    product: "tensorrt"\n', 11, "versions[0].product", "remove one"),
    "version twice": (GOOD + ENTRY, 11, "versions[1].version", "stands twice (first on line 5)"),
    "image without tag": (replaced(":10.7.0", ""), 7, "versions[0].origin.image", "needs a tag or a digest"),
    "a wheel that is an option": (
        replaced(IMAGE, '{wheels: ["--pre"]}'), 7, "versions[0].origin.wheels[0]", "no requirement",
    ),
    "unknown source": (
        replaced('"10.7.0.23", known: read, source: notes', '"10.7.0.23", known: read, source: note'),
        8, "versions[0].library.source", "perhaps you meant 'notes'",
    ),
    "missing field": (replaced("    library", "    torch"), 5, "versions[0].library", "is missing: write"),
    "schema of the future": (replaced("schema: 1", "schema: 2"), 1, "schema", "reads schema: 1; update"),
    "a library that is no number": (
        replaced('"10.7.0.23"', '"latest"'), 8, "versions[0].library.value", "no version number such as",
    ),
    "an unknown key that starts like a path": ("'[x': 1\n" + GOOD, 1, "[x", "unknown key"),
    "sources that are none": (replaced("\n  notes: {", " 5 # {"), 2, "sources", "key: value"),
    "a list at the top": ("- schema: 1\n", 1, "(top)", "key: value"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_file_line_key_and_remedy(name: str) -> None:
    text, line, key, remedy = MISTAKES[name]
    found = [problem for problem in problems_of(text) if problem.startswith(f"m.yaml:{line}: {key}: ")]
    assert any(remedy in problem for problem in found), problems_of(text)


def test_all_mistakes_are_told_at_once_in_order_of_line() -> None:
    text = replaced('"10.7.0"\n', "10.10\n").replace("    driver", "    drivr") + ENTRY + ENTRY
    text += "    compute: {}\nsources: {}\n"
    found = problems_of(text)
    lines = [int(problem.split(":")[1]) for problem in found]
    assert lines == sorted(lines)
    words = ["10.10", "drivr", "stands twice (first on line 11)", "compute: the key", "sources: the key"]
    assert all(any(word in problem for problem in found) for word in words), found
    assert len(found) == 5


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 12))


@given(st.text(max_size=60))
def test_any_text_reads_or_is_refused_with_its_file_and_line(text: str) -> None:
    problems: Sequence[str] = ()
    try:
        parse_yaml(text, "f.yaml")
    except ConfigError as error:
        problems = error.problems
    assert all(re.match(r"f\.yaml:\d+:", problem) for problem in problems)


@pytest.mark.parametrize("text", ["a: 1\r\nb: [2, x]\r\n", "\ufeffa: 1\nb: [2, x]\n"])
def test_line_ends_and_a_byte_order_mark_make_no_difference(text: str) -> None:
    document = parse_yaml(text, "f")
    assert document.value == {"a": 1, "b": [2, "x"]}
    assert (document.line_of(("b", 1)), document.line_of(("b", "nothing", 7))) == (2, 2)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the file is empty"),
        ("a: b\n\tc: d\n", 2, "YAML allows no tabs"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: &x\n  b: *x\n", 1, "an alias stands inside what it names"),
        (BOMB, 1, "multiply without end"),
        ("a: 1\nb: !!python/object/apply:os.system x\n", 2, "could not determine a constructor"),
        ("a: 2024-13-45\n", 1, "quote it if it is text"),
        ("a: &b {x: 1}\nc: {<<: *b}\n", 2, "merge keys (<<) are not read"),
        ("a: 1\n? [b, c]\n: d\n", 2, "a key must be plain text"),
        ("[" * 999 + "]" * 999, 1, "nested too deeply"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "m.yaml")
    problem = caught.value.problems[0]
    assert problem.startswith(f"m.yaml:{line}: ")
    assert words in problem
    assert "\n" not in problem


def test_what_is_no_text_to_yaml_is_remembered_as_written() -> None:
    document = parse_yaml('a: 10.10\nb: 10:30\nc: yes\nd: 2024-01-02\ne: "10.10"\nf: x\ng:\n', "f")
    written = {dotted(path): text for path, text in document.plain.items()}
    assert written == {"a": "10.10", "b": "10:30", "c": "yes", "d": "2024-01-02"}
    assert document.value["e"] == "10.10"
