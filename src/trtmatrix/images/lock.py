"""``lock``: asks registries what matrix.yaml's images stand for now, and writes it into matrix.lock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from trtmatrix.common.errors import ConfigError, ExitCode, MachineryError, UsageError, combine_exit_codes
from trtmatrix.common.options import flag
from trtmatrix.common.paths import hold_folder, whole_file
from trtmatrix.images.checks import gigabytes, locked_tensorrt
from trtmatrix.images.pins import BuildParts, build_differences, read_builds
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform, read_lock
from trtmatrix.plan.lockfile import Lock, LockedImage, LockedLayer, mirrored, parse_matrix_lock
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.plan import is_own

SECONDS = 3600.0
"""How long all registries together may take: each question has limits of its own."""
UPDATE = "nox -s lock -- --update"


class Drift(Enum):
    """What was found of an image or a build, and what that means."""

    LOCKED = "as locked"
    NEW = "not locked yet: nothing shows when what it stands for, or what it is made of, changes"
    MOVED = "tag moved to another image: runs stay with the locked one; --update makes its records stale"
    RETAGGED = "tag moved, what runs is the same: records stay current but with containerd's image store"
    MISSING = "not at the registry: a mistake in matrix.yaml, a mirror without it, or it was taken away"
    UNKNOWN = "could not be asked: the lock's entry stays as it was"
    CHANGED = "built of other parts: it is built anew, and its records are no longer current"
    UNHASHED = "wheels without SHA-256: nothing says that they are those meant, so the image is not built"
    CONTRADICTED = "another TensorRT than matrix.yaml says: no run in that image counts"


Answer = LockedImage | RegistryError


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was found of one image or build; ``versions`` use it, ``facts`` say what differs, a line each."""

    subject: str
    kind: Drift
    versions: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kind in one word."""
        return self.kind.name.lower()

    @property
    def is_unresolved(self) -> bool:
        """Whether a registry gave no image for it, and the lock has nothing new of it."""
        return self.kind in {Drift.MISSING, Drift.UNKNOWN}

    @property
    def decide(self) -> bool:
        """Whether somebody has to decide: it moved, or is not locked."""
        return self.kind is not Drift.LOCKED and not self.is_unresolved


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be locked: images with the versions that use them, builds by version."""

    images: Mapping[str, tuple[str, ...]]
    builds: Mapping[str, BuildParts]


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """Those of ``lock``."""

    project: ProjectOptions
    update: bool = flag("--update", "write the result to matrix.lock (default: only show it)")
    json: bool = flag("--json", "print JSON")


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
    findings = list(find_changes(old, wanted, answers))
    findings += find_contradictions(versions, updated(old, wanted, answers, used), own_platform())
    written = None
    if options.update:
        written = update_lock(file, lambda now: updated(now, wanted, answers, used))
    if options.json:
        print(json.dumps(lock_json(findings, str(file), written), indent=1))
    else:
        print(lock_text(findings, str(file), written))
    codes = {ExitCode.MACHINERY} if any(finding.is_unresolved for finding in findings) else set()
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


def find_changes(old: Lock, wanted: Wanted, answers: Mapping[str, Answer]) -> Iterator[Change]:
    """Yield a finding for each image and build that is wanted."""
    for image, versions in wanted.images.items():
        kind, told = _compare_image(old.images.get(image), answers[image])
        yield Change(subject=image, kind=kind, versions=versions, facts=tuple(told))
    for version, parts in wanted.builds.items():
        made, locked, facts = parts.build, old.builds.get(version), tuple[str, ...]()
        if parts.unhashed:
            words = "takes them as they come, this once, and writes them down"
            kind, facts = Drift.UNHASHED, (*parts.unhashed, f"nox -s image -- {version} --lock {words}")
        elif locked is None:
            kind, facts = Drift.NEW, (f"{made.image} on {made.base}", *(f"wheel {w}" for w in made.wheels))
        else:
            facts = build_differences(locked, made)
            kind = Drift.CHANGED if facts else Drift.LOCKED
        yield Change(subject=f"build {version}", kind=kind, versions=(version,), facts=facts)


def updated(lock: Lock, wanted: Wanted, answers: Mapping[str, Answer], used: Wanted | None = None) -> Lock:
    """Return the lock with what was really resolved; entries that say the same stay, with their date.

    ``used``: what all versions want, where what none of them wants is to go.
    """
    images, builds = dict(lock.images), dict(lock.builds)
    for image, answer in answers.items():
        if isinstance(answer, LockedImage) and not is_same(images.get(image), answer):
            images[image] = answer
    builds |= {version: parts.build for version, parts in wanted.builds.items()}
    if used is not None:
        images = {image: locked for image, locked in images.items() if image in used.images}
        builds = {version: build for version, build in builds.items() if version in used.builds}
    return Lock(images=images, builds=builds)


def is_same(old: LockedImage | None, new: LockedImage) -> bool:
    """Whether a lock's entry has what was answered, whoever answered when."""
    return old is not None and replace(old, registry=new.registry, resolved=new.resolved) == new


def _compare_image(old: LockedImage | None, answer: Answer) -> tuple[Drift, list[str]]:
    """Return what became of an image, and how the answer differs from the lock, platform by platform."""
    if isinstance(answer, RegistryError):
        kind = Drift.MISSING if answer.trouble is Trouble.MISSING else Drift.UNKNOWN
        return kind, str(answer).splitlines()
    if old is None:
        facts = [f"{answer.digest} at {answer.registry}"]
        for platform, found in answer.platforms.items():
            said = ", ".join(f"{name} {value}" for name, value in found.says.items())
            has = f"{gigabytes(found.size)} in {len(found.layers)} layers"
            facts.append(f"{platform}: {has}" + (f"; says {said}" if said else ""))
        return Drift.NEW, facts
    if is_same(old, answer):
        return Drift.LOCKED, [f"{old.digest}, of {old.resolved}"]
    by = f", by {answer.registry}" if answer.registry != old.registry else ""
    facts, kind = [f"{old.digest} → {answer.digest}{by}"], Drift.RETAGGED
    for name in answer.platforms | old.platforms:
        before, now = old.platforms.get(name), answer.platforms.get(name)
        if before is None or now is None:
            facts.append(f"{name} is {'gone' if before else 'added'}")
            kind = Drift.MOVED if before else kind
        elif before.image_id != now.image_id:
            kind = Drift.MOVED
            was, says = before.says, now.says
            changed = [key for key in sorted({*was, *says}) if was.get(key) != says.get(key)]
            told = ", ".join(f"{key} {was.get(key, '?')} → {says.get(key, '?')}" for key in changed)
            facts.append(f"{name}: {told or 'the versions that it names are the same'}")
    return kind, facts


def find_contradictions(versions: Iterable[Version], lock: Lock, platform: str) -> Iterator[Change]:
    """Yield the versions whose locked image says that it has another TensorRT than matrix.yaml says."""
    for version in versions:
        says, origin = locked_tensorrt(version, lock, platform), version.origin
        if says and isinstance(origin, ImageOrigin) and wrong_library(says, version) is not None:
            facts = (f"matrix.yaml says {version.library.value}, the image {says}",)
            image, names = origin.image, (version.name,)
            yield Change(subject=image, kind=Drift.CONTRADICTED, versions=names, facts=facts)


def lock_text(findings: Sequence[Change], file: str, written: bool | None) -> str:
    """Return the findings for a terminal. ``written``: whether the file was, None where nothing was to be."""
    lines: list[str] = []
    for kind in Drift:
        if kind is Drift.LOCKED or not (found := [each for each in findings if each.kind is kind]):
            continue
        lines.append(kind.value)
        for finding in found:
            used = ", ".join(name for name in finding.versions if finding.subject != f"build {name}")
            lines.append(f"  {finding.subject}" + (f" · {used}" if used else ""))
            lines += [f"    {fact}" for fact in finding.facts]
        lines.append("")
    counts = Counter(finding.name for finding in findings)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    lines.append(f"{file}: {summary or 'none of these versions comes from an image of a registry'}")
    if written is not None:
        lines.append(f"{file} is written: review it by git diff" if written else f"{file} is as it was")
    elif any(finding.decide for finding in findings):
        lines.append(f"nothing was changed; to take over what was found: {UPDATE}")
    return "\n".join(lines)


def lock_json(findings: Sequence[Change], file: str, written: bool | None) -> dict[str, Any]:
    """Return the findings as plain data."""
    told = [{**asdict(e), "kind": e.name, "what": e.kind.value, "decide": e.decide} for e in findings]
    return {"schema": 3, "lock": file, "written": written, "findings": told}


# --- The file: one fact a line, in one order, so that git shows what changed


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> bool:
    """Change what a lock has at this moment; no other update gets in between. Returns whether it changed.

    :class:`MachineryError` where it cannot be written, or could not be read again (a registry may say
    anything); the old file is then as it was.
    """
    target = path.resolve()  # a link stays one
    with hold_folder(target.parent):
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


HEADER = """\
# Which image each name of matrix.yaml stood for. Written by `nox -s lock -- --update`, reviewed in git,
# never edited by hand.
#
# digest     what the name pointed at when it was resolved: an index of platforms, or one manifest
# manifest   what a platform is pulled by
# image_id   the digest of the image's configuration: survives docker save and load, where the others do not
# layers     as they lie in the registry, with their compressed sizes in bytes
# says       the versions of TensorRT, CUDA, driver and torch that the image's variables name
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
    """Return names in order."""
    if is_dataclass(value):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return _Flat(found) if isinstance(value, LockedLayer) else found
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in sorted(value.items())}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value
