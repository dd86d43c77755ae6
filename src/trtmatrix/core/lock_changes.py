"""What moved since matrix.lock was written, and why that matters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trtmatrix.core.image_says import ImageSays, image_says
from trtmatrix.core.lock import Lock, LockedBuild, LockedImage, LockedPlatform
from trtmatrix.core.lock_builds import BuildParts, build_differences
from trtmatrix.core.registry import Trouble


class Kind(Enum):
    """What was found of an image or a build. Only ``locked`` is as it should be."""

    LOCKED = "as locked"
    MIRRORED = "as locked, by another host than the lock's"
    NEW = "not locked yet"
    MOVED = "tag moved: another image"
    REPACKED = "tag moved: the same image, packed anew"
    INDEX = "tag moved: the same images, another index"
    PLATFORM_ADDED = "platform added"
    PLATFORM_GONE = "platform gone"
    DENIED = "matrix.lock says otherwise than its digest"
    GONE = "no longer at the registry"
    ABSENT = "not there"
    UNKNOWN = "could not be asked"
    BUILD_NEW = "build not locked yet"
    BUILD_CHANGED = "built of other parts"
    UNHASHED = "wheels without SHA-256"
    UNUSED = "no longer in matrix.yaml"
    LOCAL = "made on this host: no registry has it"


WHY: Mapping[Kind, str] = {
    Kind.LOCKED: "",
    Kind.MIRRORED: "a mirror leaves the digests as they are, and what it lacks stays locked",
    Kind.NEW: "runs pull whatever its tag stands for that day, and nothing shows when that changes",
    Kind.MOVED: "runs go on with the locked image while the registry has it; after --update records made in "
    "it are no longer current and their cells run again",
    Kind.REPACKED: "its configuration, and so what runs, is the same: records stay current, but for engines "
    "with containerd's image store, which know images by this digest",
    Kind.INDEX: "nothing that runs here changes: an index also holds attestations and platforms apart",
    Kind.PLATFORM_ADDED: "hosts of this platform can be locked too",
    Kind.PLATFORM_GONE: "hosts of this platform cannot pull it by its tag any more",
    Kind.DENIED: "a digest stands for one content alone, so the lock was edited, badly merged, or written by "
    "another version of this program: runs would refuse the image that they pull",
    Kind.GONE: "new hosts cannot pull it by its tag",
    Kind.ABSENT: "no run can pull it: a mistake in matrix.yaml's name or tag, or a mirror without it",
    Kind.UNKNOWN: "what it stands for now is not known; the lock's entry stays as it was",
    Kind.BUILD_NEW: "nothing shows when what it is made of changes",
    Kind.BUILD_CHANGED: "the image is built anew and gets another ID: records made in the old one are no "
    "longer current",
    Kind.UNHASHED: "nothing says that they are the ones that were meant, so the image is not built",
    Kind.UNUSED: "no version needs it; --update without --trt removes it",
    Kind.LOCAL: "it is known by its name alone, and runs say so",
}
"""Why each kind of finding matters."""

QUIET = frozenset({Kind.LOCKED, Kind.MIRRORED, Kind.UNUSED, Kind.LOCAL})
"""What needs nobody's decision."""

UNRESOLVED = frozenset({Kind.ABSENT, Kind.UNKNOWN})
"""What a registry gave no image for, and the lock has nothing new of."""


@dataclass(frozen=True, kw_only=True)
class Unresolved:
    """An image that a registry gave no good answer for, with its words."""

    trouble: Trouble
    message: str


Answer = LockedImage | Unresolved


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found of one image or build: ``subject``; ``versions`` are the columns that use it.

    ``facts``: what differs, a line each. ``old_is_there``: whether the registry still has the locked digest,
    None where that was not asked.
    """

    subject: str
    kind: Kind
    versions: tuple[str, ...] = ()
    platform: str = ""
    facts: tuple[str, ...] = ()
    old_is_there: bool | None = None

    @property
    def is_build(self) -> bool:
        """Whether it is about an image of ours."""
        return self.kind in {Kind.BUILD_NEW, Kind.BUILD_CHANGED, Kind.UNHASHED}

    @property
    def why(self) -> str:
        """Why it matters."""
        return WHY[self.kind]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be locked: images with the versions that use them, builds by version.

    ``local``: images that no registry has, with their versions.
    """

    images: Mapping[str, tuple[str, ...]]
    builds: Mapping[str, BuildParts]
    local: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_changes(
    old: Lock, wanted: Wanted, answers: Mapping[str, Answer], still_there: Mapping[str, bool]
) -> tuple[Finding, ...]:
    """Return a finding at least for each image and build that is wanted.

    ``still_there``: by image, whether its registry has the locked digest, where that was asked.
    """
    found: list[Finding] = []
    for image, versions in wanted.images.items():
        for finding in _image_findings(image, old.images.get(image), answers[image]):
            there = still_there.get(image) if finding.kind in {Kind.MOVED, Kind.GONE} else None
            found.append(replace(finding, versions=versions, old_is_there=there))
    for version, parts in wanted.builds.items():
        found += _build_findings(version, old.builds.get(version), parts)
    found += [Finding(subject=image, kind=Kind.LOCAL, versions=vs) for image, vs in wanted.local.items()]
    return tuple(found)


def find_unused(old: Lock, used: Wanted) -> tuple[Finding, ...]:
    """Return what the lock has and no version of matrix.yaml needs. ``used``: of all versions."""
    images = [image for image in old.images if image not in used.images]
    builds = [f"build {version}" for version in old.builds if version not in used.builds]
    return tuple(Finding(subject=subject, kind=Kind.UNUSED) for subject in [*images, *builds])


def updated(
    old: Lock,
    wanted: Wanted,
    answers: Mapping[str, Answer],
    used: Wanted | None,
    known: Lock | None = None,
) -> Lock:
    """Return the lock with what was really resolved; entries that say the same stay, with their date.

    ``used``: what all versions need, where the rest is to go, of what ``known`` has (the lock as it was
    looked at: what another process wrote since stays).
    """
    images, builds = dict(old.images), dict(old.builds)
    for image, answer in answers.items():
        if isinstance(answer, LockedImage) and not (image in images and covers(images[image], answer)):
            images[image] = answer
    builds.update({version: parts.build for version, parts in wanted.builds.items()})
    if used is not None:
        seen = known or old
        images = {name: it for name, it in images.items() if name in used.images or name not in seen.images}
        builds = {name: it for name, it in builds.items() if name in used.builds or name not in seen.builds}
    return Lock(images=images, builds=builds)


def covers(old: LockedImage, new: LockedImage) -> bool:
    """Whether a lock's entry has all that was answered: the same, or part of it from another host."""
    part = old.registry != new.registry and all(old.of(each.platform) == each for each in new.platforms)
    return same(old, new) or (part and bool(new.platforms))


def same(old: LockedImage, new: LockedImage) -> bool:
    """Whether two answers name the same, whoever gave them and whenever."""
    return replace(old, registry=new.registry, resolved=new.resolved) == new


def _image_findings(image: str, old: LockedImage | None, answer: Answer) -> Iterator[Finding]:
    if isinstance(answer, Unresolved):
        kind = Kind.UNKNOWN
        if answer.trouble is Trouble.MISSING:
            kind = Kind.GONE if old is not None else Kind.ABSENT
        yield Finding(subject=image, kind=kind, facts=tuple(answer.message.splitlines()))
    elif old is None:
        yield Finding(subject=image, kind=Kind.NEW, facts=tuple(_new_facts(answer)))
    elif old.registry == answer.registry:
        yield from _answered_findings(image, old, answer)
    else:
        other = f"another host answered than the lock's: {old.registry} → {answer.registry}"
        for finding in _answered_findings(image, old, answer):
            yield replace(finding, facts=(*finding.facts, other))


def _answered_findings(image: str, old: LockedImage, new: LockedImage) -> Iterator[Finding]:
    if covers(old, new):
        kind = Kind.LOCKED if old.registry == new.registry else Kind.MIRRORED
        names = ", ".join(each.platform for each in new.platforms)
        more = (f"it has {names} alone",) if len(new.platforms) < len(old.platforms) else ()
        yield Finding(subject=image, kind=kind, facts=(f"{old.digest}, of {old.resolved}", *more))
    else:
        yield from _moved_findings(image, old, new)


def _new_facts(image: LockedImage) -> Iterator[str]:
    yield f"{image.digest} at {image.registry}"
    for found in image.platforms:
        yield f"{found.platform}: {size_text(found.size)} in {len(found.layers)} layers{_says_text(found)}"


def _says_text(found: LockedPlatform) -> str:
    said = {name: value for name, value in vars(image_says(found.environment)).items() if value}
    return "; says " + ", ".join(f"{NAMES[name]} {value}" for name, value in said.items()) if said else ""


NAMES = {"tensorrt": "TensorRT", "cuda": "CUDA", "driver": "driver", "torch": "torch"}
"""What an image says of itself, by the names of :class:`ImageSays`."""


def _moved_findings(image: str, old: LockedImage, new: LockedImage) -> Iterator[Finding]:
    head = f"{old.digest} → {new.digest}"
    if old.digest == new.digest:
        yield Finding(subject=image, kind=Kind.DENIED, facts=(new.digest, *_denied_facts(old, new)))
        return
    several: list[Finding] = []
    for found in new.platforms:
        before = old.of(found.platform)
        if before is None:
            several.append(_of(image, Kind.PLATFORM_ADDED, found))
        elif before.manifest == found.manifest and before != found:
            several.append(_of(image, Kind.DENIED, found, found.manifest, *_other_fields(before, found)))
        elif before.image_id != found.image_id:
            several.append(_of(image, Kind.MOVED, found, head, *_platform_facts(before, found)))
        elif before.manifest != found.manifest:
            several.append(_of(image, Kind.REPACKED, found, f"{before.manifest} → {found.manifest}"))
    several += [_of(image, Kind.PLATFORM_GONE, p) for p in old.platforms if new.of(p.platform) is None]
    yield from several or [Finding(subject=image, kind=Kind.INDEX, facts=(head,))]


def _of(image: str, kind: Kind, platform: LockedPlatform, *facts: str) -> Finding:
    return Finding(subject=image, kind=kind, platform=platform.platform, facts=facts)


def _denied_facts(old: LockedImage, new: LockedImage) -> Iterator[str]:
    for found in new.platforms:
        before = old.of(found.platform)
        if before is None:
            yield f"{found.platform} is not in the lock"
        else:
            yield from _other_fields(before, found)
    yield from (f"{p.platform} is in the lock alone" for p in old.platforms if new.of(p.platform) is None)


def _other_fields(old: LockedPlatform, new: LockedPlatform) -> Iterator[str]:
    for name in ("manifest", "image_id", "layers", "labels", "environment"):
        if getattr(old, name) != getattr(new, name):
            yield f"{old.platform}: {name} is another"


def held_findings(old: LockedImage, answers: Mapping[str, Answer]) -> tuple[bool | None, tuple[Finding, ...]]:
    """Return whether a registry still has a locked image, and where it is another than the lock says.

    ``answers``: by manifest, what the registry has under it: what runs pull. None where it does not say.
    """
    there: list[bool | None] = []
    denied: list[Finding] = []
    for locked in old.platforms:
        answer = answers[locked.manifest]
        if isinstance(answer, Unresolved):
            there.append(False if answer.trouble is Trouble.MISSING else None)
            continue
        # The manifest alone does not say under which name an index has its platform.
        its = [replace(found, platform=locked.platform) for found in answer.platforms]
        there.append(its == [locked])
        if its != [locked]:
            facts = (locked.manifest, *(fact for found in its for fact in _other_fields(locked, found)))
            denied.append(_of(old.image, Kind.DENIED, locked, *facts))
    has = None if None in there and False not in there else all(there)
    return has, tuple(denied)


def _platform_facts(old: LockedPlatform, new: LockedPlatform) -> Iterator[str]:
    """Yield what differs between two images of one name: versions first, then other words, then sizes."""
    before, after = image_says(old.environment), image_says(new.environment)
    yield from _said_facts(before, after)
    yield from _named_facts("variable", old.environment, new.environment)
    yield from _named_facts("label", old.labels, new.labels)
    known = {layer.digest for layer in old.layers}
    fresh = {layer.digest: layer.size for layer in new.layers if layer.digest not in known}
    yield (
        f"size {size_text(old.size)} → {size_text(new.size)}, of which {size_text(sum(fresh.values()))} in "
        f"{len(fresh)} layers are not in the locked one"
    )


def _said_facts(before: ImageSays, after: ImageSays) -> Iterator[str]:
    changed = [name for name in NAMES if getattr(before, name) != getattr(after, name)]
    for name in changed:
        was, now = (getattr(said, name) or "not named" for said in (before, after))
        yield f"{NAMES[name]} {was} → {now}"
    if not changed:
        named = [f"{NAMES[name]} {getattr(after, name)}" for name in NAMES if getattr(after, name)]
        if named:
            yield f"the versions that it names are the same ({', '.join(named)}): what else is in it changed"
        else:
            yield "it names no versions: what changed in it cannot be told from here"


def _named_facts(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            was, now = (values.get(name, "none") for values in (old, new))
            yield f"{what} {name}: {was} → {now}"


def _build_findings(version: str, old: LockedBuild | None, parts: BuildParts) -> Iterator[Finding]:
    subject, versions = f"build {version}", (version,)
    wheels, files = (", ".join(names) or "none" for names in (parts.build.wheels, parts.build.files))
    if old is None:
        made = f"{parts.build.image} on {parts.build.base}"
        facts = (made, f"wheels with their SHA-256: {wheels}", f"files: {files}")
        yield Finding(subject=subject, kind=Kind.BUILD_NEW, versions=versions, facts=facts)
    elif differences := build_differences(old, parts.build):
        yield Finding(subject=subject, kind=Kind.BUILD_CHANGED, versions=versions, facts=differences)
    elif not parts.unhashed:
        yield Finding(subject=subject, kind=Kind.LOCKED, versions=versions)
    if parts.unhashed:
        mend = f"nox -s image -- {version} --lock takes them as they come, this once, and writes them down"
        yield Finding(subject=subject, kind=Kind.UNHASHED, versions=versions, facts=(*parts.unhashed, mend))


def size_text(size: int) -> str:
    """Write bytes by powers of ten, as registries show them: ``8.9 GB``."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"


def needs_decision(findings: Iterable[Finding]) -> bool:
    """Whether something moved or is not locked."""
    return any(finding.kind not in QUIET | UNRESOLVED for finding in findings)


def unanswered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return what no registry gave an image for: it could not be asked, or has none."""
    return tuple(finding for finding in findings if finding.kind in UNRESOLVED)
