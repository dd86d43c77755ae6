"""``trtmatrix operators``: run the suite where it has not been run, and show what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trtmatrix.common.errors import ExitCode, UsageError, combine_exit_codes
from trtmatrix.common.options import flag, many, names, number, read_count, read_seconds, value
from trtmatrix.common.paths import check_outputs, check_writable, default_cache, write_output
from trtmatrix.common.progress import open_progress
from trtmatrix.common.text import counted, to_json
from trtmatrix.operators.cases import Case, Suite, open_suite
from trtmatrix.operators.perform import run_launches
from trtmatrix.operators.show import Overview, render_html, render_json, render_markdown, render_text
from trtmatrix.operators.verdicts import is_chosen
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.prepare.case_pool import free_memory
from trtmatrix.records.operators import PART, OperatorRecord, Verdict, read_operator_records, write_record
from trtmatrix.run.execute import count_workers
from trtmatrix.run.perform import Options, make_ready, make_run
from trtmatrix.suite.cells import Selection, select_versions
from trtmatrix.suite.model import Product, is_release, slug_of
from trtmatrix.suite.plan import Pull
from trtmatrix.tables.render_text import print_text, terminal_width

WRITERS = {".html": render_html, ".md": render_markdown, ".json": render_json}
MEMORY = 4 << 30
"""Bytes of a container's memory for each process that runs cases, and as much again."""
PLAIN = Selection(repros=("controls",), cases=("matmul-softmax-fp32",))
"""The test by which is planned what can run here: the suite runs wherever this one does."""


@dataclass(frozen=True, kw_only=True)
class OperatorsOptions:
    """Those of ``operators``; ``file``: a model; ``which``: patterns of cases; ``workers``: 0: no limit."""

    project: ProjectOptions
    file: Path | None = value("MODEL.onnx", "say which operators of this model went wrong or were refused, "
        "with what the static check finds; nothing is run", nargs="?")  # fmt: skip
    which: tuple[str, ...] = names("--case CASE", "tests of onnx, or operators, by name or pattern: "
        "'test_clip*' or GridSample")  # fmt: skip
    limit: int = value("--limit N", "run at most N cases, taken evenly from all of them", type=read_count,
        default=0)  # fmt: skip
    workers: int = value("--workers N", "cases that run side by side (default: by cores and memory, at most "
        "8 on a GPU)", type=number(int, 1, "number from 1 to 256", 256), default=0)  # fmt: skip
    mps: bool = flag("--no-mps", "let processes take turns on the GPU, also where they could share it by "
        "NVIDIA's Multi-Process Service", default=True)  # fmt: skip
    seconds: float = value("--seconds S", "time limit of a case; twice as much where it is run again alone",
        type=read_seconds, default=30.0)  # fmt: skip
    write: Path | None = value("--write DIR", "write model, inputs and expected outputs of the chosen cases; "
        "nothing is run")  # fmt: skip
    rerun: bool = flag("--rerun", "also run versions that have a record of this suite")
    run: bool = flag("--no-run", "show stored records; run nothing", default=True)
    output: tuple[Path, ...] = many("--output -o FILE", "also write .html, .md or .json; may be repeated")
    full: bool = flag("--full", "print every row with all figures")
    json: bool = flag("--json", "print JSON")


def operators_command(options: OperatorsOptions) -> ExitCode:
    """Run the suite on the versions named by ``--trt`` that have no record of it, and show the records."""
    check_outputs(options.output, WRITERS)
    selection, folder = options.project.selection, options.write
    if options.file is not None:
        if options.output or folder is not None:
            raise UsageError(
                f"{'--output' if options.output else '--write'}: not with a model; --json prints all"
            )
        return _check_model(options, options.file)
    if folder is not None:  # nothing is run
        suite = open_suite(options.project.cache or default_cache())
        for case in select(suite, options.which, options.limit):
            if (folder / case.name).exists():
                raise UsageError(f"--write {folder}: {case.name} is there already: name another folder")
            suite.write_case(case, folder / case.name)
            print(folder / case.name)
        return ExitCode.AS_EXPECTED
    plain = replace(selection, repros=PLAIN.repros, cases=PLAIN.cases)
    context = open_context(replace(options.project, controls=False, selection=plain))
    stored = read_operator_records(context.project.results)
    new, code = list[OperatorRecord](), ExitCode.AS_EXPECTED
    if selection.versions and options.run:
        suite = open_suite(context.project.cache)
        cases = select(suite, options.which, options.limit)
        new, code = _run(context, options, suite, cases, stored)
    wanted = {version.name for version in select_versions(context.matrix, context.selection)}
    known = {(record.gpu, record.version): record for record in [*stored, *new]}
    shown = (
        replace(record, rows={n: row for n, row in record.rows.items() if is_chosen(row, options.which)})
        for record in known.values() if record.version in wanted
    )  # fmt: skip
    overview = Overview(record for record in shown if record.rows)
    for file in options.output:
        write_output(file, WRITERS[file.suffix](overview))
    if options.json:
        print(render_json(overview), end="")
    elif overview.records:
        print_text(render_markdown(overview) if options.full else render_text(overview, terminal_width()))
    else:
        of = f" of {', '.join(options.which)}" if options.which else ""
        print(f"there is no record{of} at any of these versions: nox -s operators -- --trt VERSION runs one")
    return code if overview.records else combine_exit_codes({code, ExitCode.NOTHING})


def _check_model(options: OperatorsOptions, file: Path) -> ExitCode:
    """Say what tests and repros know of a model's operators and nodes; exit code 1 where some are bad."""
    from trtmatrix.model.static_check import check_json, check_model, render_check
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.operators.models import check_operators, render_operators
    from trtmatrix.suite.repro_files import read_facts

    selected = options.project.selection
    records = read_operator_records(options.project.results)
    known = {record.version for record in records}
    if wrong := ", ".join(name for name in selected.versions if name not in known and not is_release(name)):
        raise UsageError(f"--trt {wrong}: no release of TensorRT such as 8.6.1, and no version with a record")
    measured = [record.version for record in records if record.product is Product.TENSORRT]
    versions = selected.versions or tuple(measured) or tuple(record.version for record in records)
    gpus = [slug_of(name) for name in selected.gpus]
    model = load_model(file)
    found = check_operators(model, file.name, records, versions, gpus)
    releases = [name for name in versions if is_release(name)]  # of other products repros know nothing
    facts = read_facts(options.project.repros)
    check = check_model(model, file.name, facts, releases, records=records) if releases else None
    code = ExitCode.SURPRISE if found.is_bad or (check and check.is_sure) else ExitCode.AS_EXPECTED
    if options.json:
        static = check_json(check) if check else None
        print(to_json({**asdict(found), "check": static, "exit_code": int(code)}), end="")
        return code
    print(render_operators(found, terminal_width()), end="")
    if check:
        print(f"\nWhat is known of its nodes beside that:\n{render_check(check, terminal_width())}", end="")
    return code


def select(suite: Suite, patterns: Sequence[str], limit: int) -> list[Case]:
    """Return the cases whose name or operator matches one of the patterns; at most ``limit`` (0: all).

    A limit takes cases from the whole suite, evenly. :class:`UsageError` where none matches.
    """
    cases = [case for case in suite.cases if is_chosen(case, patterns)]
    if not cases:
        none = f"no test of onnx {suite.onnx}, nor an operator, is called so"
        raise UsageError(f"--case {', '.join(patterns)}: {none}")
    return cases[:: max(1, -(-len(cases) // limit))] if limit else cases


def _run(
    context: Context, options: OperatorsOptions, suite: Suite, cases: Sequence[Case],
    stored: Sequence[OperatorRecord],
) -> tuple[list[OperatorRecord], ExitCode]:  # fmt: skip
    """Run what has no record of this suite; a run of a part is shown, and not kept."""
    check_writable({"--results": context.project.local, "--cache": context.project.cache})
    survey = take_survey(context, Pull.NAMED)
    whole = len(cases) == len(suite.cases)
    local = context.project.local
    mine = [r for r in stored if r.suite == suite.digest and whole and not options.rerun]
    done = {(record.gpu, record.version) for record in mine if not record.counts[Verdict.NOTHING]}
    begun = read_operator_records(context.project.results, PART) if whole else []
    begun += [record for record in mine if record.counts[Verdict.NOTHING]]
    launches = tuple(it for it in survey.plan.here if (it.gpu.slug, it.version.name) not in done)
    survey = replace(survey, plan=replace(survey.plan, launches=launches))
    for item in survey.plan.excluded:
        print(f"trtmatrix: {item.cell.version.name}: {item.why.value}: {item.detail}", file=sys.stderr)
    code = ExitCode.MACHINERY if survey.plan.excluded else ExitCode.AS_EXPECTED
    if not launches:
        return [], code
    processes = [options.workers or count_workers(launch.gpu) for launch in launches if launch.image]
    memory = min(MEMORY * (max(processes, default=0) + 1), free_memory())
    how = Options(memory=max(Options().memory, memory))
    survey = make_ready(context, survey, how)
    before = {(record.gpu, record.version): record for record in stored}
    records: list[OperatorRecord] = []

    def keep(fresh: OperatorRecord) -> None:
        part = len(fresh.rows) < len(cases)
        record = fresh if part else fresh.after(before.get((fresh.gpu, fresh.version)))
        if whole:
            many = f": {len(record.rows):,} of {len(cases):,} cases" if part else ""
            progress.note(f"{record.version}: {write_record(local, record, part=part)}{many}")
        if lost := [row for row in record.rows.values() if row.verdict is Verdict.NOTHING]:
            again = "; the next run tries them again" if whole else ""
            many = f"{counted(len(lost), 'case')} without a result{again}"
            progress.note(f"{record.version}: {many}: {lost[0].detail}")
        records.append(record)

    with closing(open_progress(log=local / "last-operators.txt")) as progress:
        run = make_run(context, survey, how, progress)
        run_launches(
            run, survey.plan, suite, cases, options.workers, options.mps, options.seconds, stored, begun, keep
        )
    if any(record.counts[Verdict.NOTHING] for record in records):
        code = ExitCode.MACHINERY
    return records, ExitCode.MACHINERY if run.not_ready else code
