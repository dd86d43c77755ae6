"""``lock``: asks registries what matrix.yaml's images stand for now, and writes it into matrix.lock."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from trtmatrix.context import Context, open_context, own_platform
from trtmatrix.core.config import ImageOrigin, Version, repository_of
from trtmatrix.core.errors import ExitCode, UsageError, combine_exit_codes
from trtmatrix.core.expand import select_versions
from trtmatrix.core.image_facts import Agreement, FactCheck, check_facts
from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import Lock, mirrored
from trtmatrix.core.lock_builds import asked_base
from trtmatrix.core.lock_changes import (
    Answer,
    Finding,
    Unresolved,
    Wanted,
    find_changes,
    find_unused,
    needs_decision,
    unanswered,
    updated,
)
from trtmatrix.core.registry import Trouble
from trtmatrix.core.render_lock import lock_json, lock_text
from trtmatrix.effects.asking_registries import Asked, check_all, resolve_all
from trtmatrix.effects.build_parts import read_builds


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What registries and the project's files say now. ``lock``: matrix.lock as it would be written."""

    findings: tuple[Finding, ...]
    facts: tuple[FactCheck, ...]
    lock: Lock


def lock_command(args: argparse.Namespace) -> ExitCode:
    """Show what moved since matrix.lock was written; ``--update`` writes what was resolved."""
    from trtmatrix.effects.engine import find_engine
    from trtmatrix.effects.lock_store import write_lock
    from trtmatrix.effects.registry import Registry

    context = open_context(args)
    if context.offline:
        raise UsageError("lock asks registries, which --offline forbids\n  run it on a host with a network")
    registry = Registry(insecure=find_engine(gpu_here=False).insecure, note=_note)
    looked = look(context, registry)
    written = write_lock(context.project.lock, looked.lock) if args.update else None
    file = str(context.project.lock)
    show = lock_json if args.json else lock_text
    told = show(looked.findings, looked.facts, file, written)
    print(json.dumps(told, indent=1) if args.json else told)
    return combine_exit_codes(exit_codes_of(looked, update=args.update))


def look(context: Context, registry: Asked) -> Looked:
    """Ask for the selected versions' images and read what our own are made of; writes nothing.

    Raises :class:`ConfigError` where a lock of wheels has mistakes.
    """
    versions = select_versions(context.matrix, context.selection)
    wanted = find_wanted(versions, context)
    asked = {image: mirrored(image, context.matrix.registry) for image in wanted.images}
    if asked:
        _note(f"asking for {len(asked)} images")
    answers = resolve_all(registry, asked)
    there = check_all(registry, _moved(context.lock, asked, answers))
    chosen = context.selection.versions or context.selection.runtimes
    used = None if chosen else find_wanted(context.matrix.versions, context)
    unused = find_unused(context.lock, used) if used is not None else ()
    lock = updated(context.lock, wanted, answers, used)
    facts = (check for version in versions for check in check_facts(version, lock, own_platform()))
    return Looked(
        findings=(*find_changes(context.lock, wanted, answers, there), *unused), facts=tuple(facts), lock=lock
    )


def find_wanted(versions: Iterable[Version], context: Context) -> Wanted:
    """Return the images that registries are asked for, each with its versions, and the builds."""
    versions = tuple(versions)
    builds = read_builds(versions, context.project)
    images: dict[str, tuple[str, ...]] = {}
    local: dict[str, tuple[str, ...]] = {}
    for version in versions:
        if isinstance(version.origin, ImageOrigin):
            own = builds.get(version.name)
            image = asked_base(own.build) if own else version.origin.image
            if image is not None:
                kept = local if is_own(image) else images
                kept[image] = (*kept.get(image, ()), version.name)
    return Wanted(images=images, builds=builds, local=local)


def exit_codes_of(looked: Looked, *, update: bool) -> set[ExitCode]:
    """Return 3 where something could not be asked, 1 where something is to be decided and was not."""
    codes = {ExitCode.MACHINERY} if unanswered(looked.findings) else set()
    denied = any(check.agreement is Agreement.CONTRADICTED for check in looked.facts)
    if not update and (denied or needs_decision(looked.findings)):
        codes.add(ExitCode.SURPRISE)
    return codes


def _moved(lock: Lock, asked: dict[str, str | None], answers: dict[str, Answer]) -> dict[str, str]:
    """Return by image the locked digest, where its tag stands for another now or is gone."""
    references: dict[str, str] = {}
    for image, answer in answers.items():
        old = lock.images.get(image)
        if isinstance(answer, Unresolved):
            moved = answer.trouble is Trouble.MISSING
        else:
            moved = old is not None and old.digest != answer.digest
        if old is not None and moved:
            references[image] = f"{repository_of(asked[image] or image)}@{old.digest}"
    return references


def _note(text: str) -> None:
    print(f"trtmatrix: {text}", file=sys.stderr, flush=True)
