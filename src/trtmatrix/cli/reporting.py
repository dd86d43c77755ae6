"""What ``run``, ``table`` and ``report`` print and write: the answer on a screen, files of each format."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import write_output
from trtmatrix.judge.entry import Entry
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import Context, ProjectOptions
from trtmatrix.plan.survey import Survey
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Pull, make_plan

SUFFIXES = (".html", ".md", ".json", ".xml", ".txt")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Those of ``report``; ``executor``: whose GPUs are meant, this host's or a cluster's by its ``site``."""

    project: ProjectOptions
    executor: str
    site: Path | None
    output: tuple[Path, ...]

    def command(self, session: str) -> str:
        """Return the command that asks for the same cells."""
        selected, words = self.project.selection, list[str]()
        for name, values in (
            ("trt", selected.versions), ("repro", selected.repros), ("gpu", selected.gpus),
            ("case", selected.cases), ("runtime", selected.runtimes),
        ):  # fmt: skip
            words += [f"--{name}", ",".join(values)] if values else []
        words += ["--executor", self.executor] if self.executor == "slurm" else []
        return f"nox -s {session}" + (f" -- {shlex.join(words)}" if words else "")


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReportOptions):
    """Those of ``table``."""

    model: ModelOptions
    full: bool
    json: bool

    @property
    def log(self) -> Path | None:
        """Where all lines and rows of a run go; tasks of a cluster share a folder, and none has its own."""
        return (
            None if "SLURM_ARRAY_TASK_ID" in os.environ else self.project.results / "local" / "last-run.txt"
        )


def check_files(files: Sequence[Path], suffixes: Sequence[str] = SUFFIXES) -> None:
    """Refuse an output whose format is not known, or whose folder is not there, before anything else."""
    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(suffixes)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}; make it, or name another")
        if file.is_dir():
            raise UsageError(f"--output {file} is a folder: name a file in it")


def write_files(options: ReportOptions, entries: Sequence[Entry]) -> None:
    """Write the files asked for."""
    for file in options.output:
        write_output(file, render(file.suffix, entries, again=options.command("report")))


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

    ``seconds``: how long a run took, None of a mere look. A run that executed something adds every row to its
    log.
    """
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
    if options.json:
        text = render(".json", entries)
    elif options.full or options.project.selection.cases or options.model.model:
        text = render(".txt", entries)
    else:
        from trtmatrix.tables.answer import make_answer
        from trtmatrix.tables.screen import render_screen, terminal_width

        again, cost = options.command("matrix"), _cost(context, survey, entries)
        answer = make_answer(entries, again=again, seconds=seconds, cost=cost)
        text = render_screen(answer, width=terminal_width(), details=details)
    with contextlib.suppress(BrokenPipeError):  # the exit code stays what the cells say
        if sys.stdout.isatty() and not options.json:
            from trtmatrix.tables.screen import print_coloured

            print_coloured(text)
        else:
            print(text, end="", flush=True)


def _cost(context: Context, survey: Survey, entries: Sequence[Entry]) -> str:
    """Return what it takes to pull the images that are not here: how many, GB, and time as far as known."""
    absent = {Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT}
    cells = [e.cell for e in entries if e.excluded is not None and e.excluded.why in absent]
    if not cells:
        return ""
    from trtmatrix.run.perform import image_words

    launches = make_plan(cells, survey.host, context.selection, Pull.ALL).launches
    return image_words(launches, context, survey.host.engine)
