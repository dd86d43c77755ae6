"""The commands that look at the host, the stored records and the project: each reads, calls, and prints."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import ExitCode, HungUp, UsageError, combine_exit_codes
from trtmatrix.common.options import flag, many, names, value
from trtmatrix.common.paths import check_outputs, whole_folder, write_output
from trtmatrix.judge.compare import exit_codes
from trtmatrix.judge.entry import Entry, standing_of
from trtmatrix.model.own_model import Listing, ModelOptions, notes_of, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context, read_matrix
from trtmatrix.plan.order import find_reason
from trtmatrix.plan.survey import Survey, digests_now, entries_of, take_survey
from trtmatrix.records.store import find_recorded_versions, read_records
from trtmatrix.run.perform import Options, Result, find_reasons, perform
from trtmatrix.suite.cells import Selection, select_cases, select_repros, select_versions
from trtmatrix.suite.model import Exclusion, Gpu, Product, is_release
from trtmatrix.suite.plan import Pull, make_plan

if TYPE_CHECKING:  # where no cluster is asked for, none of its code is imported
    from trtmatrix.slurm.cluster import Cluster

SUFFIXES = (".html", ".md", ".json", ".xml", ".txt")


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Those of ``publish``; ``executor``: whose GPUs are meant."""

    project: ProjectOptions
    executor: str = value("--executor", "this host (default), or the cluster described by the site's "
        "settings", "where", default="local", choices=["local", "slurm"])  # fmt: skip
    site: Path | None = value("--site FILE", "the site's settings (TRTMATRIX_SITE, else slurm.yaml beside "
        "matrix.yaml)", "where")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReportOptions(PublishOptions):
    """Those of ``report``."""

    output: tuple[Path, ...] = many("--output -o FILE", ".html, .md, .json, .xml or .txt; may be repeated "
        "(default: report.html)")  # fmt: skip

    def command(self, session: str) -> str:
        """Return the command that asks for the same cells."""
        selected, words = self.project.selection, list[str]()
        for each in fields(selected):
            if values := getattr(selected, each.name):
                words += [each.metadata["names"][0], ",".join(values)]
        words += ["--executor", self.executor] if self.executor == "slurm" else []
        return f"nox -s {session}" + (f" -- {shlex.join(words)}" if words else "")


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReportOptions):
    """Those of ``table``."""

    output: tuple[Path, ...] = many("--output -o FILE", "also write the tables as .md, .html, .json, .xml "
        "(JUnit) or .txt; may be repeated", "show")  # fmt: skip
    model: ModelOptions
    full: bool = flag("--full", "print every row with all figures", "show")
    json: bool = flag("--json", "print JSON", "show")

    @property
    def log(self) -> Path | None:
        """Where all lines and rows of a run go; tasks of a cluster share a folder, and none has its own."""
        ours = "SLURM_ARRAY_TASK_ID" not in os.environ
        return self.project.results / "local" / "last-run.txt" if ours else None


@dataclass(frozen=True, kw_only=True)
class RunOptions(TableOptions):
    """Those of ``run``; ``how`` cells are run."""

    plan: bool = flag("--plan", "print what would be started and why, without starting it", "run")
    how: Options
    pull: Pull = value("--pull", "which missing images to pull or build: those of versions named by --trt "
        "(default), all or none", "run", default=Pull.NAMED)  # fmt: skip


def run_command(options: RunOptions) -> ExitCode:
    """Run what can be run here, print the tables; an interrupted run prints what is there by then."""
    check_outputs(options.output, SUFFIXES)
    context, cluster = _open(options, options.how.memory)
    survey, host = take_survey(context, options.pull, cluster), context.engine
    if host != "auto" and not survey.host.engine.available:  # cells of other runtimes may still run
        engine = survey.host.engine
        print(f"trtmatrix: --engine {host}: {engine.reason}\n  {engine.remedy}", file=sys.stderr)
    how, executor = replace(options.how, log=options.log, full=options.full), None
    if cluster is not None:
        from trtmatrix.slurm.executor import SlurmExecutor

        executor = SlurmExecutor(cluster, context, survey, how)
    if options.plan:
        from trtmatrix.run.planned import plan_all

        current = digests_now(context, survey)
        reasons = find_reasons(entries_of(context, survey, survey.stored), how, current)
        planned = plan_all(context, survey, reasons, how, executor)
        print(json.dumps(asdict(planned), indent=1) if options.json else "\n".join(planned.lines))
        return ExitCode.AS_EXPECTED
    started = time.monotonic()
    try:
        result = perform(context, survey, how, executor)
    except KeyboardInterrupt as error:
        if not isinstance(error, HungUp) and not options.json:  # somebody looks on
            stored = tuple(read_records(context.project.results))
            entries = entries_of(context, survey.seen_since(stored), stored)
            show(replace(options, output=()), context, survey, entries)
        raise
    show(options, context, survey, result.entries, time.monotonic() - started)
    return combine_exit_codes(run_codes(context.selection, survey.gpus, result))


def run_codes(selection: Selection, gpus: Sequence[Gpu], result: Result) -> set[ExitCode]:
    """Return the exit codes of a run; a control that could not be made ready is told of, and no trouble."""
    codes = exit_codes(
        result.entries, by_name=selection.by_name, gpu_here=bool(gpus),
        ran=bool(result.records or result.served), gpu_named=bool(selection.gpus),
    )  # fmt: skip
    if any(not item.cell.companion for item in result.not_ready):
        codes.add(ExitCode.MACHINERY)
    return codes


def table_command(options: TableOptions) -> ExitCode:
    """Print the tables from stored records."""
    check_outputs(options.output, SUFFIXES)
    context, survey, entries = _stored_entries(options)
    show(options, context, survey, entries)
    return _shown_code(entries)[0]


def report_command(options: ReportOptions) -> ExitCode:
    """Write the report; nothing is run. The exit code is that of ``table``."""
    files = options.output or (Path("report.html"),)
    check_outputs(files, SUFFIXES)
    _, _, entries = _stored_entries(options)
    write_files(replace(options, output=files), entries)
    print("\n".join(map(str, files)))
    code, shown, surprises = _shown_code(entries)
    if code is ExitCode.NOTHING:
        print("there is no record of any of these cells: nox -s matrix runs what can be run here")
    if surprises:
        print(f"{surprises} of {shown} cells are not as expected: see what needs attention")
    return code


def publish_command(options: PublishOptions) -> ExitCode:
    """Publish the records that the current verdict of each selected cell rests on.

    That is what was measured here, with what is here now, and is a fact: trouble with the machinery, and
    what hangs on memory or set-up, is tried again; a crash, a time-out or a failed build is a fact.
    """
    from trtmatrix.records.operators import publish_records
    from trtmatrix.records.store import publish

    context, _, entries = _stored_entries(options)
    facts = [entry for entry in entries if find_reason(entry, confirm=False) is None]
    local = context.project.local.resolve()
    found = (record for entry in facts for record in (*entry.records, *entry.set_aside))
    records = [record for record in found if local in Path(record.file).resolve().parents]
    new = [*publish(context.project.results, records), *publish_records(context.project.results)]
    print("\n".join(str(path) for path in new) or "nothing new to publish")
    return ExitCode.AS_EXPECTED if records or new else ExitCode.NOTHING


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(PublishOptions):
    """Those of ``doctor``."""

    json: bool = flag("--json", "print JSON")


def doctor_command(options: DoctorOptions) -> ExitCode:
    """Say what was found here, or on a cluster, and what that lets run."""
    from trtmatrix.images.checks import Level
    from trtmatrix.images.preflight import doctor_text, examine

    context, code = open_context(options.project), ExitCode.AS_EXPECTED
    if options.executor == "slurm":
        from trtmatrix.slurm.cluster import examine_site

        findings = examine_site(options.site, context)
        if any(finding.level is Level.TROUBLE for finding in findings.findings):
            code = ExitCode.MACHINERY
    else:
        findings = examine(context, take_survey(context, Pull.NAMED))
    print(json.dumps(asdict(findings), indent=1) if options.json else doctor_text(findings))
    return code


# --- Commands that look at files alone


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Those of ``list``."""

    project: ProjectOptions
    json: bool = flag("--json", "print JSON")


def list_command(options: ListOptions) -> ExitCode:
    """List versions, repros and cases."""
    from trtmatrix.tables.render_list import list_json, list_text

    context = open_context(options.project)
    versions = select_versions(context.matrix, context.selection)
    rows = select_cases(select_repros(context.plain_repros, context.selection), context.selection)
    recorded = find_recorded_versions(context.project.results)
    standings = {v.name: standing_of(v, context.plain_repros, recorded) for v in versions}
    told = versions, rows, standings
    print(json.dumps(list_json(*told), indent=1) if options.json else list_text(*told))
    return ExitCode.AS_EXPECTED


@dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """Those of ``schema``."""

    site: bool = flag("--site", "print the schema of slurm.yaml (docs/slurm.md)")
    models: bool = flag("--models", "print the schema of models.yaml (docs/upgrade.md)")


def schema_command(options: SchemaOptions) -> ExitCode:
    """Print the JSON Schema of matrix.yaml, of slurm.yaml, or of models.yaml."""
    from trtmatrix.slurm.sitefile import Site
    from trtmatrix.suite.keys import keys_schema
    from trtmatrix.suite.matrix import Matrix

    schema = keys_schema(Site if options.site else Listing if options.models else Matrix)
    print(json.dumps(schema, indent=2, sort_keys=True))
    return ExitCode.AS_EXPECTED


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Those of ``prepare``."""

    project: ProjectOptions
    which: str = value("REPRO/CASE")
    to: Path | None = value("--to DIR", "where to write (default: ./CASE)")


def prepare_command(options: PrepareOptions) -> ExitCode:
    """Write one case's files to a folder."""
    from trtmatrix.prepare.cases import CaseCache

    context = open_context(options.project)
    repro_id, _, case_id = options.which.partition("/")
    loaded = context.repros.get(repro_id)
    case = next((c for c in loaded.repro.cases if c.id == case_id), None) if loaded else None
    if loaded is None or case is None:
        raise UsageError(f"{options.which}: no such case; python -m trtmatrix list shows all")
    target = options.to or Path(case.id)
    if target.exists():
        raise UsageError(f"{target} is there already: name another folder by --to")
    made = CaseCache(context.project.cache).prepare(loaded, case)
    with whole_folder(target) as partial:
        shutil.copytree(made, partial, dirs_exist_ok=True)
    command = shlex.join(["python", str(loaded.file), "--files", str(target)])
    print(f"{target}: run it by hand with\n  {command}")
    return ExitCode.AS_EXPECTED


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Those of ``check``."""

    file: Path = value("MODEL.onnx", "your model; its weights are not needed")
    trt: tuple[str, ...] = names("--trt VERSION", "releases of TensorRT, comma-separated (default: all in "
        "matrix.yaml)")  # fmt: skip
    full: bool = flag("--full", "print everything that was found instead of one screen")
    json: bool = flag("--json", "print JSON")
    matrix: Path = value("--matrix FILE", "the versions", default=Path("matrix.yaml"))
    repros: Path = value("--repros DIR", "the repro scripts", default=Path("repros"))
    results: Path = value("--results DIR", "the records", default=Path("results"))


def check_command(options: CheckOptions) -> ExitCode:
    """Name the nodes that versions ignore, get wrong or refuse; the exit code is 1 where some are known."""
    from trtmatrix.common.text import to_json
    from trtmatrix.model.static_check import check_json, check_model, render_check
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.records.operators import read_operator_records
    from trtmatrix.suite.repro_files import read_facts
    from trtmatrix.tables.render_text import terminal_width

    if wrong := ", ".join(name for name in options.trt if not is_release(name)):
        why = "no release of TensorRT such as 8.6.1; of nothing else are nodes known"
        raise UsageError(f"--trt {wrong}: {why}")
    listed = () if options.trt else read_matrix(options.matrix).versions
    versions = options.trt or tuple(v.name for v in listed if v.product is Product.TENSORRT)
    model, facts = load_model(options.file), read_facts(options.repros)
    records = read_operator_records(options.results, versions=versions)
    check = check_model(model, options.file.name, facts, versions, records=records)
    code = ExitCode.SURPRISE if check.is_sure else ExitCode.AS_EXPECTED
    data = to_json({**check_json(check), "exit_code": int(code)}) if options.json else ""
    print(data or render_check(check, terminal_width(), full=options.full), end="")
    return code


# --- Tables, on the screen and in files


def write_files(options: ReportOptions, entries: Sequence[Entry]) -> None:
    """Write the files asked for."""
    again, stored = options.command("report"), not isinstance(options, RunOptions)
    for file in options.output:
        write_output(file, render(file.suffix, entries, again=again, recorded=stored))


def render(suffix: str, entries: Sequence[Entry], *, again: str = "", recorded: bool = False) -> str:
    """Return the tables in the format of a file's suffix; ``again``: the command that makes the page.

    ``recorded``: what was recorded elsewhere counts too, for JUnit as for the exit code.
    """
    from trtmatrix.judge.noise import read_calibration
    from trtmatrix.tables import markdown, page, render_data, render_text

    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    match suffix:
        case ".md":
            return markdown.render_markdown(entries)
        case ".json":
            return render_data.render_json(entries, generated=now)
        case ".xml":
            return render_data.render_junit(entries, recorded=recorded)
        case ".txt":
            return render_text.render_text(entries)
        case _:  # .html
            shown = page.make_plots(entries, read_calibration())
            return page.render_html(entries, shown, generated=now, again=again)


def show(
    options: TableOptions, context: Context, survey: Survey, entries: Sequence[Entry],
    seconds: float | None = None,
) -> None:  # fmt: skip
    """Write the files asked for, and print the answer, or every row where that is asked for.

    ``seconds``: how long a run took, None of a mere look. A run that executed something adds every row to its
    log, and leaves the page beside it.
    """
    from trtmatrix.tables.render_text import print_text, render_screen, terminal_width

    write_files(options, entries)
    for file in options.output:
        print(f"trtmatrix: wrote {file}", file=sys.stderr)
    details = ["nox -s report", "--full prints every row"]
    if seconds is not None and options.log and not options.json and any(entry.executed for entry in entries):
        with contextlib.suppress(OSError):
            options.log.parent.mkdir(parents=True, exist_ok=True)
            with options.log.open("a", encoding="utf-8") as log:
                log.write(f"\n{render('.txt', entries)}")
            details.insert(1, str(options.log))
            page = options.log.with_name("report.html")
            write_output(page, render(".html", entries, again=options.command("report")))
            details[0] = str(page)
    if options.json:
        text = render(".json", entries)
    elif options.full or options.project.selection.cases or options.model.model:
        text = render(".txt", entries)
    else:
        from trtmatrix.images.checks import image_words
        from trtmatrix.tables.answer import make_answer

        # What it takes to pull the images that are not here: how many, GB, and time as far as known.
        absent = {Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT}
        cells = [e.cell for e in entries if e.excluded is not None and e.excluded.why in absent]
        launches = make_plan(cells, survey.host, context.selection, Pull.ALL).launches
        cost = image_words(launches, context.lock, survey.host.engine)
        again = options.command("matrix")
        answer = make_answer(entries, again=again, seconds=seconds, cost=cost)
        text = render_screen(answer, width=terminal_width(), details=details)
    print(text, end="", flush=True) if options.json else print_text(text)


# --- What several commands do first, and last


def _open(options: PublishOptions, memory: int = 0) -> tuple[Context, Cluster | None]:
    """Read the project; where a model was named, its repro stands in place of the others.

    Also the cluster whose GPUs are meant, with its images in the context; none where this host's are.
    """
    context = open_context(options.project)
    if isinstance(options, TableOptions) and options.model != ModelOptions():
        context = open_model(context, options.model)
        for told in notes_of(context):
            print(f"{options.model.title}: {told}", file=sys.stderr)
    if options.executor != "slurm":
        return context, None
    from trtmatrix.slurm.cluster import open_cluster

    return open_cluster(options.site, memory, context)


def _stored_entries(options: PublishOptions) -> tuple[Context, Survey, tuple[Entry, ...]]:
    """Return what stored records show of the selected cells, and what is here; nothing is run."""
    context, cluster = _open(options)
    survey = take_survey(context, Pull.NEVER, cluster)
    return context, survey, entries_of(context, survey, survey.stored)


def _shown_code(entries: Sequence[Entry]) -> tuple[ExitCode, int, int]:
    """Return the exit code of what is shown from records, of how many cells, of which so many surprise."""
    shown = [entry for entry in entries if entry.evidence.is_record]
    surprises = sum(entry.surprise for entry in shown)
    code = ExitCode.SURPRISE if surprises else ExitCode.AS_EXPECTED
    return code if shown else ExitCode.NOTHING, len(shown), surprises
