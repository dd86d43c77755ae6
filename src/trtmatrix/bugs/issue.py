"""``ISSUE.md``: upstream's own form, filled with what is known of one failing cell.

The form in ``forms/`` is upstream's, to the letter, with places such as ``@GPU@``:
``.github/ISSUE_TEMPLATE`` of https://github.com/NVIDIA/TensorRT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trtmatrix.api.section import read_store
from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.manner import Kind
from trtmatrix.common.archive import SUFFIX
from trtmatrix.common.text import printable
from trtmatrix.judge.entry import PRODUCT_NAMES, full_words
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import judge_build, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.suite.model import Control, Evidence, Product, Verdict, release_of
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table

FORM, CAPTURE = (Path(__file__).with_name("forms") / name for name in ("nvidia.md", "capture.md"))

CAPTURE_FROM = "10.14"
"""The first release whose reports are asked for an API capture."""

PRECISIONS: Mapping[str, str] = {
    "tf32": "TF32 (the default: a float32 graph, TF32 allowed)", "fp32": "FP32 (TF32 off)",
    "fp16": "FP16 (a graph typed in float16)", "fp16-flag": "FP16 (a float32 graph and the FP16 flag)",
}  # fmt: skip

KINDS: Mapping[Kind, str] = {
    Kind.NOT_FINITE: "NaN", Kind.ZEROS: "All-zero output", Kind.WRONG: "Accuracy",
}  # fmt: skip

FILES: Mapping[str, str] = {
    "ISSUE.md": "the issue: a title, then upstream's form", "repro.py": "builds, runs, compares: one script",
    "model.onnx": "the graph with its weights", "inputs.npz": "its inputs",
    "reference.npz": "the float64 reference of each output, and what a known defect adds to it",
}  # fmt: skip
"""What the files of an archive are."""

OUTPUT_HEADS = ("output", "relative L2 error", "in noise floors", "largest error", "NaN or infinite", "worst")

CONTROL = (
    "> **A control, not a bug report**: a known defect was put into this graph on purpose, and the product "
    "is right to give what it gives. It shows that such a failure is found, and comes back."
)


def render_issue(
    found: Found, facts: Mapping[str, str], archive: str, trtexec: Sequence[str], script: str
) -> str:
    """Return ``Title: …``, an empty line and upstream's form, without the script where it gets too long.

    ``facts``: of the environment (:data:`trtmatrix.bugs.redact.ALLOWED`). ``trtexec``: lines that do what
    the ``script`` does.
    """
    cell, on_trt, case = found.entry.cell, found.product is Product.TENSORRT, found.case.id
    library = f"{PRODUCT_NAMES[found.product]} {facts.get('library') or cell.version.name}"
    title = cell.repro.title.removeprefix("your ")
    subject = f"{title} ({case})" if found.own_model else f"{case} ({title})"
    none = "none" if on_trt else "none: it ran on the CPU"
    names = ("driver", "cuda", "cudnn", "python", "torch", "machine")
    capture = on_trt and release_of(facts.get("library") or "8") >= release_of(CAPTURE_FROM)
    compute = f" (compute capability {facts['compute']})" if "compute" in facts else ""
    image_id, image = facts.get("image_id"), f"{plain(facts['image'])}, " if "image" in facts else ""
    on_cpu = "; ".join(
        f"ONNX Runtime {e.record.observed.get('library')} on the CPU: {full_words(e.outcome)}"
        for e in found.others
        if e.cell.version.product is Product.ONNXRUNTIME and e.outcome and e.record
    )
    places = {
        **{name.upper(): plain(facts.get(name) or none) for name in names},
        "LIBRARY": plain(facts.get("library", "") if on_trt else f"none, {library}"),
        "GPU": plain(facts["gpu"] + compute if "gpu" in facts else none),
        "CONTAINER": f"Container: {image}id {code(image_id)}" if image_id else "Baremetal",
        "FILES": bullets(f"{code(name)}: {what}" for name, what in FILES.items()),
        "DESCRIPTION": _description(found, facts, library, subject), "LATEST": _latest(found),
        "FRAMEWORKS": plain(on_cpu) or "Not tried.",
        "COMMANDS": _commands(found, facts, archive, trtexec, script),
        "CAPTURE": CAPTURE.read_text(encoding="utf-8") if capture else "",
    }  # fmt: skip
    where = f"GPU {facts['gpu']}" if facts.get("gpu") else "the CPU"
    kind = KINDS.get(found.manner.kind) or found.manner.what.capitalize()
    title = " ".join(f"{kind} failure of {library} when running {subject} on {where}".split())
    form = re.sub("@([A-Z_]+)@", lambda place: places[place[1]], FORM.read_text(encoding="utf-8"))
    text = printable(f"Title: {title}\n\n{form}")
    if script and len(text) > MOST_CHARACTERS:
        return render_issue(found, facts, archive, trtexec, "")
    return text[:MOST_CHARACTERS]


def _latest(found: Found) -> str:
    """Say which was the newest release that was tried, and which is known of."""
    tried = [(e.cell.version.name, e.outcome.verdict.value) for e in found.row if e.record and e.outcome]
    name, said = tried[-1]
    known = newest_known(found.product)
    newest = f"{plain(known)} is the newest that is known of." if known not in {"", name} else ""
    return f"The newest that was tried is {plain(name)} ({said}). {newest}".rstrip()


def _description(found: Found, facts: Mapping[str, str], library: str, subject: str) -> str:
    repro, record = found.entry.cell.repro, found.record
    helps = [plain(f"{w.what} ({w.source})" if w.source else w.what) for w in repro.workarounds]
    source = ""
    if not found.own_model and "#" in repro.upstream:
        source = f"First reported as {link(repro.url, repro.upstream)}."
    outcome, often, built = found.entry.outcome, "", ""
    if outcome and record.ended == RAN and 0 < outcome.builds <= outcome.failed:
        often = f" in each of {outcome.builds} builds"
    if found.product is Product.TENSORRT and found.case.precision:
        built = f"Built as {plain(PRECISIONS.get(found.case.precision, found.case.precision))}. "
    when = f", measured on {plain(facts['date'])}" if facts.get("date") else ""
    parts = [
        CONTROL if found.case.control is Control.NEGATIVE else "",
        f"**{plain(library)} fails on {plain(subject)}**{often}: "
        f"{plain(found.manner.words).rstrip('.')}. {built}Cell {code(str(found.entry.cell.id))}{when}.",
        *_outputs(found), _since(found),
        f"**What helps**:\n\n{bullets(helps)}" if helps else "",
        f"**Background**: {plain(repro.summary)} {source}".rstrip() if repro.summary else "",
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def _outputs(found: Found) -> Iterator[str]:
    """Yield how each output of the first engine that fails stands to its reference, and why that is right.

    Where none ran: what was said.
    """
    if found.record.ended != RAN:
        yield fence(found.record.detail[-4000:]).replace("```sh", "```text", 1)
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
    if ", c = " in found.manner.words:
        words += " c is how much of a known defect's own change is in the error: 1 is exactly the defect."
    yield words


def _since(found: Found) -> str:
    """Return since which version it fails, and whether an earlier or a later one is right."""
    decided = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}
    known = [e for e in found.row if e.evidence is not Evidence.NONE and e.verdict in decided]
    names = [plain(e.cell.version.name + " (reported)" * (e.evidence is Evidence.REPORTED)) for e in known]
    right, here = [e.verdict is Verdict.PASS for e in known], known.index(found.entry)
    before = max((i for i in range(here) if right[i]), default=-1)
    after = next((name for name, is_right in zip(names[here:], right[here:], strict=True) if is_right), "")
    words = [f"right at {names[before]}"] if before >= 0 else []
    words.append(f"wrong at {names[before + 1]}" + f" and still at {names[here]}" * (before + 1 < here))
    words += [f"right again at {after}"] if after else []
    words += ["no version is known to be right"] if before < 0 and not after else []
    return f"**Since which version**: {', '.join(words)}."


def _commands(
    found: Found, facts: Mapping[str, str], archive: str, trtexec: Sequence[str], script: str
) -> str:
    """Return how to run it: by the script, in a container, by other tools; then the script itself."""
    run = "python3 repro.py" + " --onnxruntime" * (found.product is Product.ONNXRUNTIME)
    lines = [f"tar -xzf {archive} && cd {archive.removesuffix(SUFFIX)}", run]
    if image := facts.get("image"):
        gpus = "--gpus all " if facts.get("gpu") else ""
        lines.append(f'docker run --rm {gpus}-v "$PWD:/bug:ro" -w /bug --entrypoint "" {image} {run}')
    parts = [fence("\n".join(lines)), "Exit code: 1 the failure came back, 0 it did not, 125 cannot be said."]
    if trtexec:
        parts.append("The same engine by trtexec:\n\n" + fence("\n".join(trtexec)))
    if script:
        parts.append(fold("repro.py", fence(script.rstrip()).replace("```sh", "```python", 1)))
    return "\n\n".join(parts)


def newest_known(product: Product) -> str:
    """Return the newest release of TensorRT whose API is known; nothing of other products."""
    return max(read_store(), key=release_of, default="") if product is Product.TENSORRT else ""
