"""``lock``: asks registries what matrix.yaml's images stand for now, and writes it into matrix.lock."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from trtmatrix.common.errors import ConfigError, ExitCode, MachineryError, UsageError, combine_exit_codes
from trtmatrix.common.paths import hold_folder, whole_file
from trtmatrix.images import lock_report as report
from trtmatrix.images.lock_report import Wanted
from trtmatrix.images.pins import read_builds
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform, read_lock
from trtmatrix.plan.lockfile import Lock, LockedLayer, mirrored, parse_matrix_lock
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.plan import is_own

SECONDS = 3600.0
"""How long all registries together may take: each question has limits of its own."""


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """Those of ``lock``."""

    project: ProjectOptions
    update: bool
    json: bool


def lock_command(options: LockOptions) -> ExitCode:
    """Show what moved since matrix.lock was written; ``--update`` writes what was resolved.

    Returns 3 where something could not be asked, 1 where something is to be decided and was not.
    """
    from trtmatrix.images.registry import Registry, ask_registries
    from trtmatrix.launchers.docker_engine import find_engine

    context = open_context(options.project)
    if context.offline:
        raise UsageError("lock asks registries, which --offline forbids\n  run it on a host with a network")
    old, file = context.lock, context.project.lock
    versions = select_versions(context.matrix, context.selection)
    wanted = find_wanted(versions, context)
    registry = Registry(insecure=find_engine(gpu_here=False).insecure)
    asked = {image: mirrored(image, context.matrix.registry) or image for image in wanted.images}
    found = ask_registries(registry.resolve, list(asked.values()), seconds=SECONDS)
    answers = {image: found[reference] for image, reference in asked.items()}
    # What no version needs any more goes, but not where only some versions were looked at.
    chosen = context.selection.versions or context.selection.runtimes
    used = None if chosen else find_wanted(context.matrix.versions, context)
    lock = report.updated(old, wanted, answers, used)
    findings = list(report.find_changes(old, wanted, answers))
    findings += report.find_contradictions(versions, lock, own_platform())
    written = None
    if options.update:
        written = update_lock(file, lambda now: report.updated(now, wanted, answers, used))
    if options.json:
        print(json.dumps(report.lock_json(findings, str(file), written), indent=1))
    else:
        print(report.lock_text(findings, str(file), written))
    codes = {ExitCode.MACHINERY} if any(finding.kind in report.UNRESOLVED for finding in findings) else set()
    if not options.update and any(finding.decide for finding in findings):
        codes.add(ExitCode.SURPRISE)
    return combine_exit_codes(codes)


def find_wanted(versions: Sequence[Version], context: Context) -> Wanted:
    """Return the images that registries are asked for, each with its versions, and the builds.

    Raises :class:`ConfigError` where a lock of wheels has mistakes.
    """
    builds, images = read_builds(versions, context.project), dict[str, tuple[str, ...]]()
    for version in versions:
        if isinstance(version.origin, ImageOrigin):
            own = builds.get(version.name)
            image = own.build.base if own else version.origin.image
            if not is_own(image):  # no registry has those
                images[image] = (*images.get(image, ()), version.name)
    return Wanted(images=images, builds=builds)


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> bool:
    """Change what a lock has at this moment; no other update gets in between. Returns whether it changed.

    :class:`MachineryError` where it cannot be written, or could not be read again (a registry may say
    anything); the old file is then as it was.
    """
    target = path.resolve()  # a link stays one
    with hold_folder(target.parent) if target.parent.is_dir() else contextlib.nullcontext():
        old = read_lock(path)
        lock = change(old)
        text = format_matrix_lock(lock)
        if lock == old and (lock == Lock() or target.read_text(encoding="utf-8") == text):
            return False
        try:
            parse_matrix_lock(text, str(path))
            with whole_file(target) as out:
                out.write(text.encode())
        except (ConfigError, OSError) as error:
            what = f"{path} is as it was: what was resolved cannot be kept in it\n{error}"
            raise MachineryError(what) from error
    return True


# --- The file: one fact a line, in one order, so that git shows what changed

HEADER = """\
# Which image each name of matrix.yaml stood for. Written by `nox -s lock -- --update`, reviewed in git,
# never edited by hand.
#
# digest     what the name pointed at when it was resolved: an index of platforms, or one manifest
# manifest   what a platform is pulled by
# image_id   the digest of the image's configuration: survives docker save and load, where the others do not
# layers     as they lie in the registry, with their compressed sizes in bytes
# labels, environment   what the image says of itself about TensorRT, CUDA and the driver
# builds     what images of our own are made of: base, wheels and files by their SHA-256
"""


class _Flat(dict[str, Any]):
    """Keys that are written on one line."""


class _Writer(yaml.SafeDumper):
    """Writes each text on one line, quoted where it has more than plain letters."""


_Writer.add_representer(
    _Flat, lambda writer, value: writer.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)
)
_Writer.add_representer(
    str, lambda writer, value: writer.represent_scalar(
        "tag:yaml.org,2002:str", value, style=None if value.isprintable() and value.isascii() else '"'
    )
)  # fmt: skip


def format_matrix_lock(lock: Lock) -> str:
    """Return matrix.lock's text: the same for the same lock, whatever its order."""
    return HEADER + yaml.dump(_plain(lock), Dumper=_Writer, sort_keys=False, width=float("inf"))


def _plain(value: Any) -> Any:  # noqa: ANN401 - what YAML writes
    """Return names in order; a lone surrogate, which no file can hold, becomes a question mark."""
    if is_dataclass(value):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return _Flat(found) if isinstance(value, LockedLayer) else found
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
