"""What is asked, which evidence for an answer is lacking, and what no answer covers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from trtmatrix.api.types import ApiSection
from trtmatrix.common.options import flag, many, names, number, value
from trtmatrix.common.text import counted
from trtmatrix.judge.compare import CONFIRMING_BUILDS
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import Gpu, Product
from trtmatrix.upgrade.findings import Entries, Standing, standing_of
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Lacking, ModelSection, Weight

DOOR = "nox -s"
NOT_RUN = (
    "TensorRT-RTX is parsed and built here and never run: no command of this tool can supply numbers. Run "
    "your model on a GPU of compute capability 8.0, 8.6, 8.9 or 12.x"
)


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions:
    """Those of ``upgrade``; a figure after may be ``max_slowdown`` times that before.

    ``models``: lists, folders and files; ``tag``: only those with one of these.
    """

    project: ProjectOptions = field(default_factory=ProjectOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    before: str = value("--from VERSION", "the version in use", required=True)
    after: str = value("--to VERSION", "the version to move to", required=True)
    models: tuple[Path, ...] = many("--models FILE|DIR", "many models in one report: models.yaml, a folder, "
        "or .onnx files; may be repeated (docs/upgrade.md)")  # fmt: skip
    tag: tuple[str, ...] = names("--tag TAG", "of these only the models with this tag")
    code: tuple[Path, ...] = many("--code DIR|FILE", "find uses of what changes, in Python, notebooks, shell "
        "and Dockerfiles; may be repeated. Exit code 11 if something must change")  # fmt: skip
    api: bool = flag("--api", "only print how the two APIs differ and, with --code, where that is used")
    no_run: bool = flag("--no-run", "decide from stored records; run nothing")
    max_slowdown: float = value("--max-slowdown FACTOR", "how many times the latency, memory, engine size, "
        "build time or time an item may be what it was", default=1.1,
        type=number(float, 1, "factor of 1 or more, such as 1.10"))  # fmt: skip
    max_build_slowdown: float | None = value("--max-build-slowdown FACTOR", "the same of build time alone",
        type=number(float, 1, "factor of 1 or more, such as 2"))  # fmt: skip
    no_performance: bool = flag("--no-performance", "leave latency, throughput, memory, engine size and "
        "build time out")  # fmt: skip
    full: bool = flag("--full", "print the whole report instead of one screen")
    baseline: Path | None = value("--baseline REPORT.json", "the last accepted report: exit code 0 unless "
        "something is worse than in it (docs/ci.md)")  # fmt: skip
    output: tuple[Path, ...] = many("--output -o FILE", "also write the report as .html, .md, .json or .xml "
        "(JUnit), or the uses in code as .sarif; may be repeated")  # fmt: skip
    json: bool = flag("--json", "print JSON")

    @property
    def restricted(self) -> list[str]:
        """The options that narrow what is looked at, as typed."""
        chosen = self.project.selection
        asked = {"--repro": chosen.repros, "--case": chosen.cases}
        return [word for name, values in asked.items() if values for word in (name, ",".join(values))]

    @property
    def command(self) -> str:
        """The command that makes the same report."""
        gpus = self.project.selection.gpus
        words = ["--from", self.before, "--to", self.after, *(["--gpu", gpus[0]] if gpus else [])]
        words += [*self.restricted, *model_options(self.model), *typed(self.model, "check", "explain")]
        words += typed(self, "models", "tag", "baseline", "code", "max_slowdown", "max_build_slowdown")
        words += typed(self, "no_run", "no_performance")
        return f"{DOOR} upgrade -- {shlex.join([*words, *file_options(self.project)])}"


def typed(options: UpgradeOptions | ProjectOptions | ModelOptions, *names: str) -> list[str]:
    """Return options as they are typed; those that have their usual value are left out."""
    usual = {each.name: each.default for each in fields(options)}
    words = []
    for name in names:
        value, option = getattr(options, name), f"--{name.replace('_', '-')}"
        given = value if isinstance(value, tuple) else (value,)
        if value != usual[name]:
            words += [option] if value is True else [w for each in given for w in (option, str(each))]
    return words


def file_options(project: ProjectOptions) -> list[str]:
    """Return the options that name other files than the usual."""
    return typed(project, "matrix", "repros", "results", "cache")


def model_options(model: ModelOptions) -> list[str]:
    """Return the options about a model of one's own, as they were given."""
    return typed(model, "model", "inputs", "atol", "rtol", "precision", "profile")


@dataclass(frozen=True, kw_only=True)
class Own:
    """A model of the user's own: its section of the report, its entries, and its limits, or 0.

    ``build``: its ``max_build_slowdown``.
    """

    section: ModelSection
    entries: Entries
    limit: float = 0.0
    build: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """Whether to move from one version to another on a GPU, which commands call ``gpu_word``.

    ``owns``: the user's models. One that was named is weighed beside the findings; of a list (``--models``)
    the models alone decide.
    """

    options: UpgradeOptions
    before: Version
    after: Version
    gpu: Gpu
    matrix: Matrix
    entries: Entries
    gpu_word: str = ""
    owns: tuple[Own, ...] = ()
    api: ApiSection = field(default_factory=ApiSection)

    def run_command(self, lines: Iterable[CaseLine], repros: Iterable[str], *extra: str) -> str:
        """Return the command that measures what is not known of cases on enough engines, at both versions.

        What is known of ``repros`` (all where none is named) is served from its records.
        """
        unseen = {Standing.UNKNOWN, Standing.SAID_GOOD, Standing.SAID_BAD}
        both = any(standing_of(line.before) in unseen for line in lines)
        words = ["--trt", ",".join([self.before.name] * both + [self.after.name])]
        words += ["--gpu", self.gpu_word] if self.gpu_word else []
        words += ["--repro", ",".join(repros)] if repros else []
        builds = self.after.product is Product.TENSORRT  # only TensorRT's engines differ from build to build
        words += ["--rebuilds", str(CONFIRMING_BUILDS)] if builds else []
        return f"{DOOR} matrix -- {shlex.join([*words, *extra, *file_options(self.options.project)])}"


def make_lacking(question: Question, findings: Sequence[FindingLine]) -> Iterator[Lacking]:
    """Yield what would settle it: first what could turn a reason against the move, then what is lacking."""
    open_ended = {Standing.UNKNOWN, Standing.FEW, Standing.SAID_GOOD, Standing.DOUBTED}
    for finding in findings:  # work-arounds to try, failures of few engines
        against = [line for line in finding.cases if line.weight is Weight.AGAINST]
        tried = [item for item in finding.workarounds if item.after and standing_of(item.after) in open_ended]
        few = [
            line for line in against if standing_of(line.after) is Standing.SAID_BAD
            or (standing_of(line.after) is Standing.BAD and 0 < line.after.builds < CONFIRMING_BUILDS)
        ]  # fmt: skip
        if against and (tried or few):
            whats, wrong = [counted(len(tried), "work-around")] if tried else [], counted(len(few), "case")
            whats += [f"{wrong} wrong on few builds, or only reported to be"] if few else []
            command = question.run_command(few, [finding.repro])
            yield Lacking(what=f"{finding.repro}: {', '.join(whats)}", command=command)
    lines = [line for finding in findings for line in finding.cases if line.weight is Weight.LACKING]
    if question.after.product is Product.TENSORRT_RTX and lines:
        yield Lacking(what=NOT_RUN, command="")
        lines = [line for line in lines if standing_of(line.after) is not Standing.BUILT]
    doubted = [line for line in lines if standing_of(line.after) is Standing.DOUBTED]
    unknown = [line for line in lines if line not in doubted]
    for wanted, extra in ((unknown, ()), (doubted, ("--rerun",))):
        if names := tuple(dict.fromkeys(line.repro for line in wanted)):
            # Where nothing is left out, no name is needed: controls run along in any case.
            narrow = len(names) == 1 or len(names) < len(findings) or question.options.restricted
            command = question.run_command(wanted, names if narrow else (), *extra)
            what = f"what is lacking of {counted(len(names), 'finding')}"
            yield Lacking(what=what, command=command)


def find_blind_spots(question: Question, findings: Sequence[FindingLine]) -> Iterator[str]:
    """Yield what the report says nothing about, a sentence each, what is nearest to the question first."""
    if question.options.restricted:
        yield f"What {' '.join(question.options.restricted)} leaves out."
    for finding in findings:
        silent = (line.why for line in finding.cases if line.change is Change.SAYS_NOTHING)
        for why, times in Counter(silent).items():
            yield f"{finding.repro}: {counted(times, 'case')} at {question.after.name}: {why}."
    low, high = sorted((question.before, question.after), key=lambda version: version.release)
    ordered = sorted(question.matrix.versions, key=lambda version: version.release)
    inside = (v for v in ordered if v.product is low.product and low.release < v.release < high.release)
    if between := ", ".join(version.name for version in inside):
        yield f"The versions in between: {between}."
    if question.after.product is Product.TENSORRT:
        yield f"Other GPUs than {question.gpu.name}: ask once for each that you deploy on."
    if question.options.no_performance:
        yield "Latency, throughput, memory, engine size and build time: left out by --no-performance."
    throughput = "" if question.owns else "throughput; "
    yield f"Precisions that no case has (BF16, INT8, FP8, INT4); {throughput}several streams at once."
    if not question.owns:
        yield "Your own models: --model FILE.onnx, with --inputs if you have some, or --models FOLDER."
    if not question.options.code:
        yield "Your own code: --code DIR."
