"""The command ``report``: the whole matrix from stored records; and writing tables to the files asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trtmatrix.cli.options import ReportOptions
    from trtmatrix.judge.entry import Entry

TABLES = (".md", ".html", ".json", ".xml", ".txt")
REPORTS = (".html", ".md", ".json")


def report_command(options: ReportOptions) -> ExitCode:
    """Write the report; nothing is run. The exit code is that of ``table``."""
    from trtmatrix.cli.commands import shown_code, stored_entries

    files = options.output or (Path("report.html"),)
    check_files(files, REPORTS)
    entries = stored_entries(options.project, options.where)
    for file in files:
        text = render_report(entries) if file.suffix == ".html" else render_tables(file.suffix, entries)
        write_file(file, text)
        print(file)
    code, shown, surprises = shown_code(entries)
    if code is ExitCode.NOTHING:
        print("there is no record of any of these cells: nox -s matrix runs what can be run here")
    if surprises:
        print(f"{surprises} of {shown} cells are not as expected: see what needs attention")
    return code


def check_files(files: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Refuse an output whose format is not known, or whose folder is not there, before anything else."""
    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(suffixes)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}; make it, or name another")
        if file.is_dir():
            raise UsageError(f"--output {file} is a folder: name a file in it")


def write_file(file: Path, content: str) -> None:
    """Write an output; ``UsageError`` where the file cannot be written."""
    try:
        file.write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(
            f"--output {file}: cannot be written: {error.strerror}; name another file"
        ) from error


def render_tables(suffix: str, entries: Sequence[Entry], *, all_rows: bool = False) -> str:
    """Return the tables in the format of a file's suffix; none means this terminal."""
    match suffix:
        case ".md":
            from trtmatrix.tables.render_markdown import render_markdown

            return render_markdown(entries, all_rows=all_rows)
        case ".html":
            from trtmatrix.tables.render_html import render_html

            return render_html(entries, generated=_now())
        case ".json":
            from trtmatrix.tables.render_data import render_json

            return render_json(entries, generated=_now())
        case ".xml":
            from trtmatrix.tables.render_data import render_junit

            return render_junit(entries)
        case _:
            from trtmatrix.tables.render_text import render_text

            colour = not suffix and sys.stdout.isatty() and "NO_COLOR" not in os.environ
            return render_text(entries, colour=colour, all_rows=all_rows)


def render_report(entries: Sequence[Entry]) -> str:
    """Return the report as a page with filters and plots."""
    from trtmatrix.judge.calibration import read_calibration
    from trtmatrix.tables.matrix_plots import make_plots
    from trtmatrix.tables.render_report_html import render_report_html

    plots = make_plots(entries, read_calibration())
    return render_report_html(entries, plots, generated=_now(), again="nox -s report")


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
