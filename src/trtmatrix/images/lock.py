"""matrix.lock: ``lock`` asks registries what images stand for now and writes it; a run is held against it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from trtmatrix.common.errors import ConfigError, ExitCode, MachineryError, UsageError, combine_exit_codes
from trtmatrix.common.options import flag
from trtmatrix.common.paths import hold_folder, whole_file
from trtmatrix.common.text import write_size
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.docker_engine import inspect_image
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.launchers.wheels import LockedWheel, parse_lock
from trtmatrix.plan.context import Context, ProjectOptions, open_context, own_platform, read_lock
from trtmatrix.plan.lockfile import Lock, LockedImage, mirrored, parse_matrix_lock, pin_of
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.model import Product
from trtmatrix.suite.plan import Launch, is_own

SECONDS = 3600.0  # how long all registries together may take: each question has limits of its own
UPDATE = "nox -s lock -- --update"


class Drift(Enum):
    """What was found of an image or a build, and what that means."""

    LOCKED = "as locked"
    NEW = "not locked yet: nothing shows when what it stands for changes"
    MOVED = "tag moved to another image: runs stay with the locked one; --update makes its records stale"
    RETAGGED = "tag moved, what runs is the same: records stay current but with containerd's image store"
    MISSING = "not at the registry: a mistake in matrix.yaml, a mirror without it, or it was taken away"
    UNKNOWN = "could not be asked: the lock's entry stays as it was"
    CONTRADICTED = "another TensorRT than matrix.yaml says: no run in that image counts"


UNRESOLVED = frozenset({Drift.MISSING, Drift.UNKNOWN})
"""No registry gave an image, and the lock has nothing new of it."""
TO_DECIDE = frozenset(Drift) - UNRESOLVED - {Drift.LOCKED}
"""Somebody has to decide: it moved, or is not locked."""
Answer = LockedImage | RegistryError


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was found of one image; ``versions`` use it, ``facts`` say what differs, a line each."""

    subject: str
    kind: Drift
    versions: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


Wanted = Mapping[str, tuple[str, ...]]  # the images that are to be locked, each with the versions that use it


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
    wanted = find_wanted(versions)
    registry = Registry(insecure=find_engine(gpu_here=False).insecure)
    asked = {image: mirrored(image, context.matrix.registry) or image for image in wanted}
    found = ask_registries(registry.resolve, list(asked.values()), seconds=SECONDS)
    answers = {image: found[reference] for image, reference in asked.items()}
    # What no version needs any more goes, but not where only some versions were looked at.
    chosen = context.selection.versions or context.selection.runtimes
    used = None if chosen else find_wanted(context.matrix.versions)
    findings = list(find_changes(old, wanted, answers))
    findings += find_contradictions(versions, updated(old, answers, used), own_platform())
    written = None
    if options.update:
        written = update_lock(file, lambda now: updated(now, answers, used))
    if options.json:
        print(json.dumps(lock_json(findings, str(file), written), indent=1))
    else:
        print(lock_text(findings, str(file), written))
    kinds = {finding.kind for finding in findings}
    codes = {ExitCode.MACHINERY} if kinds & UNRESOLVED else set()
    codes |= {ExitCode.SURPRISE} if kinds & TO_DECIDE and not options.update else set()
    return combine_exit_codes(codes)


def find_wanted(versions: Sequence[Version]) -> Wanted:
    """Return the images that registries are asked for, bases of ours among them."""
    images = dict[str, tuple[str, ...]]()
    for version in versions:
        if isinstance(origin := version.origin, ImageOrigin):
            image = origin.build.base if origin.build else origin.image
            if not is_own(image):  # no registry has those
                images[image] = (*images.get(image, ()), version.name)
    return images


def find_changes(old: Lock, wanted: Wanted, answers: Mapping[str, Answer]) -> Iterator[Change]:
    """Yield what became of each image that is wanted, and how the answer differs from the lock."""
    for image, versions in wanted.items():
        locked, answer = old.images.get(image), answers[image]
        if isinstance(answer, RegistryError):
            kind = Drift.MISSING if answer.trouble is Trouble.MISSING else Drift.UNKNOWN
            facts = str(answer).splitlines()
        elif locked is None:
            kind, facts = Drift.NEW, [f"{answer.digest} at {answer.registry}"]
            for platform, found in answer.platforms.items():
                said = ", ".join(f"{name} {value}" for name, value in found.says.items())
                has = f"{write_size(found.size)} in {len(found.layers)} layers"
                facts.append(f"{platform}: {has}" + (f"; says {said}" if said else ""))
        elif is_same(locked, answer):
            kind, facts = Drift.LOCKED, [f"{locked.digest}, of {locked.resolved}"]
        else:
            kind, facts = _compare_images(locked, answer)
        yield Change(subject=image, kind=kind, versions=versions, facts=tuple(facts))


def updated(lock: Lock, answers: Mapping[str, Answer], used: Wanted | None = None) -> Lock:
    """Return the lock with what was really resolved; entries that say the same stay, with their date.

    ``used``: what all versions want, where what none of them wants is to go.
    """
    images = dict(lock.images)
    for image, answer in answers.items():
        if isinstance(answer, LockedImage) and not is_same(images.get(image), answer):
            images[image] = answer
    return Lock(images={name: each for name, each in images.items() if used is None or name in used})


def is_same(old: LockedImage | None, new: LockedImage) -> bool:
    """Whether a lock's entry has what was answered, whoever answered when."""
    return old is not None and replace(old, registry=new.registry, resolved=new.resolved) == new


def _compare_images(old: LockedImage, new: LockedImage) -> tuple[Drift, list[str]]:
    """Return what became of an image, and how it differs, platform by platform."""
    by = f", by {new.registry}" if new.registry != old.registry else ""
    facts, kind = [f"{old.digest} → {new.digest}{by}"], Drift.RETAGGED
    for name in new.platforms | old.platforms:
        before, now = old.platforms.get(name), new.platforms.get(name)
        if before is None or now is None:
            facts.append(f"{name} is {'gone' if before else 'added'}")
            kind = Drift.MOVED if before else kind
        elif before.image_id != now.image_id:
            kind, was, says = Drift.MOVED, before.says, now.says
            told = ", ".join(
                f"{key} {was.get(key, '?')} → {says.get(key, '?')}"
                for key in sorted({*was, *says}) if was.get(key) != says.get(key)
            )  # fmt: skip
            facts.append(f"{name}: {told or 'the versions that it names are the same'}")
    return kind, facts


def find_contradictions(versions: Iterable[Version], lock: Lock, platform: str) -> Iterator[Change]:
    """Yield the versions whose locked image says that it has another TensorRT than matrix.yaml says.

    An image of ours is no witness: what its base says is not what its wheels are.
    """
    for version in versions:
        origin = version.origin
        if version.product is not Product.TENSORRT or not isinstance(origin, ImageOrigin) or origin.build:
            continue
        locked = lock.images.get(origin.image)
        found = locked.platforms.get(platform) if locked else None
        says = found.says.get("TensorRT", "") if found else ""
        if says and wrong_library(says, version) is not None:  # as a run in the image compares
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
            lines.append(f"  {finding.subject} · {', '.join(finding.versions)}")
            lines += [f"    {fact}" for fact in finding.facts]
        lines.append("")
    counts = Counter(finding.kind.name.lower() for finding in findings)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    lines.append(f"{file}: {summary or 'none of these versions comes from an image of a registry'}")
    if written is not None:
        lines.append(f"{file} is written: review it by git diff" if written else f"{file} is as it was")
    elif any(finding.kind in TO_DECIDE for finding in findings):
        lines.append(f"nothing was changed; to take over what was found: {UPDATE}")
    return "\n".join(lines)


def lock_json(findings: Sequence[Change], file: str, written: bool | None) -> dict[str, Any]:
    """Return the findings as plain data."""
    told = [{**asdict(finding), "kind": finding.kind.name.lower()} for finding in findings]
    return {"schema": 4, "lock": file, "written": written, "findings": told}


# --- The file: one fact a line, in one order, so that git shows what changed


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> bool:
    """Change what a lock has at this moment; no other update gets in between. Returns whether it changed."""
    target = path.resolve()  # a link stays one
    with hold_folder(target.parent):
        old = read_lock(path)
        lock = change(old)
        text = format_matrix_lock(lock)
        if lock == old and (lock == Lock() or target.read_text(encoding="utf-8") == text):
            return False
        try:
            parse_matrix_lock(text, str(path))
        except ConfigError as error:  # a registry may say anything
            raise MachineryError(
                f"{path} is as it was: no lock can hold what was resolved\n{error}"
            ) from error
        with whole_file(target) as out:
            out.write(text.encode())
    return True


HEADER = """\
# Which image each name of matrix.yaml stood for. Written by `nox -s lock -- --update`, reviewed in git,
# never edited by hand. digest: what the name pointed at; manifest: what a platform is pulled by; image_id:
# that of its configuration, which survives docker save; size: compressed bytes; says: what its variables name
"""


def format_matrix_lock(lock: Lock) -> str:
    """Return matrix.lock's text: the same for the same lock, whatever its order."""
    return HEADER + yaml.safe_dump(asdict(lock), width=float("inf"))


# --- Whether a run's images are those of the lock

Held = tuple[str, Mapping[str, str]] | None
"""The ID of an image that is here, and the labels that docker/wheels/build wrote on it: what it came of."""
FILES = ("Dockerfile", "tensorrt.py")  # what of the builder's folder goes into every image
OWN_BASE = "trtmatrix/debian12-python310:latest"  # the base that ``docker/wheels/base`` makes


def check_pins(
    context: Context, launches: Iterable[Launch], locked: bool, look: Callable[[str], Held] = inspect_image
) -> list[str]:
    """Return a line for each launch whose image is not as matrix.lock has it, and how that is mended.

    ``locked``: such a launch is refused: :class:`UsageError` names each version and the command.
    ``look``: asked for images of ours that are here and whose parts are locked.
    """
    found: dict[str, str] = {}
    lockable: list[str] = []
    for launch in launches:
        version, origin = launch.version, launch.image
        if origin is None or version.name in found:
            continue
        if origin.build is None:
            why, mends = why_unlocked(context, origin), not (origin.is_file or is_own(origin.image))
        else:
            held = None if launch.lacks_image else look(origin.image)
            why, mends = _why_unlike(context, version, origin.build, held)
            why = why and f"{origin.image}: {why}"
        if why:
            found[version.name] = why
            lockable += [version.name] if mends else []
    mend = [f"  to lock: nox -s lock -- --trt {','.join(lockable)} --update"] if lockable else []
    if locked and found:
        lines = [f"  {name}: {why}" for name, why in found.items()]
        raise UsageError("\n".join(["--locked refuses to run what matrix.lock does not have", *lines, *mend]))
    return [*(f"NOT LOCKED: {name}: {why}" for name, why in found.items()), *mend]


def why_unlocked(context: Context, origin: ImageOrigin) -> str:
    """Return why an image is not pinned, or nothing: a digest in its name pins it without the lock."""
    image = origin.image
    if origin.is_file:
        return f"{image} is a file of yours, known by what is in it"
    if origin.pin is not None or "@sha256:" in image:
        return ""
    if is_own(image):
        return f"{image} is made on this host and known by its name alone: no registry has it"
    if image in context.lock.images:
        return f"{image} is not locked for {own_platform()}"
    return f"{image} is whatever its tag stands for today"


def _why_unlike(context: Context, version: Version, build: Build, held: Held) -> tuple[str, bool]:
    """Return why it is not known what an image of ours is made of, or nothing; and if locking mends that."""
    name, pin = version.name, pin_of(context.lock, build.base, own_platform())
    builder = context.project.image_builder
    pins, contents = tuple(LockedWheel(wheel=wheel) for wheel in build.wheels), list[bytes]()
    try:
        if builder is not None:
            file = builder.parent / "locks" / f"{name}.txt"
            pins = parse_lock(file.read_text("utf-8") if file.exists() else "", build.wheels, str(file))
            contents = [(builder.parent / each).read_bytes() for each in FILES]
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        return f"what it is made of cannot be read: {error}", False
    if unhashed := [each.wheel for each in pins if not each.sha256]:
        return f"no SHA-256 is known of {', '.join(unhashed)} (nox -s image -- {name} --lock)", False
    if pin is None and not is_own(build.base):
        return f"its base {build.base} is not locked", True
    labels = held[1] if held else {}
    base_id = labels.get("base-id", "")
    bases = {labels.get("base"), base_id, labels.get("base-digest", "").rpartition("@")[2]}
    recipe = recipe_digest(base_id, contents, [each.line for each in pins])
    if held is None or (bases & {*(pin.ids if pin else (build.base,))} and recipe == labels.get("recipe")):
        return "", False
    return f"it was built on another base, or from other wheels or files: nox -s image -- {name}", False


def recipe_digest(base_id: str, contents: Iterable[bytes], lines: Iterable[str]) -> str:
    """Return the SHA-256 of all that goes into an image of ours: its label ``recipe`` (hexadecimal).

    ``contents``: of the files that are copied into it; ``lines``: its wheels, as pip reads them.
    """
    return sha256(b"\0".join([base_id.encode(), *contents, *(line.encode() for line in lines)])).hexdigest()
