"""Pieces of an issue's text: what fails and by how much, what changes it, the versions, the files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtmatrix.core.bundle import facts
from trtmatrix.core.bundle.facts import ChangeLine, Failure, LeftOut, OutputLine, VersionLine
from trtmatrix.core.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.core.markdown import bullets, code, link, plain, table
from trtmatrix.core.model import Evidence, Verdict
from trtmatrix.core.words import EVIDENCE_MEANINGS

PRECISION_WORDS = {
    "tf32": "TF32 (the default: a float32 graph, TF32 allowed)", "fp32": "FP32 (TF32 off)",
    "fp16": "FP16 (a graph typed in float16)", "fp16-flag": "FP16 (a float32 graph and the FP16 flag)",
}  # fmt: skip

UNIT_WORDS = {"tf32": "TF32", "fp32": "FP32", "fp16": "FP16", "fp16-flag": "FP16"}


def shape_words(shape: Sequence[int]) -> str:
    """Return a shape as ``6×1568×384``."""
    return "×".join(map(str, shape)) or "scalar"


def worst_words(line: OutputLine) -> str:
    """Return the worst element as ``[4, 1003, 24]: 0.1407 instead of 0.1384``."""
    if line.worst_at is None or line.worst_y is None or line.worst_r is None:
        return ""
    place, rest = [], line.worst_at
    for extent in reversed(line.shape):
        rest, index = divmod(rest, extent) if extent else (rest, 0)
        place.append(index)
    where = ", ".join(map(str, reversed(place)))
    return f"[{where}]: {line.worst_y:.6g} instead of {line.worst_r:.6g}"


def outputs_table(lines: Sequence[OutputLine]) -> str:
    """Return how each output stands to its reference; nothing where none was measured."""
    if not lines:
        return ""
    heads = [
        "output",
        "type and shape",
        "relative L2 error",
        "in noise floors",
        "largest error",
        "NaN",
        "worst element",
    ]
    rows = [
        [
            code(line.name), plain(f"{line.dtype} {shape_words(line.shape)}"), _number(line.rel_l2),
            _number(line.floors), _number(line.max_abs), str(line.nan), plain(worst_words(line)),
        ]
        for line in lines
    ]  # fmt: skip
    return table(heads, rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def builds_words(failed: int, builds: int) -> str:
    """Return ``in each of 3 builds``, or how many of them."""
    if builds <= 0:
        return ""
    if builds == 1:
        return "in one build (no other was made)"
    return f"in each of {builds} builds" if failed >= builds else f"in {failed} of {builds} builds"


def reference_words(failure: Failure) -> str:
    """Return against what it is compared, and why that is right."""
    if not any(line.rel_l2 is not None for line in failure.outputs):
        return ""
    by = failure.reference_by or "the case's own mathematics, written out in NumPy"
    unit = UNIT_WORDS.get(failure.precision, failure.precision)
    words = f"**Reference**: {plain(by)}, in float64, so no product is compared with itself. "
    if any(line.floors is not None for line in failure.outputs):
        words += (
            f"One noise floor is the relative L2 error that rounding to {plain(unit)} alone makes in this "
            f"computation. A right engine stays within {PASS_FACTOR:g} floors; from {FAIL_FACTOR:g} on it is "
            "wrong, and below that where its error has the shape of a known defect. "
        )
    return words + (f"{plain(failure.on_cpu)}" if failure.on_cpu else "")


def since_words(failure: Failure) -> str:
    """Return since which version it fails, as far as it is known."""
    right = [line.version for line in failure.versions if line.verdict is Verdict.PASS]
    wrong = [line.version for line in failure.versions if line.verdict in {Verdict.FAIL, Verdict.FLAKY}]
    words = []
    if failure.nearest_good:
        words.append(f"{plain(failure.nearest_good)} is right, with the same graph, inputs and GPU")
    elif right:
        words.append(f"right at {plain(', '.join(right))} (evidence in the table below)")
    else:
        words.append("no version is known to be right")
    words.append(f"wrong at {plain(', '.join(wrong) or failure.version)}")
    return f"**Since which version**: {'; '.join(words)}."


CHANGE_HEADS = ("changed alone", "the failure", "figure", "builds")


def changes_table(lines: Sequence[ChangeLine]) -> str:
    """Return what each change does to the failure; what could not be measured says why below the table."""
    said = [line for line in lines if line.fails is not None]
    silent = [line for line in lines if line.fails is None]
    if not lines:
        return "**What changes it**: not measured."
    rows = [
        [plain(line.change), "stays" if line.fails else "**is gone**", plain(line.figure), str(line.builds)]
        for line in said
    ]
    parts = ["**What changes it**" + (":" if said else ": nothing could be measured.")]
    parts += [table(CHANGE_HEADS, rows)] if said else []
    parts += (
        [
            "Not known: "
            + "; ".join(f"{plain(x.change)} ({plain(x.why_not or x.reason)})" for x in silent)
            + "."
        ]
        if silent
        else []
    )
    return "\n\n".join(parts)


def versions_table(lines: Sequence[VersionLine], label: str) -> str:
    """Return what each version makes of the case, with the evidence for it."""
    heads = ["version", "verdict", label or "figure", "builds", "driver", "evidence", "image"]
    return table(heads, [_version_row(line) for line in lines])


def _version_row(line: VersionLine) -> list[str]:
    verdict = "" if line.verdict is None else line.verdict.value
    verdict += f" ({line.cause})" if line.cause else ""
    version = line.version + (f" ({line.library})" if line.library and line.library != line.version else "")
    evidence = plain(EVIDENCE_MEANINGS[line.evidence])
    if line.evidence is Evidence.REPORTED and line.source:
        evidence = link(line.source, "reported")
    shown = f"**{plain(version)}** (this report)" if line.is_this else plain(version)
    return [
        shown, plain(verdict or "–"), plain(line.figure), str(line.builds or ""), plain(line.driver),
        evidence, code(line.image) if line.image else "",
    ]  # fmt: skip


_FILES = (
    (facts.SCRIPT, "the repro in one file: it builds, runs and compares; Python 3.8, NumPy and the product alone"),
    (facts.RUN, "runs it in the same container image"),
    (facts.MODEL, "the graph; weights of its own are in it"),
    (facts.INPUTS, "the inputs, by the graph's names"),
    (facts.REFERENCE, "the reference"),
    (facts.BAD_OUTPUTS, "what this version gave"),
    (facts.GOOD_OUTPUTS, "what the nearest good version gave"),
    (f"{facts.RECORD}, {facts.GOOD_RECORD}", "all that was measured here, and at the nearest good version"),
    (f"{facts.POLYGRAPHY}, {facts.TRTEXEC}, {facts.LOADER}", "the same for these tools"),
    (f"{facts.EXPECTED}, {facts.DEFECTS}, {facts.EXTRA}, {facts.OTHERS}/", f"what {facts.SCRIPT} compares with, where the case has them"),
    (f"{facts.ENVIRONMENT}, {facts.LOG}, {facts.LAYERS}", "driver and clocks among it; the log; the engine's layers"),
    (f"{facts.IMAGE}/", "how the image is built, where it is in no registry"),
    (facts.SUMS, "SHA-256 of every file"),
)  # fmt: skip


def files_list() -> str:
    """Return what is in an archive; not every one has all of it."""
    return bullets(f"{', '.join(code(name) for name in names.split(', '))}: {what}" for names, what in _FILES)


def left_out_list(lines: Iterable[LeftOut]) -> str:
    """Return what is not in the archive, with digests."""
    return bullets(
        f"{code(line.name)}, {line.size:,} bytes, SHA-256 {code(line.sha256)}: {plain(line.why)}"
        for line in lines
    )
