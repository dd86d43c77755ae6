"""What moved since matrix.lock was written, why that matters, and what ``lock`` prints of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from trtmatrix.images.downloads import gigabytes
from trtmatrix.images.pins import BuildParts, build_differences
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.references import RegistryError, Trouble, named_versions
from trtmatrix.plan.lockfile import Lock, LockedBuild, LockedImage
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Product

UPDATE = "nox -s lock -- --update"


class Kind(Enum):
    """What was found of an image or a build, and what that means."""

    LOCKED = "as locked"
    NEW = "not locked yet: runs pull whatever the tag stands for that day"
    MOVED = "tag moved to another image: runs stay with the locked one; --update makes its records stale"
    RETAGGED = "tag moved, what runs is the same: records stay current but with containerd's image store"
    GONE = "no longer at the registry: new hosts cannot pull it by its tag"
    ABSENT = "not at the registry: a mistake in matrix.yaml, or a mirror without it"
    UNKNOWN = "could not be asked: the lock's entry stays as it was"
    BUILD_NEW = "build not locked yet: nothing shows when what it is made of changes"
    BUILD_CHANGED = "built of other parts: it is built anew, and its records are no longer current"
    UNHASHED = "wheels without SHA-256: nothing says that they are those meant, so the image is not built"
    CONTRADICTED = "another TensorRT than matrix.yaml says: no run in that image counts"
    UNUSED = "no longer in matrix.yaml: --update without --trt removes it"
    LOCAL = "made on this host, known by its name alone: no registry has it"


QUIET = frozenset({Kind.LOCKED, Kind.UNUSED, Kind.LOCAL})
"""What needs nobody's decision."""

UNRESOLVED = frozenset({Kind.ABSENT, Kind.UNKNOWN})
"""What a registry gave no image for, and the lock has nothing new of."""


Answer = LockedImage | RegistryError


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found of one image or build; ``versions`` use it, ``facts`` say what differs, a line each."""

    subject: str
    kind: Kind
    versions: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be locked: images with the versions that use them, builds by version.

    ``local``: images that no registry has, with their versions.
    """

    images: Mapping[str, tuple[str, ...]]
    builds: Mapping[str, BuildParts]
    local: Mapping[str, tuple[str, ...]]


def find_changes(old: Lock, wanted: Wanted, answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """Yield a finding at least for each image and build that is wanted."""
    for image, versions in wanted.images.items():
        yield replace(_image_finding(image, old.images.get(image), answers[image]), versions=versions)
    for version, parts in wanted.builds.items():
        yield from _build_findings(version, old.builds.get(version), parts)
    for image, versions in wanted.local.items():
        yield Finding(subject=image, kind=Kind.LOCAL, versions=versions)


def find_unused(old: Lock, used: Wanted) -> Iterator[Finding]:
    """Yield what the lock has and no version of matrix.yaml needs. ``used``: of all versions."""
    subjects = [image for image in old.images if image not in used.images]
    subjects += [f"build {version}" for version in old.builds if version not in used.builds]
    yield from (Finding(subject=subject, kind=Kind.UNUSED) for subject in subjects)


def updated(
    lock: Lock, wanted: Wanted, answers: Mapping[str, Answer], unused: Iterable[Finding] = ()
) -> Lock:
    """Return the lock with what was really resolved; entries that say the same stay, with their date.

    ``unused``: what goes.
    """
    images, builds = dict(lock.images), dict(lock.builds)
    for image, answer in answers.items():
        if isinstance(answer, LockedImage) and not is_same(images.get(image), answer):
            images[image] = answer
    builds |= {version: parts.build for version, parts in wanted.builds.items()}
    for finding in unused:
        images.pop(finding.subject, None)
        builds.pop(finding.subject.removeprefix("build "), None)
    return Lock(images=images, builds=builds)


def is_same(old: LockedImage | None, new: LockedImage) -> bool:
    """Whether a lock's entry has what was answered, whoever answered when."""
    return old is not None and replace(old, registry=new.registry, resolved=new.resolved) == new


def _image_finding(image: str, old: LockedImage | None, answer: Answer) -> Finding:
    if isinstance(answer, RegistryError):
        missing = Kind.GONE if old is not None else Kind.ABSENT
        kind = missing if answer.trouble is Trouble.MISSING else Kind.UNKNOWN
        return Finding(subject=image, kind=kind, facts=tuple(str(answer).splitlines()))
    if old is None:
        return Finding(subject=image, kind=Kind.NEW, facts=tuple(_new_facts(answer)))
    if is_same(old, answer):
        return Finding(subject=image, kind=Kind.LOCKED, facts=(f"{old.digest}, of {old.resolved}",))
    ids = {platform: found.image_id for platform, found in answer.platforms.items()}
    same = all(ids.get(platform) == found.image_id for platform, found in old.platforms.items())
    kind = Kind.RETAGGED if same and old.digest != answer.digest else Kind.MOVED
    return Finding(subject=image, kind=kind, facts=tuple(_moved_facts(old, answer)))


def _new_facts(image: LockedImage) -> Iterator[str]:
    yield f"{image.digest} at {image.registry}"
    for platform, found in image.platforms.items():
        said = ", ".join(f"{name} {value}" for name, value in named_versions(found.environment).items())
        says = f"; says {said}" if said else ""
        yield f"{platform}: {gigabytes(found.size)} in {len(found.layers)} layers{says}"


def _moved_facts(old: LockedImage, new: LockedImage) -> Iterator[str]:
    """Yield how an answer differs from the lock, platform by platform."""
    yield f"{old.digest} → {new.digest}" + (f", by {new.registry}" if new.registry != old.registry else "")
    for name in new.platforms | old.platforms:
        before, found = old.platforms.get(name), new.platforms.get(name)
        if before is None or found is None:
            yield f"{name} is {'gone' if before else 'added'}"
        elif before.image_id == found.image_id:
            yield f"{name}: the same image, of manifest {found.manifest}"
        else:
            versions, now = named_versions(before.environment), named_versions(found.environment)
            for key in sorted({*versions, *now}):
                if versions.get(key) != now.get(key):
                    yield f"{name}: {key} {versions.get(key, 'not named')} → {now.get(key, 'not named')}"
            if versions == now:
                yield f"{name}: the versions that it names are the same: what else is in it changed"


def _build_findings(version: str, old: LockedBuild | None, parts: BuildParts) -> Iterator[Finding]:
    subject, versions = f"build {version}", (version,)
    if old is None:
        wheels = ", ".join(parts.build.wheels) or "none"
        facts = (f"{parts.build.image} on {parts.build.base}", f"wheels with their SHA-256: {wheels}")
        yield Finding(subject=subject, kind=Kind.BUILD_NEW, versions=versions, facts=facts)
    elif differences := build_differences(old, parts.build):
        yield Finding(subject=subject, kind=Kind.BUILD_CHANGED, versions=versions, facts=differences)
    elif not parts.unhashed:
        yield Finding(subject=subject, kind=Kind.LOCKED, versions=versions)
    if parts.unhashed:
        mend = f"nox -s image -- {version} --lock takes them as they come, this once, and writes them down"
        yield Finding(subject=subject, kind=Kind.UNHASHED, versions=versions, facts=(*parts.unhashed, mend))


def locked_tensorrt(version: Version, lock: Lock, platform: str) -> str:
    """Return the TensorRT that the locked image of a version says it has, or nothing.

    An image of ours is no witness: what its base says is not what its wheels are.
    """
    origin = version.origin
    if version.product is not Product.TENSORRT or not isinstance(origin, ImageOrigin) or origin.build:
        return ""
    locked = lock.images.get(origin.image)
    found = locked.platforms.get(platform) if locked else None
    return named_versions(found.environment).get("TensorRT", "") if found else ""


def find_contradictions(versions: Iterable[Version], lock: Lock, platform: str) -> Iterator[Finding]:
    """Yield the versions whose locked image says that it has another TensorRT than matrix.yaml says."""
    for version in versions:
        says = locked_tensorrt(version, lock, platform)
        if says and isinstance(version.origin, ImageOrigin) and wrong_library(says, version) is not None:
            facts = (f"matrix.yaml says {version.library.value}, the image {says}",)
            yield Finding(
                subject=version.origin.image, kind=Kind.CONTRADICTED, versions=(version.name,), facts=facts
            )


def needs_decision(findings: Iterable[Finding]) -> bool:
    """Whether something moved or is not locked."""
    return any(finding.kind not in QUIET | UNRESOLVED for finding in findings)


def _name_of(finding: Finding) -> str:
    return finding.kind.name.lower().replace("_", "-")


def lock_text(findings: Sequence[Finding], file: str, written: bool | None) -> str:
    """Return the findings for a terminal. ``written``: whether the file was, None where nothing was to be."""
    lines: list[str] = []
    for kind in Kind:
        found = [] if kind is Kind.LOCKED else [finding for finding in findings if finding.kind is kind]
        if found:
            lines.append(kind.value)
        for finding in found:
            used = ", ".join(name for name in finding.versions if finding.subject != f"build {name}")
            lines += [f"  {finding.subject}" + (f" · {used}" if used else "")]
            lines += [f"    {fact}" for fact in finding.facts]
        lines += [""] if found else []
    counts = Counter(_name_of(finding).replace("-", " ") for finding in findings)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    lines.append(f"{file}: {summary or 'none of these versions comes from an image'}")
    if written is not None:
        lines.append(f"{file} is written: review it by git diff" if written else f"{file} is as it was")
    elif needs_decision(findings):
        lines.append(f"nothing was changed; to take over what was found: {UPDATE}")
    return "\n".join(lines)


def lock_json(findings: Sequence[Finding], file: str, written: bool | None) -> dict[str, Any]:
    """Return the findings as plain data."""
    return {
        "schema": 2,
        "lock": file,
        "written": written,
        "findings": [
            {
                "subject": finding.subject, "kind": _name_of(finding), "what": finding.kind.value,
                "versions": list(finding.versions),
                "facts": list(finding.facts), "decide": needs_decision([finding]),
            }
            for finding in findings
        ],
    }  # fmt: skip
