"""The commands that look at the host: each reads, calls, prints, and returns an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.cli.options import HostCommand, RunOptions, TableOptions, Where
from trtmatrix.cli.reporting import check_files, show
from trtmatrix.common.errors import ExitCode, combine_exit_codes
from trtmatrix.judge.compare import Entry, exit_codes
from trtmatrix.model import own_model
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.stale import find_reason
from trtmatrix.plan.survey import Survey, entries_of, take_survey
from trtmatrix.run.perform import Result, find_stale, perform, served_among
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.model import Evidence, Gpu
from trtmatrix.suite.plan import Host, Pull

if TYPE_CHECKING:  # where no cluster is asked for, none of its code is imported
    from trtmatrix.slurm.cluster import Cluster


def run_command(options: RunOptions) -> ExitCode:
    """Run what can be run here, print the tables."""
    check_files(options.output)
    context, cluster = open_where(open_model(options.project, options.model), options.where, options.memory)
    survey, how = take_survey(context, options.pull, cluster), options.how
    tell_of_engine(context, survey.host)
    if options.stale:
        from trtmatrix.plan.stale import stale_json, stale_text

        findings = find_stale(context, survey, how)
        print(json.dumps(stale_json(findings), indent=1) if options.json else stale_text(findings))
        return ExitCode.AS_EXPECTED
    executor = None
    if cluster is not None:
        from trtmatrix.slurm.executor import SlurmExecutor

        executor = SlurmExecutor(cluster, context, survey, how)
    if options.plan:
        from trtmatrix.run.planned import plan_all, plan_json, plan_text

        served = served_among(entries_of(context, survey, survey.stored), how)
        planned = plan_all(context, survey, served, how, executor)
        print(json.dumps(plan_json(planned), indent=1) if options.json else plan_text(planned))
        return ExitCode.AS_EXPECTED
    started = time.monotonic()
    result = perform(context, survey, how, executor)
    show(options, context, survey, result.entries, time.monotonic() - started)
    return combine_exit_codes(run_codes(context.selection, survey.gpus, result))


def table_command(options: TableOptions) -> ExitCode:
    """Print the tables from stored records."""
    check_files(options.output)
    context, survey, entries = stored_entries(options.project, options.where, options.model)
    show(options, context, survey, entries)
    return shown_code(entries)[0]


def publish_command(options: HostCommand) -> ExitCode:
    """Publish the records that the current verdict of each selected cell rests on.

    That is what was measured here, with what is here now, and is a fact: trouble with the machinery, and
    what hangs on memory or set-up, is tried again; a crash, a time-out or a failed build is a fact.
    """
    from trtmatrix.records.store import publish

    context, cluster = open_where(open_context(options.project), options.where)
    survey = take_survey(context, Pull.NEVER, cluster)
    entries = entries_of(context, survey, survey.stored)
    facts = [entry for entry in entries if find_reason(entry, confirm=False) is None]
    local = context.project.local.resolve()
    records = [
        r for e in facts for r in (*e.records, *e.set_aside) if local in Path(r.file).resolve().parents
    ]
    new = publish(context.project.results, records)
    print("\n".join(str(path) for path in new) or "nothing new to publish")
    return ExitCode.AS_EXPECTED if records else ExitCode.NOTHING


def doctor_command(options: HostCommand) -> ExitCode:
    """Say what was found here and what that lets run, and run the controls alone."""
    from trtmatrix.images.doctor import doctor_text, examine
    from trtmatrix.images.rules import Level
    from trtmatrix.run.controls import run_controls

    context, on_site = open_context(options.project), options.where.executor == "slurm"
    if on_site:
        from trtmatrix.slurm.doctor import examine_site

        findings = examine_site(options.where.site, context)
    else:
        findings = examine(context, take_survey(context, Pull.NAMED))
    if context.controls:
        findings = replace(findings, controls=run_controls(context))
    print(json.dumps(asdict(findings), indent=1) if options.json else doctor_text(findings))
    decisive = (*findings.controls, *(findings.findings if on_site else ()))
    wrong = any(finding.level is Level.TROUBLE for finding in decisive)
    return ExitCode.MACHINERY if wrong else ExitCode.AS_EXPECTED


def open_model(project: ProjectOptions, model: ModelOptions) -> Context:
    """Read the project; where a model was named, its repro stands in place of the others."""
    context = open_context(project)
    opened = own_model.open_model(context, model)
    if model.model is not None:
        for told in own_model.notes_of(opened):
            print(f"{model.model.name}: {told}", file=sys.stderr)
    return opened


def open_where(context: Context, where: Where, memory: int = 0) -> tuple[Context, Cluster | None]:
    """Return the cluster whose GPUs are meant, with its images in the context; none where this host's are."""
    if where.executor != "slurm":
        return context, None
    from trtmatrix.slurm.cluster import open_cluster

    return open_cluster(where.site, memory, context)


def stored_entries(
    project: ProjectOptions, where: Where, model: ModelOptions | None = None
) -> tuple[Context, Survey, tuple[Entry, ...]]:
    """Return what stored records show of the selected cells, and what is here; nothing is run."""
    context = open_model(project, model) if model else open_context(project)
    context, cluster = open_where(context, where)
    survey: Survey = take_survey(context, Pull.NEVER, cluster)
    return context, survey, entries_of(context, survey, survey.stored)


def shown_code(entries: Sequence[Entry]) -> tuple[ExitCode, int, int]:
    """Return the exit code of what is shown from records, of how many cells, of which so many surprise."""
    shown = [entry for entry in entries if entry.evidence in {Evidence.MEASURED, Evidence.RECORDED}]
    surprises = sum(entry.surprise for entry in shown)
    if not shown:
        return ExitCode.NOTHING, 0, 0
    return ExitCode.SURPRISE if surprises else ExitCode.AS_EXPECTED, len(shown), surprises


def tell_of_engine(context: Context, host: Host) -> None:
    """Say why the engine that was asked for by name cannot be used: cells of other runtimes may still run."""
    if context.engine != "auto" and not host.engine.available:
        print(f"trtmatrix: --engine {context.engine}: {host.engine.reason}", file=sys.stderr)
        print(f"  {host.engine.remedy}", file=sys.stderr)


def run_codes(selection: Selection, gpus: Sequence[Gpu], result: Result) -> set[ExitCode]:
    """Return the exit codes of a run; a control that could not be made ready is told of, and no trouble."""
    codes = exit_codes(
        result.entries, by_name=selection.by_name, gpu_here=bool(gpus),
        ran=bool(result.records or result.served), gpu_named=bool(selection.gpus),
    )  # fmt: skip
    if any(not item.cell.companion for item in result.not_ready):
        codes.add(ExitCode.MACHINERY)
    return codes
