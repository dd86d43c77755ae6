"""``ISSUE.md``: upstream's own form, filled with what is known of one failing cell.

The forms in ``forms/`` are upstream's, to the letter, with places such as ``@GPU@``:
``.github/ISSUE_TEMPLATE`` of https://github.com/NVIDIA/TensorRT and https://github.com/pytorch/TensorRT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.api.section import read_store
from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.manner import Kind
from trtmatrix.common.text import printable
from trtmatrix.judge.entry import PRODUCT_NAMES, full_words
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.numbers import judge_build, read_floors
from trtmatrix.judge.record import RAN
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
}  # fmt: skip

OUTPUT_HEADS = ("output", "relative L2 error", "in noise floors", "largest error", "NaN or infinite", "worst")

CONTROL = (
    "> **A control, not a bug report**: a known defect was put into this graph on purpose, and the product "
    "is right to give what it gives. It shows that such a failure is found, and comes back."
)


@dataclass(frozen=True, kw_only=True)
class Issue:
    """All that the text says.

    ``facts``: of the environment (:data:`trtmatrix.bugs.redact.ALLOWED`). ``run``: the line that runs the
    archive, ``script``: what that runs. ``trtexec``: lines that do the same. ``files``: name → what is in it.
    """

    found: Found
    facts: Mapping[str, str]
    archive: str
    run: str
    files: Mapping[str, str]
    trtexec: Sequence[str]
    script: str

    @property
    def library(self) -> str:
        """The product with its version, in words."""
        version = self.facts.get("library") or self.found.entry.cell.version.name
        return f"{PRODUCT_NAMES[self.found.product]} {version}"

    @property
    def subject(self) -> str:
        """What was run, in words."""
        title, case = self.found.entry.cell.repro.title.removeprefix("your "), self.found.case.id
        return f"{title} ({case})" if self.found.own_model else f"{case} ({title})"


def render_issue(report: Issue) -> str:
    """Return ``Title: …``, an empty line and the form; without the script where GitHub would not take it."""
    text = _render(report, report.script)
    if len(text) > MOST_CHARACTERS:
        text = _render(report, "")
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 100] + "\n\n… (cut here: GitHub takes no longer text)\n"
    return printable(text)


def _render(report: Issue, script: str) -> str:
    """Return the title and upstream's form with its places filled."""
    facts, on_trt = report.facts, report.found.product is Product.TENSORRT
    is_torch = report.found.entry.cell.repro.upstream.startswith("pytorch/TensorRT")
    none = "none" if on_trt else "none: it ran on the CPU"
    names = ("driver", "cuda", "cudnn", "python", "torch", "torch_tensorrt", "machine")
    capture = on_trt and release_of(facts.get("library") or "8") >= release_of(CAPTURE_FROM)
    compute = f" (compute capability {facts['compute']})" if "compute" in facts else ""
    container, image = "Baremetal", facts.get("image")
    if image_id := facts.get("image_id"):
        container = f"Container: {plain(image) + ', ' if image else ''}id {code(image_id)}"
    on_cpu = "; ".join(
        f"ONNX Runtime {e.record.observed.get('library')} on the CPU: {full_words(e.outcome)}"
        for e in report.found.others
        if e.cell.version.product is Product.ONNXRUNTIME and e.outcome and e.record
    )
    # Was the latest release tried, and if not, which was the newest that was?
    version, known = report.found.entry.cell.version.name, newest_known(report.found.product)
    tried = [e for e in report.found.row if e.record is not None and e.outcome is not None]
    name, outcome = (tried[-1].cell.version.name, tried[-1].outcome) if tried else (version, None)
    said = "this report" if name == version or outcome is None else outcome.verdict.value
    newest = f" {plain(known)} is the newest that is known of." if known not in {"", name} else ""
    head = "Yes:" if known == name else "No. The newest that was tried is"
    latest = f"{head} {plain(name)} ({said}).{newest}"
    places = {
        **{name.upper(): plain(facts.get(name) or none) for name in names},
        "LIBRARY": plain(facts.get("library", "") if on_trt else f"none, {report.library}"),
        "GPU": plain(facts["gpu"] + compute if "gpu" in facts else none), "CONTAINER": container,
        "FILES": bullets(f"{code(name)}: {what}" for name, what in report.files.items()),
        "DESCRIPTION": _description(report), "COMMANDS": _commands(report, script), "LATEST": latest,
        "FRAMEWORKS": plain(on_cpu) or "Not tried.",
        "CAPTURE": _read_form("capture") if capture else "",
    }  # fmt: skip
    where = f"GPU {facts['gpu']}" if facts.get("gpu") else "the CPU"
    kind = KINDS.get(report.found.manner.kind) or report.found.manner.what.capitalize()
    product = report.library
    if is_torch:
        product = f"Torch-TensorRT {facts.get('torch_tensorrt', '')}".rstrip() + f" ({product})"
    title = f"{kind} failure of {product} when running {report.subject} on {where}"
    title = " ".join(("\N{BUG} [Bug] " * is_torch + title).split())
    form = _read_form("pytorch" if is_torch else "nvidia")
    return f"Title: {title}\n\n" + re.sub("@([A-Z_]+)@", lambda found: places[found[1]], form)


def _read_form(name: str) -> str:
    return (FORMS / f"{name}.md").read_text(encoding="utf-8")


def _description(report: Issue) -> str:
    found, repro, record = report.found, report.found.entry.cell.repro, report.found.record
    helps = [
        plain(f"{item.what} ({item.source})" if item.source else item.what) for item in repro.workarounds
    ]
    source = ""
    if not found.own_model and "#" in repro.upstream:
        source = f"First reported as {link(repro.url, repro.upstream)}."
    outcome, often, built = found.entry.outcome, "", ""
    if outcome and outcome.builds and record.ended == RAN:
        count, failed = outcome.builds, outcome.failed
        often = f" in each of {count} builds" if failed >= count else f" in {failed} of {count} builds"
    if found.product is Product.TENSORRT and found.case.precision:
        built = f"Built as {plain(PRECISIONS.get(found.case.precision, found.case.precision))}. "
    when = f", measured on {plain(report.facts['date'])}" if report.facts.get("date") else ""
    parts = [
        CONTROL if found.case.control is Control.NEGATIVE else "",
        f"**{plain(report.library)} fails on {plain(report.subject)}**{often}: "
        f"{plain(found.manner.words).rstrip('.')}. {built}Cell {code(str(found.entry.cell.id))}{when}.",
        fence(record.detail[-4000:]).replace("```sh", "```text", 1) if record.ended != RAN else "",
        *_outputs(found),
        _since(found),
        f"**What helps**:\n\n{bullets(helps)}" if helps else "",
        f"**Background**: {plain(repro.summary)} {source}".rstrip() if repro.summary else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _outputs(found: Found) -> Iterator[str]:
    """Yield how each output of the first engine that fails stands to its reference, and why that is right."""
    if found.record.ended != RAN:
        return
    subject, builds = found.subject, found.record.builds
    build = next((b for b in builds if judge_build(b, subject).verdict is Verdict.FAIL), builds[0])
    floors, rows = read_floors(build, subject), []
    for name, x in build.outputs.items():
        numbers = [x.get("rel_l2"), floors.get(name), x.get("max_abs")]
        worst = f"{x['worst_y']:.6g} instead of {x['worst_r']:.6g}" if "worst_at" in x else ""
        shown = ["" if number is None else f"{number:.3g}" for number in numbers]
        rows.append([code(name), *shown, str(int(x.get("nan", 0)) + int(x.get("inf", 0))), worst])
    if not rows:
        return
    yield table(OUTPUT_HEADS, rows)
    by = "ONNX Runtime" if found.own_model else "NumPy, from the mathematics of the case written out,"
    words = (
        f"**Why the reference is right**: {by} computed it in float64 on the CPU. "
        "One noise floor is the relative L2 error that rounding to the precision makes in it: a right "
        f"engine stays within {PASS_FACTOR:g} floors, from {FAIL_FACTOR:g} on it is wrong."
    )
    if found.manner.kind is Kind.DEFECT:
        words += " c is how much of a known defect's own change is in the error: 1 is exactly the defect."
    yield words


def _since(found: Found) -> str:
    """Return since which version it fails, and whether an earlier or a later one is right."""
    decided = {Verdict.PASS: True, Verdict.FAIL: False, Verdict.FLAKY: False}
    known = [
        (e.cell.version.name, decided[e.outcome.verdict], e.evidence) for e in found.row
        if e.evidence is not Evidence.NONE and e.outcome and e.outcome.verdict in decided
    ]  # fmt: skip
    names = [plain(name + " (reported)" * (by is Evidence.REPORTED)) for name, _, by in known]
    version = found.entry.cell.version.name
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


def _commands(report: Issue, script: str) -> str:
    """Return how to run it: by the script, in a container, by other tools; then the script itself."""
    folder = report.archive.removesuffix(".tar.gz")
    lines = [f"tar -xzf {report.archive} && cd {folder}", report.run]
    if image := report.facts.get("image"):
        gpus = "--gpus all " if report.facts.get("gpu") else ""
        lines.append(f'docker run --rm {gpus}-v "$PWD:/bug:ro" -w /bug --entrypoint "" {image} {report.run}')
    parts = [fence("\n".join(lines)), "Exit code: 1 the failure came back, 0 it did not, 125 cannot be said."]
    if report.trtexec:
        parts.append("The same engine by trtexec:\n\n" + fence("\n".join(report.trtexec)))
    if script:
        parts.append(fold("repro.py", fence(script.rstrip()).replace("```sh", "```python", 1)))
    else:
        parts.append("`repro.py` is in the archive: GitHub takes no text that holds it, too.")
    return "\n\n".join(parts)


def newest_known(product: Product) -> str:
    """Return the newest release of TensorRT whose API is known; nothing of other products."""
    return max(read_store(), key=release_of, default="") if product is Product.TENSORRT else ""
