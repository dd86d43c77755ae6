"""The command bundle: makes the archive that shows a failing cell to its maintainers, and verifies one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.bundle.facts import SUFFIX
from trtmatrix.core.errors import ExitCode, MachineryError, UsageError

if TYPE_CHECKING:
    from trtmatrix.bundle_find import Found
    from trtmatrix.bundle_gather import Gathered
    from trtmatrix.core.bundle.facts import ChangeLine, LeftOut
    from trtmatrix.core.bundle.outcome import Verified
    from trtmatrix.core.redact import Secrets
    from trtmatrix.effects.archive import Written
    from trtmatrix.effects.packing import Packed


def bundle_command(args: argparse.Namespace) -> ExitCode:
    """Make an archive and verify it, or verify one."""
    return make_command(args) if args.action == "make" else verify_command(args)


def make_command(args: argparse.Namespace) -> ExitCode:
    """Write the archive of a failing cell; unless told not to, run it from itself alone."""
    from trtmatrix.bundle_find import find_cell
    from trtmatrix.bundle_gather import gather, with_attached, with_changes

    target = args.to or Path(default_name(args.cell))
    check_target(target)
    found = find_cell(args)
    attached = find_attachments(args.attach)
    gathered = gather(found, target.name.removesuffix(SUFFIX), args.dockerfile, tell)
    gathered = with_attached(with_changes(gathered, find_changes(args, found)), tuple(attached))
    secrets = secrets_of(args, gathered)
    packed, left_out = pack(gathered, attached, secrets)
    if not ask_first(args, gathered, packed, left_out, secrets):
        print(f"nothing was written to {target}", file=sys.stderr)
        return ExitCode.SURPRISE
    from trtmatrix.bundle_verify import outcome_file
    from trtmatrix.effects.archive import write_archive

    written = write_archive(target, packed, secrets, left_out=left_out)
    outcome_file(target).unlink(missing_ok=True)  # of an older archive of this name
    return conclude(args, gathered, written, left_out)


def conclude(
    args: argparse.Namespace, gathered: Gathered, written: Written, left_out: Sequence[LeftOut]
) -> ExitCode:
    """Verify what was written, unless told not to or nothing could run, and print both."""
    from trtmatrix.bundle_parts import external_files

    needed = {*NEEDED, *external_files(gathered.files)}
    lacking = [left.name for left in left_out if left.name in needed]
    if lacking:
        tell(f"not verified: {', '.join(lacking)} did not fit, and nothing runs without")
    if args.no_verify or lacking:
        show(args, written, None, left_out)
        return ExitCode.AS_EXPECTED
    from trtmatrix.bundle_judge import Known
    from trtmatrix.bundle_verify import verify_archive

    cell = gathered.found.entry.cell
    try:
        outcome = verify_archive(
            written.file, args.seconds, tell, Known(cell=cell, loaded=gathered.found.loaded)
        )
    except MachineryError as error:
        show(args, written, None, left_out)
        raise MachineryError(f"{written.file} is written, and could not be verified: {error}") from error
    show(args, written, outcome, left_out)
    return ExitCode.AS_EXPECTED if outcome.verified else ExitCode.SURPRISE


NEEDED = frozenset({"model.onnx", "inputs.npz", "extra.npz"})
"""Files without which nothing can be run."""


def verify_command(args: argparse.Namespace) -> ExitCode:
    """Run an archive from itself alone and say whether its failure comes back."""
    from trtmatrix.bundle_verify import verify_archive
    from trtmatrix.core.bundle.outcome import outcome_json, outcome_text

    outcome = verify_archive(args.file, args.seconds, tell, trust=args.trust)
    print(json.dumps(outcome_json(outcome), indent=1) if args.json else outcome_text(outcome).rstrip())
    return ExitCode.AS_EXPECTED if outcome.verified else ExitCode.SURPRISE


def default_name(cell: str) -> str:
    """Return what the archive of a cell is called."""
    from trtmatrix.bundle_find import read_cell_id

    found = read_cell_id(cell)
    return f"{found.repro}-{found.case}-{found.version}{SUFFIX}"


def check_target(target: Path) -> None:
    """Refuse a target that cannot be written, before anything runs."""
    from trtmatrix.effects.archive import check_name

    check_name(target)
    if not target.parent.is_dir():
        raise UsageError(f"--to {target}: there is no folder {target.parent}")
    if target.is_dir():
        raise UsageError(f"--to {target} is a folder: name a file")


def find_attachments(files: Sequence[Path]) -> dict[str, Path]:
    """Return the files that were asked for, by their names in the archive.

    :class:`UsageError` where one is not there or has the name of another.
    """
    from trtmatrix.core.bundle.facts import NAMES

    found: dict[str, Path] = {}
    for file in files:
        if not file.is_file():
            raise UsageError(
                f"--attach {file}: there is no such file; name an engine (.plan), or both files of an API "
                "capture (.json and .bin). ISSUE.md has the commands that make a capture from the archive"
            )
        if file.name in NAMES or file.name in found:
            raise UsageError(f"--attach {file}: the archive has a {file.name} already: rename yours")
        found[file.name] = file
    return found


def find_changes(args: argparse.Namespace, found: Found) -> tuple[ChangeLine, ...]:
    """Return what changes the failure: measured now, or what is stored of that."""
    from trtmatrix.changing import measure_changes

    lines: tuple[ChangeLine, ...] = measure_changes(found.context, found.entry, found.calibration, args, tell)
    return lines


def secrets_of(args: argparse.Namespace, gathered: Gathered) -> Secrets:
    """Return what must not go out of this host; the names of the cell and its image are wanted."""
    from trtmatrix.effects.private import known_secrets

    project, failure = gathered.found.context.project, gathered.failure
    folders = [project.cache, project.matrix.resolve().parent, project.repros.resolve()]
    folders += [folder.resolve().parent for folder in (args.model, args.inputs) if folder is not None]
    image = failure.image
    names = [str(failure.cell), *([image.name, image.id, image.reference, image.tag] if image else [])]
    environment = failure.environment
    versions = [
        environment.library,
        environment.bindings,
        environment.driver,
        environment.cuda,
        environment.cudnn,
    ]
    versions += [line.library for line in failure.versions]
    return known_secrets(folders, keep=[name for name in names if name], versions=[v for v in versions if v])


def pack(
    gathered: Gathered, attached: dict[str, Path], secrets: Secrets
) -> tuple[list[Packed], tuple[LeftOut, ...]]:
    """Return the files of the archive and what is not in it for want of room."""
    from trtmatrix.bundle_parts import data_parts, lacking_outputs, with_notes
    from trtmatrix.bundle_texts import text_parts
    from trtmatrix.effects.packing import choose_parts, pack_parts

    choice = choose_parts(pack_parts(data_parts(gathered, attached), secrets))
    noted = with_notes(gathered, lacking_outputs(gathered))
    return [*choice.kept, *pack_parts(text_parts(noted, choice), secrets)], choice.left_out


def ask_first(
    args: argparse.Namespace, gathered: Gathered, packed: Sequence[Packed], left_out: Sequence[LeftOut],
    secrets: Secrets,
) -> bool:  # fmt: skip
    """Show what goes out, and ask."""
    from trtmatrix.core.bundle.manifest import listing
    from trtmatrix.effects.asking import ask
    from trtmatrix.effects.private import warnings

    text = listing([file.item for file in packed], left_out, warnings(secrets))
    own = " with the weights of your model" if gathered.found.own_model else ""
    return ask(f"Write this{own}?", text, yes=args.yes, stdin=sys.stdin, stderr=sys.stderr)


def show(
    args: argparse.Namespace, written: Written, outcome: Verified | None, left_out: Sequence[LeftOut]
) -> None:
    """Print what was written and how its verification came out."""
    from trtmatrix.core.bundle.manifest import write_size
    from trtmatrix.core.bundle.outcome import outcome_json, outcome_text

    if args.json:
        data: dict[str, Any] = {
            "file": str(written.file), "sha256": written.sha256, "size": written.size,
            "names": list(written.names), "left_out": [left.name for left in left_out],
            "verify": outcome_json(outcome) if outcome else None,
        }  # fmt: skip
        print(json.dumps(data, indent=1))
        return
    print(f"{written.file}: {write_size(written.size)}, sha256 {written.sha256}")
    print(outcome_text(outcome).rstrip() if outcome else "not verified: bundle verify FILE does that")


def tell(text: str) -> None:
    """Tell of long work."""
    print(text, file=sys.stderr, flush=True)
