"""matrix.yaml and repros: what is right reads, and each mistake is told with file, line and remedy."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reprosource import PLAIN, RULE, SOURCE, TWIN, parse, problems_of, replaced, with_key

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import parse_yaml
from trtmatrix.suite.matrix import parse_matrix
from trtmatrix.suite.model import Basis, Cause, Control, Product, Verdict, release_of
from trtmatrix.suite.repro_files import parse_repro, read_repros
from trtmatrix.suite.repros import specified

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


def mistakes_in(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_matrix(text, "m.yaml")
    return caught.value.problems


def edited(old: str, new: str) -> str:
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
        edited(IMAGE, '{image: "a:1", biuld: {}}'), 7, "versions[0].origin.biuld", "you meant 'build'",
    ),
    "no origin": (edited(IMAGE, "{}"), 7, "versions[0].origin", "either image or wheels"),
    "two origins": (
        edited(IMAGE, '{image: "a:1", wheels: [b]}'), 7, "versions[0].origin", "either image or wheels",
    ),
    "unquoted 10.10": (edited('"10.7.0"\n', "10.10\n"), 5, "versions[0].version", 'write "10.10"'),
    "double key": (GOOD + '    product: "tensorrt"\n', 11, "not valid YAML", "(first on line 6): remove one"),
    "version twice": (GOOD + ENTRY, 11, "versions[1].version", "stands twice: remove one"),
    "image without tag": (edited(":10.7.0", ""), 7, "versions[0].origin.image", "needs a tag or a digest"),
    "a wheel that is an option": (
        edited(IMAGE, '{wheels: ["--pre"]}'), 7, "versions[0].origin.wheels[0]", "should match",
    ),
    "unknown source": (
        edited('"10.7.0.23", known: read, source: notes', '"10.7.0.23", known: read, source: note'),
        8, "versions[0].library.source", "perhaps you meant 'notes'",
    ),
    "missing field": (edited("    library", "    torch"), 5, "versions[0].library", "is missing: write"),
    "schema of the future": (edited("schema: 1", "schema: 2"), 1, "schema", "must be 1"),
    "a library that is no number": (
        edited('"10.7.0.23"', '"latest"'), 8, "versions[0].library.value", "should match pattern",
    ),
    "an unknown key that starts like a path": ("'[x': 1\n" + GOOD, 1, "[x", "unknown key"),
    "sources that are none": (edited("\n  notes: {", " 5 # {"), 2, "sources", "valid dictionary"),
    "a list at the top": ("- schema: 1\n", 1, "(top)", "must be a dictionary"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_file_line_key_and_remedy(name: str) -> None:
    text, line, key, remedy = MISTAKES[name]
    found = [problem for problem in mistakes_in(text) if problem.startswith(f"m.yaml:{line}: {key}: ")]
    assert any(remedy in problem for problem in found), mistakes_in(text)


def test_all_mistakes_are_told_at_once_in_order_of_line() -> None:
    found = mistakes_in(edited('"10.7.0"\n', "10.10\n").replace("    driver", "    drivr") + "x: 1\n")
    lines = [int(problem.split(":")[1]) for problem in found]
    assert lines == sorted(lines)
    words = ["10.10", "drivr", "x: unknown key"]
    assert all(any(word in problem for problem in found) for word in words), found
    assert len(found) == 3


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
    assert [document.find(path)[0] for path in (("b", 1), ("b", "nothing", 7))] == [2, 2]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the file is empty"),
        ("a: b\n\tc: d\n", 2, "a tab character"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: 1\nb: !!python/object/apply:os.system x\n", 2, "could not determine a constructor"),
        ("a: 2024-13-45\n", 1, "month must be in 1..12"),
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


# A repro's text: what is right reads, and every mistake is told with file, line and remedy.
ROOT = Path(__file__).resolve().parents[3]


def test_the_projects_own_repros_read() -> None:
    loaded = {item.repro.id: item.repro for item in read_repros(ROOT / "repros")}
    assert "sdpa-scale" in loaded
    for repro in loaded.values():
        assert repro.cases
        assert any(case.control is Control.NEGATIVE for case in repro.cases), repro.id
        reported = [e for e in repro.expectations if e.basis is Basis.REPORTED]
        assert all(expectation.source for expectation in reported)


def test_everything_that_a_repro_says_is_kept() -> None:
    params = {"a": 1, "b": 1.5, "c": True, "d": "x"}
    repro = parse(SOURCE, {
        **PLAIN, "control": "negative", "products": ["tensorrt"], "needs": ["torch_tensorrt"],
        "params": params, "seconds": 5, "bug_is": ["build failed"], "dangerous": True,
    })  # fmt: skip
    (read,) = repro.cases
    assert (read.control, read.products) == (Control.NEGATIVE, frozenset({Product.TENSORRT}))
    assert (read.needs, read.bug_is) == (frozenset({"torch_tensorrt"}), frozenset({Cause.BUILD_FAILED}))
    assert (read.seconds, read.dangerous, parse().cases[0].dangerous) == (5.0, True, False)
    assert repr(dict(read.params)) == repr(params)
    (expectation,) = repro.expectations
    assert (expectation.verdict, expectation.basis) == (Verdict.FAIL, Basis.REPORTED)
    assert expectation.versions.contains(release_of("10.7.0"))
    assert (expectation.gpus, expectation.compute) == ((), specified())
    assert repro.workarounds[0].case == "plain"


FACTS_MISTAKES = {
    "syntax": (replaced('"a title",', '"a title'), 2, "not valid Python"),
    "wrong versions": (replaced('"==10.7.0"', '"=10.7"'), 1, "is no specifier such as '==10.7.0'"),
    "no cases": (replaced('"cases": ["plain"]', '"cases": []'), 1, "FACTS.expectations[0].cases: "),
    "reported by nobody": (replaced(', "source": "x"', ""), 1, "names who says so"),
    "no capability": (replaced('"basis"', '"compute": "8.9", "basis"'), 1, "is no specifier such as"),
    "a defect's name": (with_key('"defects": {"2": {"what": "x"}}'), 1, "should match pattern"),
    "a twin of no case": (with_key(TWIN % ("b", "")), 1, "FACTS.twins[0].cases[0]: 'b' fits no case"),
    "an attribute that is nothing": (
        with_key(RULE % "None"), 1, "attributes.keepdims[0]: must be text, a number, true or false",
    ),
    "work-around that is not there": (
        replaced('"case": "plain"', '"case": "plian"'), 1, "no case 'plian'; perhaps you meant 'plain'",
    ),
    "a work-around for no case": (
        replaced('"case": "plain"', '"case": "plain", "cases": ["b*"]'), 1,
        "FACTS.workarounds[0].cases[0]: 'b*' fits no case",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS_MISTAKES)
def test_a_mistake_in_facts_is_told_with_line_and_remedy(name: str) -> None:
    source, line, words = FACTS_MISTAKES[name]
    found = problems_of(source)
    assert any(text.startswith(f"r.py:{line}: ") and words in text for text in found), found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "Bad Id"}, "should match pattern"), ({"limits": {"x": float("nan")}}, "limits.x: "),
        ({"params": {"x": [1]}}, "params.x"), ({"params": {"x": float("nan")}}, "must be finite"),
        ({"builds": 0}, "builds: "), ({"products": ["tensorflow"]}, "products[0]: "),
        ({"bug_is": ["bild failed"]}, "bug_is[0]: "),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_in_a_case_is_told(change: dict[str, object], words: str) -> None:
    found = problems_of(SOURCE, {**PLAIN, **change})
    assert any(text.startswith("r.py:1: cases()[0]") and words in text for text in found), found
    assert "id" in change or len(found) == 1, "that its own expectations fit no case is not said"


@pytest.mark.parametrize(
    ("precision", "fields", "builds"),
    [
        ("fp16-flag", {}, 3), ("fp16-flag", {"builds": 1}, 1), ("fp16-flag", {"processes": 3}, 1),
        ("fp16", {}, 1),
    ],
)  # fmt: skip
def test_where_precision_varies_three_are_built(precision: str, fields: dict[str, Any], builds: int) -> None:
    (read,) = parse(SOURCE, {"id": "plain", "params": {"precision": precision}, **fields}).cases
    assert read.builds == builds


DEFECTS = with_key(
    '"defects": {"lost-scale": {"what": "one √scale lost", "upstream": "a/b#1"}, "lost-mask": {"what": "-"}}'
)
NOISE = ("precision", "batch")
PARAMS = {"precision": "tf32", "batch": 6, "level": 3}
NOISY: dict[str, Any] = {**PLAIN, "params": PARAMS, "defects": ["lost-scale"]}


@pytest.mark.parametrize(
    ("change", "noise", "emulates", "words"),
    [
        ({"defects": ["lost-scael"]}, NOISE, True, "perhaps you meant 'lost-scale'"),
        ({"defect": "lost-mask", "control": "negative"}, NOISE, True, "name it in defects"),
        ({"defect": "lost-scale"}, NOISE, True, "with control: negative"),
        ({"params": {"precision": "tf32"}}, NOISE, True, "nothing emulates them"),
        ({"processes": 3, "builds": 2}, NOISE, True, "several processes build once each"),
        ({}, None, True, "go together"), ({}, NOISE, False, "go together"),
        ({}, "precision", True, "go together"), ({}, ("batch",), True, "go together"),
        ({}, ("precision", "btach"), True, "go together"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_about_defects_or_noise_is_told(
    change: dict[str, object], noise: object, emulates: bool, words: str
) -> None:
    cases = ({**NOISY, **change}, {**NOISY, "id": "plain-2"})
    with pytest.raises(ConfigError) as caught:
        parse_repro(DEFECTS, "r.py", "a_b", cases, noise=noise, emulates=emulates)
    assert any(words in text and ("plain" in text or not change) for text in caught.value.problems)


def test_a_module_s_emulation_gives_its_cases_their_key(tmp_path: Path) -> None:
    source = SOURCE.replace('"n": 1', '"precision": "tf32"')
    emulate = "\n\ndef emulate(params, arithmetic, defect='', seed=0, small=False):\n    return {}\n"
    (tmp_path / "a.py").write_text(source + emulate + 'NOISE = ("precision",)\n')
    assert read_repros(tmp_path)[0].repro.cases[0].noise_key == "a:precision=tf32"
    (tmp_path / "a.py").write_text(source + emulate)
    with pytest.raises(ConfigError, match=r"emulate\(\) and NOISE = "):
        read_repros(tmp_path)


def test_mistakes_of_facts_and_cases_are_told_at_once() -> None:
    told = "\n".join(problems_of(replaced('"summary"', '"sumary"'), {**PLAIN, "limit": {}}, name="A b"))
    for words in (
        "the file's name",
        "FACTS.sumary: unknown key; perhaps you meant",
        "limit: unknown key; perhaps",
    ):
        assert words in told
    assert "the id 'plain' stands twice" in problems_of(SOURCE, PLAIN, PLAIN)[0]


LOADS_NOT = {
    "syntax": (SOURCE + "def\n", "not valid Python"),
    "import": ("import no_such_module_at_all\n" + SOURCE, ":1: does not load: ModuleNotFoundError"),
    "cases raise": (SOURCE.replace("    yield", "    1 / 0\n    yield"), ":15: does not load: ZeroDivision"),
    "cases of nothing": (SOURCE.replace("    yield {", "    {"), "does not load: TypeError"),
    "no prepare": (SOURCE.replace("def prepare", "def prepared"), "no function prepare()"),
}


@pytest.mark.parametrize("name", LOADS_NOT)
def test_a_file_that_does_not_load_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    source, words = LOADS_NOT[name]
    (tmp_path / "broken.py").write_text(source)
    (tmp_path / "fine.py").write_text(SOURCE)
    with pytest.raises(ConfigError) as caught:
        read_repros(tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path}/broken.py:")
    assert words in problem
    assert not list(tmp_path.rglob("__pycache__"))


def test_byte_order_marks_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a_b.py").write_bytes(("\ufeff" + SOURCE.replace("\n", "\r\n")).encode())
    (loaded,) = read_repros(tmp_path)
    assert loaded.repro == parse()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("_helper.py", ".hidden.py"), "no repro here: --repros names the folder"),
        (("My Repro.py",), "use small letters"), (("a-b.py",), "use small letters"),
    ],
)  # fmt: skip
def test_files_that_are_no_repros_are_told(files: tuple[str, ...], words: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("1 / 0\n" if name[0] in "_." else SOURCE)
    with pytest.raises(ConfigError, match=words):
        read_repros(tmp_path)
