"""The commands that look at the host: each reads, calls, prints, and returns an exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.cli.reporting import check_files, show
from trtmatrix.common.errors import ExitCode, UsageError, combine_exit_codes
from trtmatrix.judge.compare import exit_codes
from trtmatrix.launchers.container import Limits
from trtmatrix.plan.context import Context, open_context
from trtmatrix.plan.scene import entries_of, look_around
from trtmatrix.run.perform import (
    Options,
    Result,
    find_stale,
    is_current_fact,
    perform,
    served_cells,
)
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.outcome import Evidence
from trtmatrix.suite.plan import Host, Isolation, Keep, Pull

if TYPE_CHECKING:  # where no cluster is asked for, none of its code is imported
    from trtmatrix.slurm.cluster import Cluster

MODEL_OPTIONS = ("model", "inputs", "atol", "rtol", "profile")


def run_command(args: argparse.Namespace) -> ExitCode:
    """Run what can be run here, print the tables."""
    check_files(args.output)
    context, cluster = open_where(args, open_model_context(args))
    scene = look_around(context, Pull(args.pull), cluster)
    tell_of_engine(context, scene.host)
    options = options_of(args)
    if args.stale:
        from trtmatrix.plan.stale import stale_json, stale_text

        findings = find_stale(context, scene, options)
        print(json.dumps(stale_json(findings), indent=1) if args.json else stale_text(findings))
        return ExitCode.AS_EXPECTED
    if args.plan:
        from trtmatrix.run.planning import print_plan

        print_plan(context, scene, served_cells(context, scene, options), options, as_json=args.json)
        return ExitCode.AS_EXPECTED
    started = time.monotonic()
    result = perform(context, scene, options)
    show(args, context, scene, result.entries, time.monotonic() - started)
    gpus = scene.cluster_host.gpus if scene.cluster_host is not None else scene.host.gpus
    return combine_exit_codes(run_codes(context.selection, gpus, result))


def open_where(args: argparse.Namespace, context: Context) -> tuple[Context, Cluster | None]:
    """Return the cluster whose GPUs are meant, with its images in the context; none where this host's are."""
    if args.executor != "slurm":
        return context, None
    from trtmatrix.slurm.cluster import open_cluster

    return open_cluster(args, context)


def tell_of_engine(context: Context, host: Host) -> None:
    """Say why the engine that was asked for by name cannot be used: cells of other runtimes may still run."""
    if context.engine != "auto" and not host.engine.available:
        print(f"trtmatrix: --engine {context.engine}: {host.engine.reason}", file=sys.stderr)
        print(f"  {host.engine.remedy}", file=sys.stderr)


def open_model_context(args: argparse.Namespace) -> Context:
    """Read the project; where a model was named, its repro stands in place of the others."""
    context = open_context(args)
    if not any(getattr(args, name, None) for name in MODEL_OPTIONS):
        return context
    from trtmatrix.model.own_model import notes_of, with_model

    opened = with_model(context, args)
    for told in notes_of(opened):
        print(f"{args.model.name}: {told}", file=sys.stderr)
    return opened


def run_codes(selection: Selection, gpus: Sequence[Gpu], result: Result) -> set[ExitCode]:
    """Return the exit codes of a run; a control that could not be made ready is told of, and no trouble."""
    codes = exit_codes(
        result.entries, by_name=selection.by_name, gpu_here=bool(gpus),
        ran=bool(result.performed.records or result.served), gpu_named=bool(selection.gpus),
    )  # fmt: skip
    if any(not item.cell.companion for item in result.performed.not_ready):
        codes.add(ExitCode.MACHINERY)
    return codes


def options_of(args: argparse.Namespace) -> Options:
    """Return how cells are run; a container's scratch is memory too, and never more than that."""
    scratch = min(Limits().scratch, args.memory)
    return Options(
        limits=Limits(memory=args.memory, output=args.output_size, scratch=scratch), rerun=args.rerun,
        rebuilds=args.rebuilds, confirm=not args.no_confirm, isolation=Isolation(args.isolation),
        keep=Keep(args.keep), locked=args.locked,
    )  # fmt: skip


def table_command(args: argparse.Namespace) -> ExitCode:
    """Print the tables from stored records."""
    check_files(args.output)
    context, cluster = open_where(args, open_model_context(args))
    scene = look_around(context, Pull.NEVER, cluster)
    entries = entries_of(context, scene, scene.stored)
    show(args, context, scene, entries)
    shown = [entry for entry in entries if entry.evidence in {Evidence.MEASURED, Evidence.RECORDED}]
    if not shown:
        return ExitCode.NOTHING
    return ExitCode.SURPRISE if any(entry.surprise for entry in shown) else ExitCode.AS_EXPECTED


def doctor_command(args: argparse.Namespace) -> ExitCode:
    """Say what was found here and what that lets run, and run the controls alone."""
    from trtmatrix.images.doctor import doctor_json, doctor_text, examine
    from trtmatrix.images.rules import Level
    from trtmatrix.run.controls import run_controls

    context = open_context(args)
    if args.executor == "slurm":
        from trtmatrix.slurm.doctor import examine_site

        findings = examine_site(args, context)
    else:
        findings = examine(context, look_around(context, Pull.NAMED))
    if context.controls:
        findings = replace(findings, controls=run_controls(context))
    print(json.dumps(doctor_json(findings), indent=1) if args.json else doctor_text(findings))
    decisive = (*findings.controls, *(findings.findings if args.executor == "slurm" else ()))
    wrong = any(finding.level is Level.TROUBLE for finding in decisive)
    return ExitCode.MACHINERY if wrong else ExitCode.AS_EXPECTED


def prepare_command(args: argparse.Namespace) -> ExitCode:
    """Write one case's files to a folder."""
    import shutil

    from trtmatrix.prepare.cases import CaseCache

    context = open_context(args)
    repro_id, _, case_id = args.which.partition("/")
    loaded = context.repros.get(repro_id)
    case = next((c for c in loaded.repro.cases if c.id == case_id), None) if loaded else None
    if loaded is None or case is None:
        raise UsageError(f"{args.which}: no such case; python -m trtmatrix list shows all")
    target: Path = args.to or Path(case.id)
    if target.exists():
        raise UsageError(f"{target} is there already: name another folder by --to")
    shutil.copytree(CaseCache(context.project.cache).prepare(loaded, case), target)
    print(f"{target}: run it by hand with\n  python {loaded.file} --files {target}")
    return ExitCode.AS_EXPECTED


def publish_command(args: argparse.Namespace) -> ExitCode:
    """Publish the records that the current verdict of each selected cell rests on."""
    from trtmatrix.records.store import publish

    context, cluster = open_where(args, open_context(args))
    scene = look_around(context, Pull.NEVER, cluster)
    facts = [e for e in entries_of(context, scene, scene.stored) if is_current_fact(e)]
    local = context.project.local.resolve()
    records = [
        r for e in facts for r in (*e.records, *e.set_aside) if local in Path(r.file).resolve().parents
    ]
    new = publish(context.project.results, records)
    print("\n".join(str(path) for path in new) or "nothing new to publish")
    return ExitCode.AS_EXPECTED if records else ExitCode.NOTHING


def remeasure_command(args: argparse.Namespace) -> ExitCode:
    """Measure kept outputs again where the case has defects or a noise that their records do not know."""
    from trtmatrix.run.remeasure import remeasure, remeasured_text

    context = open_context(args)
    scene = look_around(context, Pull.NEVER)
    print(remeasured_text(remeasure(context, entries_of(context, scene, scene.stored))))
    return ExitCode.AS_EXPECTED
