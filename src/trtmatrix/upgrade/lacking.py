"""Evidence that is not there, and the exact commands that would supply it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.suite.model import Product
from trtmatrix.upgrade.question import Question
from trtmatrix.upgrade.report import CaseLine, FindingLine, Lacking, Weight, WorkaroundLine
from trtmatrix.upgrade.standing import Standing, standing_of

MOST_CASES = 4
"""Cases that a command names one by one; of more it names their repro."""

NOT_RUN = (
    "TensorRT-RTX is parsed and built here and never run: no command of this tool can supply numbers. Run "
    "your model on a GPU of compute capability 8.0, 8.6, 8.9 or 12.x"
)

_TO_BE_TRIED = frozenset({Standing.UNKNOWN, Standing.FEW, Standing.SAID_GOOD, Standing.DOUBTED})
_NOT_SEEN = frozenset({Standing.UNKNOWN, Standing.SAID_GOOD, Standing.SAID_BAD})


def make_lacking(question: Question, findings: Sequence[FindingLine]) -> tuple[Lacking, ...]:
    """Return what is lacking: first what could turn a reason against the move, then by finding."""
    product = question.after.product
    turning = [item for finding in findings for item in _turning(question, finding)]
    wanted = [finding for finding in findings if any(_is_lacking(line) for line in finding.cases)]
    if product is Product.TENSORRT_RTX and wanted:
        wanted = [finding for finding in wanted if not _only_built(finding)]
        turning.append(Lacking(what=NOT_RUN, command=""))
    each = [_of_finding(question, finding) for finding in wanted]
    if len(each) > 1:
        versions = _ordered(question, {v for finding in wanted for v in _versions(question, finding)})
        # Where nothing is left out, no name is needed: controls run along in any case.
        names_all = len(wanted) == len(findings) and not question.restricted
        repros = [] if names_all else [finding.repro for finding in wanted]
        everything = question.run_command(versions, repros, (), *_builds(question))
        names = f"what is lacking of {len(each)} findings, at once"
        each.insert(0, Lacking(what=names, command=everything, whole=True))
    return (*turning, *each)


def _is_lacking(line: CaseLine) -> bool:
    return line.weight is Weight.LACKING


def _only_built(finding: FindingLine) -> bool:
    lacking = [line for line in finding.cases if _is_lacking(line)]
    return bool(lacking) and all(standing_of(line.after) is Standing.BUILT for line in lacking)


def _turning(question: Question, finding: FindingLine) -> Iterator[Lacking]:
    """Yield what might turn a reason against the move: work-arounds to try, a failure of few engines."""
    against = [line for line in finding.cases if line.weight is Weight.AGAINST]
    if not against:
        return
    name, after = finding.repro, question.after.name
    if tried := [item.case for item in finding.workarounds if _is_untried(item)]:
        command = question.run_command([after], [name], tried, *_builds(question))
        count = "its work-around" if len(tried) == 1 else f"its {len(tried)} work-arounds"
        yield Lacking(what=f"{name}: {count} at {after}, on {CONFIRMING_BUILDS} builds each", command=command)
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
            versions = _ordered(question, {after} | _unseen_before(question, lines))
            command = question.run_command(versions, [name], cases, *_builds(question))
            yield Lacking(what=f"{name}: {subject} at {after}", command=command)


def _is_untried(item: WorkaroundLine) -> bool:
    return bool(item.case) and item.after is not None and standing_of(item.after) in _TO_BE_TRIED


def _of_finding(question: Question, finding: FindingLine) -> Lacking:
    lines = [line for line in finding.cases if _is_lacking(line)]
    cases = [line.case for line in lines] if len(lines) <= MOST_CASES < len(finding.cases) else []
    again = ["--rerun"] if any(standing_of(line.after) is Standing.DOUBTED for line in lines) else []
    command = question.run_command(
        _ordered(question, _versions(question, finding)), [finding.repro], cases, *_builds(question), *again
    )
    return Lacking(what=f"{finding.repro}: {describe_lack(lines, question.after.name)}", command=command)


def describe_lack(lines: Sequence[CaseLine], after: str) -> str:
    """Say how many cases lack what at the version moved to."""
    kinds = {
        Standing.UNKNOWN: f"without evidence at {after}",
        Standing.SAID_GOOD: "only reported to be right",
        Standing.FEW: f"right on fewer than {CONFIRMING_BUILDS} builds",
        Standing.DOUBTED: "beside a control that came out wrong",
        Standing.BUILT: "built and not run",
        Standing.BROKEN: f"not built at {after}, and nothing is known of before",
        Standing.UNSUPPORTED: f"not supported at {after}, and nothing is known of before",
    }
    counts = [
        (sum(standing_of(line.after) is kind for line in lines), words) for kind, words in kinds.items()
    ]
    parts = [f"{count} {'case' if count == 1 else 'cases'} {words}" for count, words in counts if count]
    return ", ".join(parts)


def _versions(question: Question, finding: FindingLine) -> set[str]:
    """Return the versions at which a finding's lacking cases are to be measured."""
    lines = [line for line in finding.cases if _is_lacking(line)]
    after = {question.after.name} if any(not _is_settled(line) for line in lines) else set()
    return after | _unseen_before(question, lines)


def _is_settled(line: CaseLine) -> bool:
    """Whether all is known of the version moved to, and only the one before is open."""
    return standing_of(line.after) in {Standing.BROKEN, Standing.UNSUPPORTED}


def _unseen_before(question: Question, lines: Sequence[CaseLine]) -> set[str]:
    unseen = any(standing_of(line.before) in _NOT_SEEN for line in lines)
    return {question.before.name} if unseen else set()


def _ordered(question: Question, names: set[str]) -> list[str]:
    return [name for name in (question.before.name, question.after.name) if name in names]


def _builds(question: Question) -> tuple[str, ...]:
    """Return the option that makes a PASS rest on enough engines, where the product builds engines."""
    return ("--rebuilds", str(CONFIRMING_BUILDS)) if question.after.product is Product.TENSORRT else ()
