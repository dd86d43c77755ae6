"""An issue fills upstream's form to the letter, and says what a maintainer asks first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from failures import CONTROL, EACH, ONNXRUNTIME, OWN, TORCH
from goldenfile import FOLDER, check_golden
from reportparts import LONG, ODD

from trtmatrix.core.bundle.facts import ChangeLine, Failure, Form, VersionLine
from trtmatrix.core.bundle.forms import choose_form, make_title
from trtmatrix.core.bundle.issue_parts import changes_table
from trtmatrix.core.bundle.render_issue import render_issue
from trtmatrix.core.markdown import MOST_CHARACTERS
from trtmatrix.core.model import Evidence, Verdict

GOLDEN = FOLDER / "bundle"


@pytest.mark.parametrize("name", EACH)
def test_sample(name: str) -> None:
    check_golden(f"ISSUE-{name}.md", render_issue(EACH[name]), GOLDEN)


UPSTREAM = {
    Form.NVIDIA: (
        "## Description", "## Environment", "**TensorRT Version**:", "**NVIDIA GPU**:",
        "**NVIDIA Driver Version**:", "**CUDA Version**:", "**CUDNN Version**:", "Operating System:",
        "Python Version (if applicable):", "Tensorflow Version (if applicable):",
        "PyTorch Version (if applicable):", "Baremetal or Container (if so, version):", "## Relevant Files",
        "**Model link**:", "## Steps To Reproduce", "**Commands or scripts**:",
        "**Have you tried [the latest release](https://developer.nvidia.com/tensorrt)?**:",
        "**Can this model run on other frameworks?** For example run ONNX model with ONNXRuntime "
        "(`polygraphy run <model.onnx> --onnxrt`):",
    ),
    Form.TORCH: (
        "##  Bug Description", "## To Reproduce", "Steps to reproduce the behavior:", "1. ", "1. ", "1. ",
        "## Expected behavior", "## Environment",
        "> Build information about Torch-TensorRT can be found by turning on debug messages",
        " - Torch-TensorRT Version (e.g. 1.0.0):", " - PyTorch Version (e.g. 1.0):", " - CPU Architecture:",
        " - OS (e.g., Linux):", " - How you installed PyTorch (`conda`, `pip`, `libtorch`, source):",
        " - Build command you used (if compiling from source):",
        " - Are you using local sources or building from archives:", " - Python version:", " - CUDA version:",
        " - GPU models and configuration:", " - Any other relevant information:", "## Additional context",
    ),
}  # fmt: skip
"""The lines of upstream's forms, in order, as `.github/ISSUE_TEMPLATE` of each repository has them."""

CAPTURE = (
    "**Attach the captured .json and .bin files from [TensorRT's API Capture tool](https://docs.nvidia.com/"
    "deeplearning/tensorrt/latest/inference-library/capture-replay.html) if you're on an x86_64 Unix system**"
)


@pytest.mark.parametrize("name", EACH)
def test_the_form_is_upstreams_to_the_letter(name: str) -> None:
    form, text = choose_form(EACH[name]), render_issue(EACH[name])
    wanted = list(UPSTREAM[Form.TORCH if form is Form.TORCH else Form.NVIDIA])
    if form is Form.NVIDIA_CAPTURE:
        wanted.insert(-1, CAPTURE)
    at = 0
    for label in wanted:
        found = re.compile(rf"^{re.escape(label)}", re.MULTILINE).search(text, at)
        assert found, label
        at = found.end()
    headings = [
        line for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines() if line.startswith("#")
    ]
    assert headings == [label for label in wanted if label.startswith("#")]
    assert re.search(r"@[A-Z_]+@", text) is None


@pytest.mark.parametrize("name", EACH)
def test_no_field_is_empty(name: str) -> None:
    text = render_issue(EACH[name])
    for label in UPSTREAM[choose_form(EACH[name]) if name == "torch" else Form.NVIDIA]:
        if label.endswith(":") and label != "Steps to reproduce the behavior:":
            value = text.partition(label)[2].strip().splitlines()[0]
            assert not value.startswith(("##", "**H", " -")), label


@pytest.mark.parametrize(
    ("failure", "library", "form"),
    [
        (CONTROL, "10.13.3.9", Form.NVIDIA),
        (CONTROL, "10.14.0.1", Form.NVIDIA_CAPTURE),
        (CONTROL, "11.4.0.106", Form.NVIDIA_CAPTURE),
        (CONTROL, "", Form.NVIDIA),
        (TORCH, "10.14.1.48", Form.TORCH),
        (ONNXRUNTIME, "11.31.1", Form.NVIDIA),
    ],
)
def test_which_form(failure: Failure, library: str, form: Form) -> None:
    changed = replace(failure, environment=replace(failure.environment, library=library))
    assert choose_form(changed) is form


def test_titles() -> None:
    assert make_title(OWN) == (
        "Accuracy failure of TensorRT 10.14.1.48 when running model decoder.onnx (fp16-0f1e2d) "
        "on GPU NVIDIA L4"
    )
    assert make_title(TORCH).startswith(
        "\N{BUG} [Bug] Output failure of Torch-TensorRT 2.5.0a0 (TensorRT 10.3.0.26)"
    )
    assert make_title(ONNXRUNTIME).endswith(" on the CPU")
    assert "\n" not in make_title(replace(CONTROL, title="a\nb"))
    assert render_issue(CONTROL).splitlines()[:2] == [f"Title: {make_title(CONTROL)}", ""]


def latest(newest: str, known: str, verdict: Verdict | None, words: str = "no login to NGC") -> str:
    others = (VersionLine(version="10.8.0", verdict=verdict),) if verdict else ()
    failure = replace(CONTROL, versions=others, latest=newest, newest_known=known, latest_words=words)
    return re.split(r"tensorrt\)\?\*\*: ", render_issue(failure))[1].splitlines()[0]


def test_the_latest_release() -> None:
    assert latest("10.8.0", "10.8.0", Verdict.PASS) == "Yes: 10.8.0 is right."
    assert latest("10.8.0", "10.8.0", Verdict.FAIL) == "Yes: 10.8.0 fails too."
    assert latest("8.6.0", "8.6.0", None).startswith("Yes: this is 8.6.0")
    assert latest("10.8.0", "11.4.0", Verdict.PASS) == (
        "No (11.4.0): no login to NGC. The newest that was tried, 10.8.0, is right."
    )
    assert latest("", "11.4.0", None) == "No (11.4.0): no login to NGC."
    assert latest("10.8.0", "10.8.0", Verdict.NO_VERDICT) == (
        "No (10.8.0): no login to NGC. The newest that was tried, 10.8.0, gave no answer (NO VERDICT)."
    )


def line(version: str, verdict: Verdict | None, evidence: Evidence = Evidence.MEASURED) -> VersionLine:
    return VersionLine(version=version, verdict=verdict, evidence=evidence, is_this=version == "10.7.0")


P, F, N = Verdict.PASS, Verdict.FAIL, None


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([line("10.7.0", F)], "wrong at 10.7.0, no version is known to be right"),
        ([line("10.5.0", P), line("10.7.0", F), line("10.8.0", P)],
         "right at 10.5.0, wrong at 10.7.0, right again at 10.8.0"),
        ([line("10.3.0", P), line("10.5.0", F), line("10.6.0", N), line("10.7.0", F)],
         "right at 10.3.0, wrong at 10.5.0, and still at 10.7.0"),
        ([line("10.3.0", F), line("10.5.0", P), line("10.7.0", F)], "right at 10.5.0, wrong at 10.7.0"),
        ([line("10.7.0", F), line("10.8.0", P, Evidence.REPORTED)],
         "wrong at 10.7.0, right again at 10.8.0 (reported)"),
        ([], "wrong at 10.7.0, no version is known to be right"),
    ],
)  # fmt: skip
def test_since_which_version(lines: list[VersionLine], wanted: str) -> None:
    failure = replace(CONTROL, version="10.7.0", versions=tuple(lines))
    assert f"**Since which version**: {wanted}." in render_issue(failure)


def test_what_changes_it() -> None:
    text = render_issue(CONTROL)
    assert "| TF32 off | stays | 6434 | 3 |" in text
    assert "Not known: one more output marked: /Softmax_output_0 (no such tensor in the network)." in text
    gone = replace(
        CONTROL, changes=(replace(CONTROL.changes[0], fails=False, verdict=Verdict.PASS, figure="1.1"),)
    )
    assert "| TF32 off | **is gone** | 1.1 | 3 |" in render_issue(gone)
    assert "**What changes it**: not measured." in render_issue(replace(CONTROL, changes=()))


def test_the_archives_own_files_are_listed_where_they_are_known() -> None:
    text = render_issue(
        replace(OWN, files=("ISSUE.md", "repro.py", "image/Dockerfile", "image/a.txt", "own.bin"))
    )
    assert "- `image`: how the image is built\n- `own.bin`\n" in text
    assert "`defects.npz`" not in text
    assert "is in the archive." not in text  # no outputs of the good version


def test_it_ends_in_how_to_reproduce() -> None:
    for failure in EACH.values():
        end = render_issue(failure).rpartition("**Reproduce with**:")[2]
        name = failure.archive_name
        assert f"tar -xzf {name}.tar.gz && cd {name} && sh reproduce.sh" in end


def test_figures_are_explained_where_they_are_used() -> None:
    assert "1 is exactly the defect" in render_issue(CONTROL)
    assert "1 is exactly the defect" not in render_issue(OWN)
    assert "rounding to TF32 alone" in render_issue(CONTROL)
    assert "rounding to its own precision alone" in render_issue(ONNXRUNTIME)


def test_an_issue_is_named_where_there_is_one() -> None:
    assert "First reported as [NVIDIA/TensorRT#4333]" in render_issue(CONTROL)
    assert "First reported" not in render_issue(replace(CONTROL, upstream="trtmatrix"))


def test_a_control_says_so_first() -> None:
    assert render_issue(CONTROL).partition("## Description")[2].strip().startswith("> **A control, not a bug")
    assert "A control" not in render_issue(OWN)


def odd_failure(text: str) -> Failure:
    """Every text of a failure is this one."""
    versions = tuple(
        replace(OWN.versions[0], version=f"10.{n}.0", reason=text, figure=text) for n in range(300)
    )
    return replace(
        OWN, title=text, summary=text, reason=text, manner=text, message=text, notes=(text,) * 3, on_cpu=text,
        workarounds=(text,), latest_words=text, reference_by=text, versions=versions,
        changes=(
            replace(CONTROL.changes[0], change=text, figure=text), replace(CONTROL.changes[2], why_not=text)
        ),
        environment=replace(OWN.environment, gpu=text, os=text, libcuda=text, variables={"A": text}),
    )  # fmt: skip


@pytest.mark.parametrize("text", [ODD, LONG, "@everyone #1 ```\n## Heading\n````", "@MODEL@"])
def test_texts_are_no_markup_and_it_is_never_too_long(text: str) -> None:
    shown = render_issue(odd_failure(text))
    assert len(shown) <= MOST_CHARACTERS
    assert shown.isprintable() or {c for c in shown if not c.isprintable()} == {"\n"}
    outside = re.sub(r"^(`{3,})\w+\n.*?^\1$", "", shown.partition("\n\n")[2], flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in re.sub(r"`[^`\n]*`", "", outside).replace("\\<", "")
    assert len(re.findall("^## ", outside, re.MULTILINE)) == 4
    for block in re.findall(r"(?:^\|.*\n)+", outside, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


def test_a_long_history_is_left_out_before_the_rest() -> None:
    many = tuple(replace(OWN.versions[0], version=f"10.{n}.0") for n in range(1000))
    text = render_issue(replace(OWN, versions=many))
    assert len(text) <= MOST_CHARACTERS
    assert "left out, as GitHub takes no longer text" in text
    assert "**Reproduce with**" in text


def test_a_capture_that_is_attached_is_named_and_only_both_of_its_files_are_one() -> None:
    own = replace(EACH["own"], files=(*EACH["own"].files, "calls.json", "calls.bin"))
    whole = render_issue(replace(own, attached=("calls.json", "calls.bin")))
    assert "`calls.json` and `calls.bin` are in the archive" in whole
    assert "Not attached" not in whole
    assert "Not attached" in render_issue(replace(own, attached=("calls.json",)))


def test_what_fails_otherwise_after_a_change_is_not_called_gone() -> None:
    base = ChangeLine(change="level 0", fails=False, verdict=Verdict.FAIL, reason="y: NaN", builds=3)
    text = changes_table([base, replace(base, change="level 5", verdict=Verdict.PASS, reason="")])
    assert "| level 0 | **fails otherwise**: y: NaN |" in text
    assert "| level 5 | **is gone** |" in text
