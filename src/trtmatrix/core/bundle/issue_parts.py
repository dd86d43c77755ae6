"""Pieces of an issue's text: what fails and by how much, what changes it, the versions, the files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtmatrix.core.bundle import facts
from trtmatrix.core.bundle.facts import ChangeLine, Failure, LeftOut, OutputLine, VersionLine
from trtmatrix.core.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.core.markdown import bullets, code, link, plain, table
from trtmatrix.core.model import Evidence, Product, Verdict
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
        return "in the one build that was made"
    some = f"in {failed} of {builds} builds of the same graph; the others are right"
    return f"in each of {builds} builds" if failed >= builds else some


def reference_words(failure: Failure) -> str:
    """Return against what it is compared, and why that is right."""
    if not any(line.rel_l2 is not None for line in failure.outputs):
        return ""
    by = failure.reference_by or "NumPy, from the mathematics of the case written out"
    words = [f"**Why the reference is right**: it is computed in float64 on the CPU by {plain(by)}."]
    if any(line.floors is not None for line in failure.outputs):
        unit = plain(UNIT_WORDS.get(failure.precision, failure.precision))
        if failure.product is Product.ONNXRUNTIME:
            unit = "its own precision"
        words.append(
            f"One noise floor is the relative L2 error that rounding to {unit} alone makes in this "
            f"computation. A right engine stays within {PASS_FACTOR:g} floors; from {FAIL_FACTOR:g} on it is "
            "wrong, and below that where its error has the shape of a known defect."
        )
    if " c = " in f"{failure.manner} {failure.reason}":
        words.append("c is how much of that defect's own change is in the error: 1 is exactly the defect.")
    return " ".join([*words, plain(failure.on_cpu)]).rstrip()


RIGHT, WRONG = frozenset({Verdict.PASS}), frozenset({Verdict.FAIL, Verdict.FLAKY})


def since_words(failure: Failure) -> str:
    """Return since which version it fails and whether a later one is right, as far as it is known.

    ``failure.versions`` are in order, oldest first.
    """
    known = [line for line in failure.versions if line.verdict in RIGHT | WRONG]
    at = next((i for i, line in enumerate(known) if line.is_this), len(known))
    start = next((i for i in range(at - 1, -1, -1) if known[i].verdict in RIGHT), -1)
    later = next((line for line in known[at:] if line.verdict in RIGHT), None)
    first = next((line for line in known[start + 1 :] if line.verdict in WRONG), None)
    words = [f"right at {_told(known[start])}"] if start >= 0 else []
    words.append(f"wrong at {_told(first)}" if first else f"wrong at {plain(failure.version)}")
    words += [f"and still at {plain(failure.version)}"] if first and not first.is_this else []
    words += [f"right again at {_told(later)}"] if later else []
    words += ["no version is known to be right"] if start < 0 and not later else []
    kept = {facts.GOOD_OUTPUTS, facts.GOOD_RECORD} & set(failure.files) or not failure.files
    good = f" What {plain(failure.nearest_good)} gives for the same graph and inputs is in the archive."
    return f"**Since which version**: {', '.join(words)}.{good if failure.nearest_good and kept else ''}"


def _told(line: VersionLine) -> str:
    return plain(line.version + (" (reported)" if line.evidence is Evidence.REPORTED else ""))


CHANGE_HEADS = ("changed alone", "the failure", "figure", "builds")


def changes_table(lines: Sequence[ChangeLine]) -> str:
    """Return what each change does to the failure; what could not be measured says why below the table."""
    said = [line for line in lines if line.fails is not None]
    silent = [line for line in lines if line.fails is None]
    if not lines:
        return "**What changes it**: not measured."
    rows = [
        [
            plain(line.change),
            _what_is_left(line),
            plain(line.figure),
            str(line.builds or ""),
        ]
        for line in said
    ]
    heads: Sequence[str] = CHANGE_HEADS
    if not any(line.builds for line in said):  # the product builds no engines, or they were not counted
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    parts = ["**What changes it**" + (":" if said else ": nothing could be measured.")]
    parts += [table(heads, rows)] if said else []
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


def _what_is_left(line: ChangeLine) -> str:
    """Return what a change left of the failure: another failure is none that is gone."""
    if line.fails:
        return "stays"
    if line.verdict in {Verdict.FAIL, Verdict.FLAKY}:
        return f"**fails otherwise**: {plain(line.reason)}"
    return "**is gone**"


def versions_table(lines: Sequence[VersionLine], label: str) -> str:
    """Return what each version makes of the case, with the evidence for it."""
    heads = ["version", "verdict", label or "figure", "builds", "driver", "evidence", "image"]
    shown = table(heads, [_version_row(line) for line in lines if line.evidence is not Evidence.NONE])
    silent = [line.version for line in lines if line.evidence is Evidence.NONE]
    return shown + (f"\n\nNot run, and nothing is reported: {plain(', '.join(silent))}." if silent else "")


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
    (facts.SCRIPT, "the repro in one file: builds, runs, compares; Python 3.8, NumPy and the product alone"),
    (facts.RUN, "runs it in the same container image"),
    (facts.MODEL, "the graph with its weights"),
    (facts.INPUTS, "the inputs"),
    (facts.REFERENCE, "the reference"),
    (facts.EXPECTED, f"what was measured, by which {facts.SCRIPT} judges"),
    (facts.BAD_OUTPUTS, "what this version gave"),
    (facts.GOOD_OUTPUTS, "what the nearest good version gave"),
    (facts.DEFECTS, "what known defects would add to the outputs"),
    (facts.EXTRA, f"what else {facts.SCRIPT} needs"),
    (facts.OTHERS, "graphs to compare with"),
    (facts.RECORD, "all that was measured"),
    (facts.GOOD_RECORD, "the same of the nearest good version"),
    (facts.ENVIRONMENT, "versions, driver, clocks, environment variables"),
    (facts.LOG, "the log"),
    (facts.LAYERS, "the engine's layers"),
    (facts.POLYGRAPHY, "the same by Polygraphy"),
    (facts.TRTEXEC, "the same by trtexec"),
    (facts.LOADER, "gives both the inputs and the reference"),
    (facts.IMAGE, "how the image is built"),
    (facts.SUMS, "SHA-256 of every file"),
)


def files_list(files: Sequence[str], *, in_container: bool = True) -> str:
    """Return what is in an archive, by its files' names; of none what may be in one."""
    tops = dict.fromkeys(name.partition("/")[0] for name in files)
    words = dict(_FILES)
    if not in_container:
        words[facts.RUN] = f"checks the files and runs {facts.SCRIPT}, outside of containers as it was seen"
    shown = [name for name in words if name in tops or not tops]
    rest = [name for name in tops if name not in words and name != facts.ISSUE]
    return bullets([f"{code(name)}: {words[name]}" for name in shown] + [code(name) for name in rest])


def left_out_list(lines: Iterable[LeftOut]) -> str:
    """Return what is not in the archive, with digests."""
    return bullets(
        f"{code(line.name)}, {line.size:,} bytes, SHA-256 {code(line.sha256)}: {plain(line.why)}"
        for line in lines
    )
