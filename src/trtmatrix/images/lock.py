"""``lock``: asks registries what matrix.yaml's images stand for now, and writes it into matrix.lock."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from trtmatrix.common.deadline import ask_all
from trtmatrix.common.errors import ConfigError, ExitCode, MachineryError, UsageError, combine_exit_codes
from trtmatrix.common.file_lock import hold_folder
from trtmatrix.images.changes import (
    Answer,
    Finding,
    Unresolved,
    Wanted,
    covers,
    find_changes,
    find_unused,
    is_held,
    lock_json,
    lock_text,
    needs_decision,
    unanswered,
    updated,
)
from trtmatrix.images.image_facts import Agreement, FactCheck, check_facts
from trtmatrix.images.pins import asked_base, read_builds
from trtmatrix.launchers.lock import Lock, LockedImage, mirrored
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.plan.context import Context, open_context, own_platform, read_lock
from trtmatrix.plan.lockfile import format_matrix_lock, parse_matrix_lock
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.image_names import is_own
from trtmatrix.suite.matrix import ImageOrigin, Version, repository_of

HOURS = 3600.0
"""How long all registries together may take: each question has limits of its own."""


class Asked(Protocol):
    """What answers for registries: :class:`trtmatrix.images.registry.Registry`."""

    def resolve(self, image: str, ask: str | None = None) -> LockedImage:
        """Return what an image's name stands for now."""
        ...


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
    from trtmatrix.images.registry import Registry
    from trtmatrix.launchers.docker_engine import find_engine

    context = open_context(args)
    if context.offline:
        raise UsageError("lock asks registries, which --offline forbids\n  run it on a host with a network")
    registry = Registry(insecure=find_engine(gpu_here=False).insecure)
    looked = look(context, registry)
    written = update_lock(context.project.lock, read_lock, looked.take) if args.update else None
    show = lock_json if args.json else lock_text
    told = show(looked.findings, looked.facts, str(context.project.lock), written)
    print(json.dumps(told, indent=1) if args.json else told)
    return combine_exit_codes(exit_codes_of(looked, update=args.update))


def look(context: Context, registry: Asked) -> Looked:
    """Ask for the selected versions' images and read what our own are made of; writes nothing.

    Raises :class:`ConfigError` where a lock of wheels has mistakes.
    """
    old, versions = context.lock, select_versions(context.matrix, context.selection)
    wanted = find_wanted(versions, context)
    asked = {image: mirrored(image, context.matrix.registry) for image in wanted.images}
    if asked:
        _note(f"asking for {len(asked)} images")
    answers = resolve_all(registry, asked)
    found = find_changes(old, wanted, answers, _ask_for_locked(registry, _moved(old, answers), asked))
    # What no version needs any more goes, but not where only some versions were looked at.
    chosen = context.selection.versions or context.selection.runtimes
    used = None if chosen else find_wanted(context.matrix.versions, context)
    unused = find_unused(old, used) if used is not None else ()
    take = partial(updated, wanted=wanted, answers=answers, used=used, known=old)
    lock = take(old)
    facts = tuple(check for version in versions for check in check_facts(version, lock, own_platform()))
    return Looked(findings=(*found, *unused), facts=facts, take=take)


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


def resolve_all(registry: Asked, images: Mapping[str, str | None]) -> dict[str, Answer]:
    """Return the answer for each image. ``images``: name → what is asked for it, where that is a mirror's."""

    def resolve(image: str) -> Answer:
        try:
            return registry.resolve(image, images[image])
        except RegistryError as error:
            return Unresolved(trouble=error.trouble, message=str(error))

    return ask_all(resolve, list(images), seconds=HOURS, note=lambda _: None)


def _moved(lock: Lock, answers: Mapping[str, Answer]) -> Iterator[LockedImage]:
    """Yield the locked images whose tag stands for another now, or is gone."""
    for image, answer in answers.items():
        old = lock.images.get(image)
        if old is None:
            continue
        if answer.trouble is Trouble.MISSING if isinstance(answer, Unresolved) else not covers(old, answer):
            yield old


def _ask_for_locked(
    registry: Asked, images: Iterable[LockedImage], asked: Mapping[str, str | None]
) -> dict[str, bool]:
    """Return by image whether the registry has what runs pull by digest, where it says so."""
    references: list[tuple[LockedImage, dict[str, str]]] = []
    for image in images:
        repository = repository_of(asked[image.image] or image.image)
        references.append((image, {p.manifest: f"{repository}@{p.manifest}" for p in image.platforms}))
    answers = resolve_all(registry, {ref: None for _, its in references for ref in its.values()})
    held = {
        image.image: is_held(image, {manifest: answers[ref] for manifest, ref in its.items()})
        for image, its in references
    }
    return {image: there for image, there in held.items() if there is not None}


def _note(text: str) -> None:
    print(f"trtmatrix: {text}", file=sys.stderr, flush=True)


def update_lock(path: Path, read: Callable[[Path], Lock], change: Callable[[Lock], Lock]) -> bool:
    """Change what a lock has at this moment; no other update gets in between. Returns whether it changed.

    ``read``: reads the file. Raises what it raises, and what :func:`write_lock` does.
    """
    folder = path.resolve().parent
    # What cannot be written is told by the writing.
    with hold_folder(folder) if folder.is_dir() else contextlib.nullcontext():
        return write_lock(path, change(read(path)))


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock where its text is another than the file's; returns whether it was.

    :class:`MachineryError` where it cannot be written, or could not be read again (a registry may say
    anything); the old file is then as it was.
    """
    text = format_matrix_lock(lock)
    try:
        parse_matrix_lock(text, str(path))
    except ConfigError as error:
        told = "\n  ".join(error.problems[:-1])
        raise MachineryError(
            f"{path} is as it was: what was resolved cannot be kept in it\n  {told}\n"
            "  the registry says what no image should have; leave that version out by --trt"
        ) from error
    target = path.resolve()  # a link stays one
    try:
        if target.read_text(encoding="utf-8") == text if target.exists() else lock == Lock():
            return False
        _replace(target, text.encode())
    except OSError as error:
        raise MachineryError(
            f"{path} cannot be written: {error.strerror}; it is as it was\n"
            "  check the folder's rights and its free disk, then run it again: nox -s lock -- --update"
        ) from error
    return True


def _replace(target: Path, text: bytes) -> None:
    descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
            mask = os.umask(0o077)
            os.umask(mask)
            os.fchmod(out.fileno(), target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
