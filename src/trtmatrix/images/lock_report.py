"""What moved since matrix.lock was written, why that matters, and what ``lock`` prints of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from trtmatrix.images.downloads import gigabytes
from trtmatrix.images.pins import BuildParts, build_differences
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.references import RegistryError, Trouble, named_versions
from trtmatrix.plan.lockfile import Lock, LockedImage
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Product

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


UNRESOLVED = frozenset({Drift.MISSING, Drift.UNKNOWN})
"""What a registry gave no image for, and the lock has nothing new of."""
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
    def decide(self) -> bool:
        """Whether somebody has to decide: it moved, or is not locked."""
        return self.kind is not Drift.LOCKED and self.kind not in UNRESOLVED


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be locked: images with the versions that use them, builds by version."""

    images: Mapping[str, tuple[str, ...]]
    builds: Mapping[str, BuildParts]


def find_changes(old: Lock, wanted: Wanted, answers: Mapping[str, Answer]) -> Iterator[Change]:
    """Yield a finding at least for each image and build that is wanted."""
    for image, versions in wanted.images.items():
        kind, facts = _compare_image(old.images.get(image), answers[image])
        yield Change(subject=image, kind=kind, versions=versions, facts=tuple(facts))
    for version, parts in wanted.builds.items():
        build = Change(subject=f"build {version}", kind=Drift.LOCKED, versions=(version,))
        made, locked = parts.build, old.builds.get(version)
        if locked is None:
            new = (f"{made.image} on {made.base}", *(f"wheel {one}" for one in made.wheels))
            yield replace(build, kind=Drift.NEW, facts=new)
        elif differences := build_differences(locked, made):
            yield replace(build, kind=Drift.CHANGED, facts=differences)
        elif not parts.unhashed:
            yield build
        if parts.unhashed:
            mend = (
                f"nox -s image -- {version} --lock takes them as they come, this once, and writes them down"
            )
            yield replace(build, kind=Drift.UNHASHED, facts=(*parts.unhashed, mend))


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
            said = ", ".join(f"{name} {value}" for name, value in named_versions(found.environment).items())
            has = f"{gigabytes(found.size)} in {len(found.layers)} layers"
            facts.append(f"{platform}: {has}" + (f"; says {said}" if said else ""))
        return Drift.NEW, facts
    if is_same(old, answer):
        return Drift.LOCKED, [f"{old.digest}, of {old.resolved}"]
    by = f", by {answer.registry}" if answer.registry != old.registry else ""
    facts = [f"{old.digest} → {answer.digest}{by}"]
    for name in answer.platforms | old.platforms:
        before, now = old.platforms.get(name), answer.platforms.get(name)
        if before is None or now is None:
            facts.append(f"{name} is {'gone' if before else 'added'}")
        elif before.image_id != now.image_id:
            was, says = named_versions(before.environment), named_versions(now.environment)
            changed = [key for key in sorted({*was, *says}) if was.get(key) != says.get(key)]
            told = ", ".join(f"{key} {was.get(key, '?')} → {says.get(key, '?')}" for key in changed)
            facts.append(f"{name}: {told or 'the versions that it names are the same'}")
    ids = {platform: found.image_id for platform, found in answer.platforms.items()}
    same = all(ids.get(platform) == found.image_id for platform, found in old.platforms.items())
    return Drift.RETAGGED if same and old.digest != answer.digest else Drift.MOVED, facts


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
