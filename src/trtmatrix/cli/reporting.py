"""What ``run``, ``table`` and ``report`` print and write: the answer on a screen, the tables, the page."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.cli.options import IN_ARRAY
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.common.paths import Project, write_output, write_whole
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Pull, make_plan

if TYPE_CHECKING:
    from trtmatrix.cli.options import ReportOptions, TableOptions
    from trtmatrix.judge.entry import Entry
    from trtmatrix.plan.context import Context
    from trtmatrix.plan.survey import Survey

REPORT_SUFFIXES = (".html", ".md", ".json")
TABLE_SUFFIXES = (*REPORT_SUFFIXES, ".xml", ".txt")
PAGE = "report.html"


def report_command(options: ReportOptions) -> ExitCode:
    """Write the report; nothing is run. The exit code is that of ``table``."""
    from trtmatrix.cli.commands import shown_code, stored_entries

    files = options.output or (Path(PAGE),)
    check_files(files, REPORT_SUFFIXES)
    _, _, entries = stored_entries(options.project, options.where)
    for file in files:
        write_output(file, render(file.suffix, entries, again=_command(options, "report")))
        print(file)
    code, shown, surprises = shown_code(entries)
    if code is ExitCode.NOTHING:
        print("there is no record of any of these cells: nox -s matrix runs what can be run here")
    if surprises:
        print(f"{surprises} of {shown} cells are not as expected: see what needs attention")
    return code


def check_files(files: Sequence[Path], suffixes: Sequence[str] = TABLE_SUFFIXES) -> None:
    """Refuse an output whose format is not known, or whose folder is not there, before anything else."""
    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(suffixes)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}; make it, or name another")
        if file.is_dir():
            raise UsageError(f"--output {file} is a folder: name a file in it")


def render(suffix: str, entries: Sequence[Entry], *, again: str = "") -> str:
    """Return the tables in the format of a file's suffix; ``again``: the command that makes the page."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    match suffix:
        case ".md":
            from trtmatrix.tables.markdown import render_markdown

            return render_markdown(entries)
        case ".json":
            from trtmatrix.tables.render_data import render_json

            return render_json(entries, generated=now)
        case ".xml":
            from trtmatrix.tables.render_data import render_junit

            return render_junit(entries)
        case ".txt":
            from trtmatrix.tables.render_text import render_text

            return render_text(entries)
        case _:
            from trtmatrix.judge.calibration import read_calibration
            from trtmatrix.tables.plots import make_plots
            from trtmatrix.tables.render_html import render_html

            return render_html(entries, make_plots(entries, read_calibration()), generated=now, again=again)


def show(
    options: TableOptions, context: Context, survey: Survey, entries: Sequence[Entry],
    seconds: float | None = None,
) -> None:  # fmt: skip
    """Write the files asked for, and print the answer, or every row where that is asked for.

    ``seconds``: how long a run took, None of a mere look. A run that executed something leaves the page and
    the log too; where nothing was to be done, nothing is touched.
    """
    for file in options.output:
        text = render(file.suffix, entries, again=_command(options, "report"))
        write_output(file, text)
        print(f"trtmatrix: wrote {file}", file=sys.stderr)
    details = ["nox -s report", "--full prints every row"]
    # The tasks of a cluster share a folder: a page of each would be drawn for nobody.
    wanted = seconds is not None and not options.json and IN_ARRAY not in os.environ
    if wanted and any(entry.executed for entry in entries):
        details = [*_keep(options, context.project, entries), "--full prints every row"]
    if options.json:
        text = render(".json", entries)
    elif options.full or options.project.selection.cases or options.model.model:
        text = render(".txt", entries)
    else:
        from trtmatrix.tables.answer import make_answer
        from trtmatrix.tables.screen import render_screen, terminal_width

        answer = make_answer(
            entries, again=_command(options, "matrix"), seconds=seconds, cost=_cost(context, survey, entries)
        )
        text = render_screen(answer, width=terminal_width(), details=details)
    with contextlib.suppress(BrokenPipeError):  # the exit code stays what the cells say
        if sys.stdout.isatty() and not options.json:
            from trtmatrix.tables.screen import print_coloured

            print_coloured(text)
        else:
            print(text, end="", flush=True)


def _keep(options: TableOptions, project: Project, entries: Sequence[Entry]) -> list[str]:
    """Write the page of a run beside its records, and all rows into its log; return what could be written."""
    kept = []
    with contextlib.suppress(OSError):
        project.local.mkdir(parents=True, exist_ok=True)
        write_whole(project.page, render(".html", entries, again=_command(options, "report")))
        kept.append(str(project.page))
    with contextlib.suppress(OSError), project.log.open("a", encoding="utf-8") as log:
        log.write(f"\n{render('.txt', entries)}")
        kept.append(str(project.log))
    return kept


def _command(options: ReportOptions, session: str) -> str:
    """Return the command that asks for the same cells."""
    selected, words = options.project.selection, list[str]()
    for name, values in (
        ("trt", selected.versions), ("repro", selected.repros), ("gpu", selected.gpus),
        ("case", selected.cases), ("runtime", selected.runtimes),
    ):  # fmt: skip
        words += [f"--{name}", ",".join(values)] if values else []
    words += ["--executor", options.where.executor] if options.where.executor == "slurm" else []
    return f"nox -s {session}" + (f" -- {shlex.join(words)}" if words else "")


def _cost(context: Context, survey: Survey, entries: Sequence[Entry]) -> str:
    """Return what it takes to pull the images that are not here: how many, GB, and time as far as known."""
    absent = {Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT}
    cells = [e.cell for e in entries if e.excluded is not None and e.excluded.why in absent]
    if not cells:
        return ""
    from trtmatrix.run.planned import image_words

    launches = make_plan(cells, survey.host, context.selection, Pull.ALL).launches
    return image_words(launches, context, survey.host.engine)
