"""The commands: each reads, calls, prints, and returns an exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.context import Context, Scene, entries_of, look_around, open_context
from trtmatrix.core.compare import Entry, Stored, exit_codes
from trtmatrix.core.config import json_schema
from trtmatrix.core.container import Limits
from trtmatrix.core.errors import ExitCode, UsageError, combine_exit_codes
from trtmatrix.core.expand import select_cases, select_repros, select_versions
from trtmatrix.core.model import CellId, Evidence
from trtmatrix.core.plan import Pull
from trtmatrix.effects.cases import CaseCache
from trtmatrix.effects.gpu import clocks
from trtmatrix.effects.progress import Progress, open_progress
from trtmatrix.effects.repro_files import digest_package
from trtmatrix.effects.store import publish
from trtmatrix.run import Performed, Workshop, new_run_id, run_plan

SUFFIXES = (".md", ".html", ".json", ".xml", ".txt")


def run_command(args: argparse.Namespace) -> ExitCode:
    """Run what can be run here, print the tables."""
    check_outputs(args.output)
    context = open_context(args)
    scene = look_around(context, Pull(args.pull))
    entries = entries_of(context, scene, scene.stored)
    served = frozenset() if args.rerun else frozenset(e.cell.id for e in entries if is_served(e))
    if args.plan:
        from trtmatrix.planning import print_plan

        print_plan(context, scene, served, limits_of(args))
        return ExitCode.AS_EXPECTED
    performed = perform(args, context, scene, served)
    stored = [*scene.stored, *(Stored(record=record, local=True) for record in performed.records)]
    executed = frozenset(record.run for record in performed.records)
    entries = entries_of(context, scene, stored, performed.not_ready, executed)
    codes = exit_codes(
        entries, by_name=context.selection.by_name, gpu_here=bool(scene.host.gpus),
        ran=bool(performed.records or served), gpu_named=bool(context.selection.gpus),
    )  # fmt: skip
    if performed.not_ready:
        codes.add(ExitCode.MACHINERY)
    show(args, entries)
    return combine_exit_codes(codes)


def is_served(entry: Entry) -> bool:
    """Whether a cell's current record is shown instead of running it again.

    Trouble with the machinery, and what hangs on memory or set-up, is tried again; a crash, a
    time-out or a failed build of the cell itself is a fact.
    """
    cause = entry.outcome.cause if entry.outcome else None
    return entry.evidence is Evidence.MEASURED and not (cause and cause.may_pass)


def limits_of(args: argparse.Namespace) -> Limits:
    """Return the containers' limits as asked for; scratch is memory too, and never more than that."""
    scratch = min(Limits().scratch, args.memory)
    return Limits(memory=args.memory, output=args.output_size, scratch=scratch)


def perform(args: argparse.Namespace, context: Context, scene: Scene, served: frozenset[CellId]) -> Performed:
    """Remove leftovers of dead runs, then execute the plan."""
    from trtmatrix.effects.containers import remove_leftovers

    progress = open_progress()
    try:
        if scene.host.engine.available:
            for name in remove_leftovers():
                progress.note(f"removed the container {name}, whose run had died")
        shop = make_workshop(args, context, scene, progress)
        return run_plan(scene.plan, served, new_run_id(shop.clock), shop)
    finally:
        progress.close()


def make_workshop(args: argparse.Namespace, context: Context, scene: Scene, progress: Progress) -> Workshop:
    """Wire the launchers and the folders."""
    from trtmatrix.effects.containers import ContainerLauncher
    from trtmatrix.effects.interpreters import InterpreterLauncher

    project = context.project
    interpreters = InterpreterLauncher(project.cache, project.repros.resolve(), progress.note)
    containers = ContainerLauncher(
        engine=scene.host.engine, cache=project.cache, repros=project.repros,
        limits=limits_of(args), pull_note=progress.pull,
    )  # fmt: skip
    return Workshop(
        launchers={"container": containers, "wheels": interpreters, "host": interpreters},
        repros=context.repros, cases=CaseCache(project.cache), cache=project.cache,
        local=project.local, probe_digest=digest_package("trtprobe"), progress=progress,
        gpu_clocks=clocks, output_bytes=args.output_size,
    )  # fmt: skip


def table_command(args: argparse.Namespace) -> ExitCode:
    """Print the tables from stored records."""
    check_outputs(args.output)
    context = open_context(args)
    scene = look_around(context, Pull.NEVER)
    entries = entries_of(context, scene, scene.stored)
    show(args, entries)
    shown = [entry for entry in entries if entry.evidence in {Evidence.MEASURED, Evidence.RECORDED}]
    if not shown:
        return ExitCode.NOTHING
    return ExitCode.SURPRISE if any(entry.surprise for entry in shown) else ExitCode.AS_EXPECTED


def check_outputs(files: Sequence[Path]) -> None:
    """Refuse an output whose format is not known, before anything runs."""
    for file in files:
        if file.suffix not in SUFFIXES:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(SUFFIXES)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}")


def show(args: argparse.Namespace, entries: Sequence[Entry]) -> None:
    """Print the tables, and write them to the files asked for."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    for file in args.output:
        file.write_text(render(file.suffix, entries, args, now), encoding="utf-8")
    with contextlib.suppress(BrokenPipeError):  # the exit code stays what the cells say
        print(render(".json" if args.json else "", entries, args, now), end="", flush=True)


def render(suffix: str, entries: Sequence[Entry], args: argparse.Namespace, now: str) -> str:
    """Return the tables in the format of a file's suffix; none means this terminal."""
    import os

    from trtmatrix.core import render_data, render_html, render_markdown, render_text

    match suffix:
        case ".md":
            return render_markdown.render_markdown(entries, all_rows=args.all_rows)
        case ".html":
            return render_html.render_html(entries, generated=now)
        case ".json":
            return render_data.render_json(entries, generated=now)
        case ".xml":
            return render_data.render_junit(entries)
        case ".txt":
            return render_text.render_text(entries, all_rows=args.all_rows)
        case _:
            colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
            return render_text.render_text(entries, colour=colour, all_rows=args.all_rows)


def list_command(args: argparse.Namespace) -> ExitCode:
    """List versions, repros and cases."""
    from trtmatrix.core.render_list import list_json, list_text

    context = open_context(args)
    versions = select_versions(context.matrix, context.selection)
    rows = select_cases(select_repros(context.plain_repros, context.selection), context.selection)
    print(json.dumps(list_json(versions, rows), indent=1) if args.json else list_text(versions, rows))
    return ExitCode.AS_EXPECTED


def doctor_command(args: argparse.Namespace) -> ExitCode:
    """Say what was found here and what that lets run."""
    from trtmatrix.doctor import doctor_json, doctor_text, examine

    context = open_context(args)
    findings = examine(context, look_around(context, Pull.NAMED))
    print(json.dumps(doctor_json(findings), indent=1) if args.json else doctor_text(findings))
    return ExitCode.AS_EXPECTED


def prepare_command(args: argparse.Namespace) -> ExitCode:
    """Write one case's files to a folder."""
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
    """Publish the newest current record of each selected cell."""
    context = open_context(args)
    scene = look_around(context, Pull.NEVER)
    entries = entries_of(context, scene, scene.stored)
    records = [entry.record for entry in entries if is_served(entry) and entry.record is not None]
    new = publish(context.project.results, records)
    print("\n".join(str(path) for path in new) or "nothing new to publish")
    return ExitCode.AS_EXPECTED if records else ExitCode.NOTHING


def schema_command(args: argparse.Namespace) -> ExitCode:
    """Print the JSON Schema of matrix.yaml."""
    del args
    print(json.dumps(json_schema(), indent=2, sort_keys=True))
    return ExitCode.AS_EXPECTED


COMMANDS: dict[str, Callable[[argparse.Namespace], ExitCode]] = {
    "run": run_command, "table": table_command, "list": list_command, "doctor": doctor_command,
    "prepare": prepare_command, "publish": publish_command, "schema": schema_command,
}  # fmt: skip
