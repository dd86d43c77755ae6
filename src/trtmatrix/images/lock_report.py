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
from trtmatrix.plan.lockfile import Lock, LockedBuild, LockedImage
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
        yield from _build_findings(version, old.builds.get(version), parts)


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


def _compare_image(old: LockedImage | None, answer: Answer) -> tuple[Drift, Iterable[str]]:
    if isinstance(answer, RegistryError):
        kind = Drift.MISSING if answer.trouble is Trouble.MISSING else Drift.UNKNOWN
        return kind, str(answer).splitlines()
    if old is None:
        return Drift.NEW, _new_facts(answer)
    if is_same(old, answer):
        return Drift.LOCKED, [f"{old.digest}, of {old.resolved}"]
    ids = {platform: found.image_id for platform, found in answer.platforms.items()}
    same = all(ids.get(platform) == found.image_id for platform, found in old.platforms.items())
    return Drift.RETAGGED if same and old.digest != answer.digest else Drift.MOVED, _moved_facts(old, answer)


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
        elif before.image_id != found.image_id:
            versions, now = named_versions(before.environment), named_versions(found.environment)
            changed = [key for key in sorted({*versions, *now}) if versions.get(key) != now.get(key)]
            facts = [f"{key} {versions.get(key, '?')} → {now.get(key, '?')}" for key in changed]
            yield f"{name}: {', '.join(facts) or 'the versions that it names are the same'}"


def _build_findings(version: str, old: LockedBuild | None, parts: BuildParts) -> Iterator[Change]:
    build = Change(subject=f"build {version}", kind=Drift.LOCKED, versions=(version,))
    if old is None:
        facts = (
            f"{parts.build.image} on {parts.build.base}",
            *(f"wheel {one}" for one in parts.build.wheels),
        )
        yield replace(build, kind=Drift.NEW, facts=facts)
    elif differences := build_differences(old, parts.build):
        yield replace(build, kind=Drift.CHANGED, facts=differences)
    elif not parts.unhashed:
        yield build
    if parts.unhashed:
        mend = f"nox -s image -- {version} --lock takes them as they come, this once, and writes them down"
        yield replace(build, kind=Drift.UNHASHED, facts=(*parts.unhashed, mend))


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
            found = Change(subject=origin.image, kind=Drift.CONTRADICTED, facts=facts)
            yield replace(found, versions=(version.name,))


def lock_text(findings: Sequence[Change], file: str, written: bool | None) -> str:
    """Return the findings for a terminal. ``written``: whether the file was, None where nothing was to be."""
    lines: list[str] = []
    for kind in Drift:
        found = [] if kind is Drift.LOCKED else [finding for finding in findings if finding.kind is kind]
        lines += [kind.value] if found else []
        for finding in found:
            used = ", ".join(name for name in finding.versions if finding.subject != f"build {name}")
            lines += [f"  {finding.subject}" + (f" · {used}" if used else "")]
            lines += [f"    {fact}" for fact in finding.facts]
        lines += [""] if found else []
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
    told = [
        {**asdict(each), "kind": each.name, "what": each.kind.value, "decide": each.decide}
        for each in findings
    ]
    return {"schema": 3, "lock": file, "written": written, "findings": told}
