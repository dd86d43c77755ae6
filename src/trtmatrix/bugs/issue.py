"""``ISSUE.md``: upstream's own form, filled with what is known of one failing cell.

The forms in ``forms/`` are upstream's, to the letter, with places such as ``@GPU@``:
``.github/ISSUE_TEMPLATE`` of https://github.com/NVIDIA/TensorRT and https://github.com/pytorch/TensorRT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.manner import Kind
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import EVIDENCE_MEANINGS, PRODUCT_NAMES
from trtmatrix.suite.model import Control, Evidence, Product, Verdict, release_of
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table

FORMS = Path(__file__).with_name("forms")

CAPTURE_FROM = "10.14"
"""The first release whose reports are asked for an API capture."""

PRECISIONS: Mapping[str, str] = {
    "tf32": "TF32 (the default: a float32 graph, TF32 allowed)", "fp32": "FP32 (TF32 off)",
    "fp16": "FP16 (a graph typed in float16)", "fp16-flag": "FP16 (a float32 graph and the FP16 flag)",
}  # fmt: skip

KINDS: Mapping[Kind, str] = {
    Kind.NOT_FINITE: "NaN", Kind.ZEROS: "All-zero output", Kind.DEFECT: "Accuracy", Kind.WRONG: "Accuracy",
    Kind.LIMIT: "Correctness", Kind.REMARK: "Fusion",
}  # fmt: skip

OUTPUT_HEADS = ("output", "relative L2 error", "in noise floors", "largest error", "NaN or infinite", "worst")
"""What stands over :attr:`Report.outputs`."""

CONTROL = (
    "> **A control, not a bug report**: a known defect was put into this graph on purpose, and the product "
    "is right to give what it gives. It shows that such a failure is found, and comes back."
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the text says.

    ``facts``: of the environment (:data:`trtmatrix.bugs.redact.ALLOWED`). ``outputs``: rows of markup.
    ``run``: the line that runs the archive, ``script``: what that runs where it is one file. ``tools``: tool
    → its lines. ``files``: name → what is in it. ``newest``: the newest release that is known of.
    """

    found: Found
    facts: Mapping[str, str]
    outputs: Sequence[Sequence[str]]
    archive: str
    run: str
    files: Mapping[str, str]
    tools: Mapping[str, Sequence[str]]
    script: str
    why_folder: str
    newest: str
    on_cpu: str

    @property
    def library(self) -> str:
        """The product with its version, in words."""
        version = self.facts.get("library") or self.found.entry.cell.version.name
        return f"{PRODUCT_NAMES[self.found.product]} {version}"

    @property
    def subject(self) -> str:
        """What was run, in words."""
        title = self.found.entry.cell.repro.title.removeprefix("your ")
        return (
            f"{title} ({self.found.case.id})" if self.found.own_model else f"{self.found.case.id} ({title})"
        )


def render_issue(report: Report) -> str:
    """Return ``Title: …``, an empty line and the form; without the script where GitHub would not take it."""
    text = _render(report, report.script)
    if len(text) > MOST_CHARACTERS:
        text = _render(report, "")
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 100] + "\n\n… (cut here: GitHub takes no longer text)\n"
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _render(report: Report, script: str) -> str:
    is_torch = report.found.entry.cell.repro.upstream.startswith("pytorch/TensorRT")
    return f"Title: {_title(report, is_torch=is_torch)}\n\n{_form(report, script, is_torch=is_torch)}"


def _title(report: Report, *, is_torch: bool) -> str:
    where = f"GPU {report.facts['gpu']}" if report.facts.get("gpu") else "the CPU"
    kind = KINDS.get(report.found.manner.kind) or report.found.manner.what.capitalize()
    product = report.library
    if is_torch:
        product = f"Torch-TensorRT {report.facts.get('torch_tensorrt', '')}".rstrip() + f" ({product})"
    title = f"{kind} failure of {product} when running {report.subject} on {where}"
    return " ".join(("\N{BUG} [Bug] " * is_torch + title).split())


def _form(report: Report, script: str, *, is_torch: bool) -> str:
    """Return upstream's form with its places filled."""
    facts, on_trt = report.facts, report.found.product is Product.TENSORRT
    none = "none" if on_trt else "none: it ran on the CPU"
    names = ("driver", "cuda", "cudnn", "python", "torch", "torch_tensorrt", "machine")
    capture = on_trt and release_of(facts.get("library") or "8") >= release_of(CAPTURE_FROM)
    compute = f" (compute capability {facts['compute']})" if "compute" in facts else ""
    places = {
        **{name.upper(): plain(facts.get(name) or none) for name in names},
        "LIBRARY": plain(facts.get("library", "") if on_trt else f"none, {report.library}"),
        "GPU": plain(facts["gpu"] + compute if "gpu" in facts else none), "CONTAINER": _container(report),
        "FILES": bullets(f"{code(name)}: {what}" for name, what in report.files.items()),
        "DESCRIPTION": _description(report), "COMMANDS": _commands(report, script), "LATEST": _latest(report),
        "FRAMEWORKS": plain(report.on_cpu) or "Not tried.",
        "CAPTURE": _read_form("capture") if capture else "",
    }  # fmt: skip
    form = _read_form("pytorch" if is_torch else "nvidia")
    return re.sub("@([A-Z_]+)@", lambda found: places[found[1]], form)


def _read_form(name: str) -> str:
    return (FORMS / f"{name}.md").read_text(encoding="utf-8")


def _description(report: Report) -> str:
    """Return what fails, by how much, against what, since when, and what helps."""
    repro, record = report.found.entry.cell.repro, report.found.record
    helps = [
        plain(f"{item.what} ({item.source})" if item.source else item.what) for item in repro.workarounds
    ]
    source = ""
    if not report.found.own_model and "#" in repro.upstream:
        source = f"First reported as {link(repro.url, repro.upstream)}."
    parts = [
        CONTROL if report.found.case.control is Control.NEGATIVE else "",
        _what(report),
        fence(record.detail[-4000:]).replace("```sh", "```text", 1) if record.ended != RAN else "",
        table(OUTPUT_HEADS, report.outputs) if report.outputs else "",
        _reference(report),
        _since(report),
        f"**What helps**:\n\n{bullets(helps)}" if helps else "",
        f"**Background**: {plain(repro.summary)} {source}".rstrip() if repro.summary else "",
        fold(f"This case at {len(_known(report))} versions", _versions(report)) if _known(report) else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _what(report: Report) -> str:
    """Return the first sentences: a reader who stops here knows what fails, and how often."""
    outcome = report.found.entry.outcome
    count, failed = (outcome.builds, outcome.failed) if outcome else (0, 0)
    often = ""
    if count and report.found.record.ended == RAN:
        often = f" in each of {count} builds" if failed >= count else f" in {failed} of {count} builds"
    built = ""
    if report.found.product is Product.TENSORRT and report.found.case.precision:
        built = (
            f"Built as {plain(PRECISIONS.get(report.found.case.precision, report.found.case.precision))}. "
        )
    when = f", measured on {plain(report.facts['date'])}" if report.facts.get("date") else ""
    why = plain(report.found.manner.words).rstrip(".")
    return (
        f"**{plain(report.library)} fails on {plain(report.subject)}**{often}: {why}. "
        f"{built}Cell {code(str(report.found.entry.cell.id))}{when}."
    )


def _reference(report: Report) -> str:
    """Return against what it is compared, and why that is right."""
    by = "ONNX Runtime" if report.found.own_model else "NumPy, from the mathematics of the case written out,"
    words = (
        f"**Why the reference is right**: {by} computed it in float64 on the CPU. "
        "One noise floor is the relative L2 error that rounding to the precision makes in it: a right "
        f"engine stays within {PASS_FACTOR:g} floors, from {FAIL_FACTOR:g} on it is wrong."
    )
    if report.found.manner.kind is Kind.DEFECT:
        words += " c is how much of a known defect's own change is in the error: 1 is exactly the defect."
    return words if report.outputs else ""


def _known(report: Report) -> list[Entry]:
    return [entry for entry in report.found.row if entry.evidence is not Evidence.NONE and entry.outcome]


def _since(report: Report) -> str:
    """Return since which version it fails, and whether an earlier or a later one is right."""
    decided = {Verdict.PASS: True, Verdict.FAIL: False, Verdict.FLAKY: False}
    known = [(e.cell.version.name, decided[e.outcome.verdict], e.evidence) for e in _known(report)
             if e.outcome and e.outcome.verdict in decided]  # fmt: skip
    names = [plain(name + " (reported)" * (by is Evidence.REPORTED)) for name, _, by in known]
    version = report.found.entry.cell.version.name
    here = next((i for i, (name, _, _) in enumerate(known) if name == version), None)
    if here is None:
        return ""
    before = next((i for i in range(here, -1, -1) if known[i][1]), None)
    after = next((i for i in range(here, len(known)) if known[i][1]), None)
    first = 0 if before is None else before + 1
    words = [f"right at {names[before]}"] if before is not None else []
    words.append(f"wrong at {names[first]}" + f" and still at {names[here]}" * (first < here))
    words += [f"right again at {names[after]}"] if after is not None else []
    words += ["no version is known to be right"] if before is None and after is None else []
    return f"**Since which version**: {', '.join(words)}."


def _versions(report: Report) -> str:
    rows, cell = [], report.found.entry.cell
    for entry in _known(report):
        outcome, name = entry.outcome, plain(entry.cell.version.name)
        source = entry.expectation.source if entry.expectation and entry.evidence is Evidence.REPORTED else ""
        evidence = link(source, "reported") if source else plain(EVIDENCE_MEANINGS[entry.evidence])
        cause = f" ({outcome.cause.value})" if outcome and outcome.cause else ""
        rows.append([
            f"**{name}** (this report)" if name == plain(cell.version.name) else name,
            plain((outcome.verdict.value if outcome else "–") + cause), plain(entry.figure),
            str(outcome.builds or "") if outcome else "", evidence,
        ])  # fmt: skip
    return table(("version", "verdict", cell.repro.figure.label or "figure", "builds", "evidence"), rows)


def _container(report: Report) -> str:
    name, image_id = report.facts.get("image", ""), report.facts.get("image_id", "")
    if not image_id:
        return "Baremetal"
    return f"Container: {plain(name)}, id {code(image_id)}" if name else f"Container: id {code(image_id)}"


def _commands(report: Report, script: str) -> str:
    """Return how to run it: by the script, in a container, by other tools; then the script itself."""
    folder = report.archive.removesuffix(".tar.gz")
    lines = [f"tar -xzf {report.archive} && cd {folder}", report.run]
    if image := report.facts.get("image"):
        gpus = "--gpus all " if report.facts.get("gpu") else ""
        lines.append(f'docker run --rm {gpus}-v "$PWD:/bug:ro" -w /bug --entrypoint "" {image} {report.run}')
    parts = [fence("\n".join(lines)), "Exit code: 1 the failure came back, 0 it did not, 125 cannot be said."]
    if report.why_folder:
        parts.append(plain(f"trtexec and Polygraphy cannot show it: {report.why_folder}."))
    parts += [
        f"The same engine by {name}:\n\n{fence(chr(10).join(lines))}" for name, lines in report.tools.items()
    ]
    if script:
        parts.append(fold("repro.py", fence(script.rstrip()).replace("```sh", "```python", 1)))
    elif report.script:
        parts.append("`repro.py` is in the archive: GitHub takes no text that holds it, too.")
    return "\n\n".join(parts)


def _latest(report: Report) -> str:
    """Return whether the latest release was tried; where it was not, what the newest was that was tried."""
    version = report.found.entry.cell.version.name
    tried = [e for e in report.found.row if e.record is not None and e.outcome is not None]
    name, outcome = (tried[-1].cell.version.name, tried[-1].outcome) if tried else (version, None)
    said = "this report" if name == version or outcome is None else outcome.verdict.value
    newest = (
        f" {plain(report.newest)} is the newest that is known of." if report.newest not in {"", name} else ""
    )
    head = "Yes:" if report.newest == name else "No. The newest that was tried is"
    return f"{head} {plain(name)} ({said}).{newest}"
