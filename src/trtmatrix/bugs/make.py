"""``bundle``: makes the archive that shows a failing cell to its maintainers, and verifies one.

All questions and checks come before the first second of work: what follows the answer asks nothing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.bugs.cell import find_cell, read_cell_id
from trtmatrix.bugs.gather import WHAT, Files, gather_files, recorded_of
from trtmatrix.bugs.issue import newest_known
from trtmatrix.bugs.redact import Redactor, known_values
from trtmatrix.bugs.verify import find_place, tell, verify_archive
from trtmatrix.common.archive import SUFFIX, check_name, write_archive, write_size
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.model import Product

GITHUB = 25_000_000
"""Bytes that GitHub takes as an attachment: https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/attaching-files."""


@dataclass(frozen=True, kw_only=True)
class MakeOptions:
    """Those of ``bundle make``."""

    project: ProjectOptions
    model: ModelOptions
    cell: str
    to: Path | None
    yes: bool
    no_verify: bool
    seconds: float
    json: bool


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Those of ``bundle verify``."""

    file: Path
    image: str
    trust: bool
    seconds: float
    json: bool


def verify_command(options: VerifyOptions) -> ExitCode:
    """Verify an archive."""
    outcome = verify_archive(options.file, options.seconds, image=options.image, trust=options.trust)
    print(json.dumps(vars(outcome), indent=1) if options.json else outcome.text)
    return ExitCode.AS_EXPECTED if outcome.verified else ExitCode.SURPRISE


def make_command(options: MakeOptions) -> ExitCode:
    """Check everything and ask, then write the archive of a failing cell and run it from itself alone."""
    cell = read_cell_id(options.cell)
    target = options.to or Path(f"{cell.repro}-{cell.case}-{cell.version}{SUFFIX}")
    check_name(target)
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"--to {target}: name a file in a folder that is there")
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("nobody can be asked here, as stdin is no terminal: add --yes to write the archive")
    found = find_cell(cell, options.project, options.model)
    if found.product is Product.TENSORRT_RTX or not found.manner:  # which says why it is not known
        raise UsageError(f"{found.entry.cell.id}: engines of TensorRT-RTX are built here, and not run")
    project, given = found.context.project, filter(None, (options.model.model, options.model.inputs))
    folders = [project.cache, project.matrix.resolve().parent, project.repros.resolve()]
    folders += [path.resolve().parent for path in given]
    kept = [str(found.entry.cell.id), newest_known(found.product)]  # and all versions' numbers
    kept += [str(part) for v in found.context.matrix.versions for part in (v.name, v.library.value)]
    kept += [str(entry.record.observed.get("library")) for entry in found.row if entry.record]
    redactor = Redactor(known=known_values(folders), keep=frozenset(filter(None, kept)))
    place = None if options.no_verify else find_place(recorded_of(found, redactor))
    weights = "\nTHE WEIGHTS OF YOUR OWN MODEL GO OUT with it." if found.own_model else ""
    then = "" if place is None else " and run in a fresh environment"
    tell(
        f"{target} will be written{then}: what an engineer needs to see {found.entry.cell.id} fail.\n"
        "It holds the graph, its inputs, the reference and what ran it. Names, paths, addresses and "
        "tokens that this host is known by or that look private are taken out: look through it yourself, "
        f"too.{weights}"
    )
    if not options.yes:
        print("Write it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            tell(f"nothing was written to {target}")
            return ExitCode.SURPRISE

    files = gather_files(found, target.name, redactor)
    tell(listing(files, redactor))
    written = write_archive(target, files)
    if written.size > GITHUB:
        tell(f"{write_size(written.size)} is more than GitHub takes (25 MB): put it elsewhere")
    outcome = None if place is None else verify_archive(target, options.seconds, place)
    if options.json:
        data = {
            "file": str(written.file), "sha256": written.sha256, "size": written.size, "names": sorted(files),
            "verify": vars(outcome) if outcome else None,
        }  # fmt: skip
        print(json.dumps(data, indent=1))
    else:
        print(f"{written.file}: {write_size(written.size)}, sha256 {written.sha256}")
        print(outcome.text if outcome else "not verified: bundle verify FILE does that")
    return ExitCode.AS_EXPECTED if outcome is None or outcome.verified else ExitCode.SURPRISE


def listing(files: Files, redactor: Redactor) -> str:
    """Return what goes out, a line for each file, and what was taken out of it."""
    lines = ["What goes out:"]
    lines += [f"  {name:13}  {write_size(len(files[name])):>8}  {WHAT[name]}" for name in files]
    taken = [f"  {name}: {redactor.told(name)}" for name in sorted({file for file, _ in redactor.taken})]
    lines.append("Taken out as private:" if taken else "Nothing private was found in it.")
    return "\n".join([*lines, *taken])
