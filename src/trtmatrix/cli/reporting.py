"""The command ``report``: the whole matrix from stored records, as a page with filters, or as text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trtmatrix.judge.entry import Entry

SUFFIXES = (".html", ".md", ".json")
DEFAULT = Path("report.html")


def report_command(args: argparse.Namespace) -> ExitCode:
    """Write the report; nothing is run. The exit code is that of ``table``."""
    from trtmatrix.cli.commands import open_where
    from trtmatrix.plan.context import open_context
    from trtmatrix.plan.scene import entries_of, look_around
    from trtmatrix.suite.outcome import Evidence
    from trtmatrix.suite.plan import Pull

    files = list(args.output) or [DEFAULT]
    check_files(files)
    context, cluster = open_where(args, open_context(args))
    scene = look_around(context, Pull.NEVER, cluster)
    entries = entries_of(context, scene, scene.stored)
    for file in files:
        write_file(file, render(file.suffix, entries))
        print(file)
    shown = [entry for entry in entries if entry.evidence in {Evidence.MEASURED, Evidence.RECORDED}]
    if not shown:
        print("there is no record of any of these cells: nox -s matrix runs what can be run here")
        return ExitCode.NOTHING
    surprises = sum(entry.surprise for entry in shown)
    if surprises:
        print(f"{surprises} of {len(shown)} cells are not as expected: see what needs attention")
    return ExitCode.SURPRISE if surprises else ExitCode.AS_EXPECTED


def check_files(files: Sequence[Path], suffixes: Sequence[str] = SUFFIXES) -> None:
    """Refuse an output whose format is not known, or whose folder is not there, before anything else."""
    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(suffixes)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}; make it, or name another")
        if file.is_dir():
            raise UsageError(f"--output {file} is a folder: name a file in it")


def write_file(file: Path, content: str) -> None:
    """Write a report; ``UsageError`` where the file cannot be written."""
    try:
        file.write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(
            f"--output {file}: cannot be written: {error.strerror}; name another file"
        ) from error


def render(suffix: str, entries: Sequence[Entry]) -> str:
    """Return the report in the format of a file's suffix."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if suffix == ".md":
        from trtmatrix.tables.render_markdown import render_markdown

        return render_markdown(entries)
    if suffix == ".json":
        from trtmatrix.tables.render_data import render_json

        return render_json(entries, generated=now)
    from trtmatrix.judge.calibration import read_calibration
    from trtmatrix.tables.matrix_plots import make_plots
    from trtmatrix.tables.render_report_html import render_report_html

    plots = make_plots(entries, read_calibration())
    return render_report_html(entries, plots, generated=now, again="nox -s report")
