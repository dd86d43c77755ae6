"""``lock``: asks registries what matrix.yaml's images stand for now, and writes it into matrix.lock."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from trtmatrix.context import Context, open_context, own_platform, read_lock
from trtmatrix.core.config import ImageOrigin, Version, repository_of
from trtmatrix.core.errors import ExitCode, UsageError, combine_exit_codes
from trtmatrix.core.expand import select_versions
from trtmatrix.core.image_facts import Agreement, FactCheck, check_facts
from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import Lock, LockedImage, mirrored
from trtmatrix.core.lock_builds import asked_base
from trtmatrix.core.lock_changes import (
    Answer,
    Finding,
    Kind,
    Unresolved,
    Wanted,
    covers,
    find_changes,
    find_unused,
    held_findings,
    needs_decision,
    unanswered,
    updated,
)
from trtmatrix.core.registry import Trouble
from trtmatrix.core.render_lock import lock_json, lock_text
from trtmatrix.effects.asking_registries import Asked, resolve_all
from trtmatrix.effects.build_parts import read_builds


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What registries and the project's files say now.

    ``take``: puts what was resolved into a lock, into matrix.lock as it is when it is written.
    """

    findings: tuple[Finding, ...]
    facts: tuple[FactCheck, ...]
    take: Callable[[Lock], Lock]


def lock_command(args: argparse.Namespace) -> ExitCode:
    """Show what moved since matrix.lock was written; ``--update`` writes what was resolved."""
    from trtmatrix.effects.engine import find_engine
    from trtmatrix.effects.lock_store import update_lock
    from trtmatrix.effects.registry import Registry

    context = open_context(args)
    if context.offline:
        raise UsageError("lock asks registries, which --offline forbids\n  run it on a host with a network")
    registry = Registry(insecure=find_engine(gpu_here=False).insecure, note=_note)
    looked = look(context, registry)
    written = update_lock(context.project.lock, read_lock, looked.take) if args.update else None
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
    there, denied = _ask_for_locked(registry, _moved(context.lock, answers), asked)
    chosen = context.selection.versions or context.selection.runtimes
    used = None if chosen else find_wanted(context.matrix.versions, context)
    unused = find_unused(context.lock, used) if used is not None else ()
    take = partial(updated, wanted=wanted, answers=answers, used=used, known=context.lock)
    lock = take(context.lock)
    facts = (check for version in versions for check in check_facts(version, lock, own_platform()))
    found = find_changes(context.lock, wanted, answers, there)
    told = {(finding.subject, finding.platform) for finding in found if finding.kind is Kind.DENIED}
    more = [
        replace(finding, versions=wanted.images[finding.subject])
        for finding in denied if (finding.subject, finding.platform) not in told
    ]  # fmt: skip
    return Looked(
        findings=(*found, *more, *unused),
        facts=tuple(facts), take=take,
    )  # fmt: skip


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


def _moved(lock: Lock, answers: Mapping[str, Answer]) -> tuple[LockedImage, ...]:
    """Return the locked images whose tag stands for another now, or is gone."""
    found = []
    for image, answer in answers.items():
        old = lock.images.get(image)
        if isinstance(answer, Unresolved):
            moved = answer.trouble is Trouble.MISSING
        else:
            moved = old is not None and not covers(old, answer)
        if old is not None and moved:
            found.append(old)
    return tuple(found)


def _ask_for_locked(
    registry: Asked, images: Iterable[LockedImage], asked: Mapping[str, str | None]
) -> tuple[dict[str, bool], list[Finding]]:
    """Return by image whether the registry has what runs pull by digest, and what is other than locked."""
    references = [
        (
            image,
            {each.manifest: f"{_repository(image.image, asked)}@{each.manifest}" for each in image.platforms},
        )
        for image in images
    ]
    answers = resolve_all(registry, {ref: None for _, its in references for ref in its.values()})
    there: dict[str, bool] = {}
    denied: list[Finding] = []
    for image, its in references:
        has, others = held_findings(image, {manifest: answers[ref] for manifest, ref in its.items()})
        denied += others
        if has is not None:
            there[image.image] = has
    return there, denied


def _repository(image: str, asked: Mapping[str, str | None]) -> str:
    """Return where an image is asked for, without its tag."""
    return repository_of(asked[image] or image)


def _note(text: str) -> None:
    print(f"trtmatrix: {text}", file=sys.stderr, flush=True)
