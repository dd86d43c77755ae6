"""What is asked, which evidence for an answer is lacking, and what no answer covers. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trtmatrix.api.types import ApiSection
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import Gpu, Product
from trtmatrix.upgrade.findings import Entries, Standing, reported_elsewhere, standing_of
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Lacking, ModelSection, Weight, count

DOOR = "nox -s"
MOST_CASES = 4
"""Cases that a command names one by one; of more it names their repro."""

NOT_RUN = (
    "TensorRT-RTX is parsed and built here and never run: no command of this tool can supply numbers. Run "
    "your model on a GPU of compute capability 8.0, 8.6, 8.9 or 12.x"
)


@dataclass(frozen=True, kw_only=True)
class Own:
    """The user's own model: its section, its entries, and whether its user gave a limit of the error.

    ``tolerance``: ``--atol`` or ``--rtol`` was given, so that its verdicts need no noise floor.
    """

    section: ModelSection
    entries: Entries
    tolerance: bool = False


@dataclass(frozen=True, kw_only=True)
class Question:
    """Whether to move from one version to another on a GPU.

    ``gpu_word`` is how commands name the GPU. ``options``: what every command needs beside (other files than
    the usual). ``restricted``: the options that narrow what is looked at, as typed. ``left_out``: findings
    that they leave out. ``max_slowdown``: how many times the figure before one after may be; None leaves
    performance out. ``code``: code was named, so that an API difference that is not known is lacking.
    """

    before: Version
    after: Version
    gpu: Gpu
    matrix: Matrix
    entries: Entries
    gpu_word: str = ""
    options: tuple[str, ...] = ()
    restricted: str = ""
    left_out: tuple[str, ...] = ()
    own: Own | None = None
    max_slowdown: float | None = 1.1
    api: ApiSection = field(default_factory=ApiSection)
    code: bool = False
    command: str = ""

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions of the product, in release order."""
        mine = (v for v in self.matrix.versions if v.product is self.after.product)
        return tuple(sorted(mine, key=lambda v: v.release))

    def run_command(
        self, versions: Iterable[str], repros: Iterable[str], cases: Iterable[str] = (), *extra: str
    ) -> str:
        """Return the command that measures some cells on enough engines; all cases where none is named."""
        chosen = set(versions)
        words = ["--trt", ",".join(v.name for v in (self.before, self.after) if v.name in chosen)]
        words += ["--gpu", self.gpu_word] if self.gpu_word else []
        for option, names in (("--repro", tuple(repros)), ("--case", tuple(cases))):
            words += [option, ",".join(names)] if names else []
        builds = self.after.product is Product.TENSORRT  # only TensorRT's engines differ from build to build
        words += ["--rebuilds", str(CONFIRMING_BUILDS)] if builds else []
        return f"{DOOR} matrix -- {shlex.join([*words, *extra, *self.options])}"


def make_lacking(question: Question, findings: Sequence[FindingLine]) -> tuple[Lacking, ...]:
    """Return what is lacking: first what could turn a reason against the move, then by finding."""
    lacking = [item for finding in findings for item in _turn(question, finding)]
    open_cases = {f.repro: [c for c in f.cases if c.weight is Weight.LACKING] for f in findings}
    wanted = {repro: lines for repro, lines in open_cases.items() if lines}
    if question.after.product is Product.TENSORRT_RTX and wanted:
        built = {Standing.BUILT}
        wanted = {r: lines for r, lines in wanted.items() if {standing_of(c.after) for c in lines} != built}
        lacking.append(Lacking(what=NOT_RUN, command=""))
    if len(wanted) > 1:
        versions = {version for lines in wanted.values() for version in _versions_wanted(question, lines)}
        # Where nothing is left out, no name is needed: controls run along in any case.
        names_all = len(wanted) == len(findings) and not question.restricted
        command = question.run_command(versions, () if names_all else wanted)
        what = f"what is lacking of {len(wanted)} findings, at once"
        lacking.append(Lacking(what=what, command=command, whole=True))
    for finding in findings:
        if lines := wanted.get(finding.repro, []):
            few = len(lines) <= MOST_CASES < len(finding.cases)
            doubted = any(standing_of(line.after) is Standing.DOUBTED for line in lines)
            command = question.run_command(
                _versions_wanted(question, lines), [finding.repro],
                [line.case for line in lines] if few else (), *(["--rerun"] if doubted else []),
            )  # fmt: skip
            what = f"{finding.repro}: {describe_lack(lines, question.after.name)}"
            lacking.append(Lacking(what=what, command=command))
    return tuple(lacking)


def _turn(question: Question, finding: FindingLine) -> Iterator[Lacking]:
    """Yield what might turn a reason against the move: work-arounds to try, a failure of few engines."""
    against = [line for line in finding.cases if line.weight is Weight.AGAINST]
    if not against:
        return
    name, after = finding.repro, question.after.name
    open_ended = {Standing.UNKNOWN, Standing.FEW, Standing.SAID_GOOD, Standing.DOUBTED}
    if tried := [
        w.case for w in finding.workarounds if w.case and w.after and standing_of(w.after) in open_ended
    ]:
        its = "its work-around" if len(tried) == 1 else f"its {len(tried)} work-arounds"
        what = f"{name}: {its} at {after}, on {CONFIRMING_BUILDS} builds each"
        yield Lacking(what=what, command=question.run_command([after], [name], tried))
    said = [line for line in against if standing_of(line.after) is Standing.SAID_BAD]
    few = [
        line for line in against
        if standing_of(line.after) is Standing.BAD and line.after.counted
        and line.after.builds < CONFIRMING_BUILDS
    ]  # fmt: skip
    for lines, what in ((said, "is only reported to be wrong"), (few, "is wrong on few builds")):
        if lines:
            cases = [line.case for line in lines] if len(lines) <= MOST_CASES else []
            subject = f"{lines[0].case} {what}" if len(lines) == 1 else f"{len(lines)} cases: each {what}"
            versions = {after, *_unseen_before(question, lines)}
            command = question.run_command(versions, [name], cases)
            yield Lacking(what=f"{name}: {subject} at {after}", command=command)


def describe_lack(lines: Sequence[CaseLine], after: str) -> str:
    """Say how many cases lack what at the version moved to."""
    words = {
        Standing.UNKNOWN: f"without evidence at {after}",
        Standing.SAID_GOOD: "only reported to be right",
        Standing.FEW: f"right on fewer than {CONFIRMING_BUILDS} builds",
        Standing.DOUBTED: "beside a control that came out wrong",
        Standing.BUILT: "built and not run",
        Standing.BROKEN: f"not built at {after}, and nothing is known of before",
        Standing.UNSUPPORTED: f"not supported at {after}, and nothing is known of before",
    }
    counts = Counter(standing_of(line.after) for line in lines)
    return ", ".join(f"{count(counts[kind], 'case')} {said}" for kind, said in words.items() if counts[kind])


def _versions_wanted(question: Question, lines: Sequence[CaseLine]) -> set[str]:
    """Return the versions at which lacking cases are to be measured: that moved to, unless all is known."""
    known = {Standing.BROKEN, Standing.UNSUPPORTED}
    after = {question.after.name} if any(standing_of(line.after) not in known for line in lines) else set()
    return after | _unseen_before(question, lines)


def _unseen_before(question: Question, lines: Sequence[CaseLine]) -> set[str]:
    unseen = {Standing.UNKNOWN, Standing.SAID_GOOD, Standing.SAID_BAD}
    return {question.before.name} if any(standing_of(line.before) in unseen for line in lines) else set()


def find_blind_spots(question: Question, findings: Sequence[FindingLine]) -> tuple[str, ...]:
    """Return what the report says nothing about, a sentence each, what is nearest to the question first."""
    spots = []
    if question.left_out:
        spots.append(f"Left out by {question.restricted}: {', '.join(question.left_out)}.")
    elif question.restricted:
        spots.append(f"Cases that {question.restricted} leaves out.")
    after, elsewhere = question.after.name, dict[str, dict[str, None]]()
    for finding in findings:
        silent = (line for line in finding.cases if line.change is Change.SAYS_NOTHING)
        for why, number in Counter(line.why or "inconclusive" for line in silent).items():
            spots.append(f"{finding.repro}: {count(number, 'case')} at {after}: {why}.")
        for line in finding.cases:
            for version in (question.before.name, after):
                entry = question.entries.at(line.repro, line.case, version)
                if on := reported_elsewhere(entry, question.gpu) if entry else "":
                    elsewhere.setdefault(on, {})[finding.repro] = None
    for on, names in elsewhere.items():
        spots.append(
            f"What is reported of {on} and not of this GPU may be otherwise here: {', '.join(names)}."
        )
    low, high = sorted((question.before.release, question.after.release))
    if between := [v.name for v in question.versions if low < v.release < high]:
        spots.append(f"The versions in between: {', '.join(between)}.")
    if question.after.product is Product.TENSORRT:
        spots.append(f"Other GPUs than {question.gpu.name}: ask once for each that you deploy on.")
    if question.max_slowdown is None:
        spots.append("Latency, memory, engine size and build time: left out by --no-performance.")
    spots.append("Precisions that no case has: BF16, INT8, FP8, INT4.")
    spots.append("Throughput under load, several streams at once, and the memory of a whole service.")
    if question.own is None:
        spots.append("Your own model: --model FILE.onnx, with --inputs if you have some.")
    if not question.code:
        spots.append("Your own code: --code DIR.")
    return tuple(spots)
