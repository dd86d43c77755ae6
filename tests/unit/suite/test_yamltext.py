"""YAML's traps: aliases, tags, tabs, dates, numbers that lose digits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import dotted, parse_yaml

BOMB = "\n".join(
    ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
)


@given(st.text(max_size=60))
def test_any_text_reads_or_is_refused_with_its_file(text: str) -> None:
    try:
        parse_yaml(text, "f.yaml")
    except ConfigError as error:
        problems = error.problems
    else:
        problems = []
    assert all(problem.startswith("f.yaml:") for problem in problems)
    assert all(problem.split(":")[1].isdigit() for problem in problems)


@pytest.mark.parametrize("text", ["a: 1\nb: [2, x]\n", "a: 1\r\nb: [2, x]\r\n", "\ufeffa: 1\nb: [2, x]\n"])
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
        ("[" * 3000 + "]" * 3000, 1, "nested too deeply"),
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
