"""What moved since matrix.lock was written, why that matters, and what ``lock`` prints of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from trtmatrix.images.image_facts import Agreement, FactCheck
from trtmatrix.images.pins import BuildParts, build_differences
from trtmatrix.launchers.lock import Lock, LockedBuild, LockedImage, LockedPlatform, named_versions
from trtmatrix.launchers.references import Trouble

UPDATE = "nox -s lock -- --update"


class Kind(Enum):
    """What was found of an image or a build: its words, and why it matters. Only one is as it should be."""

    LOCKED = "as locked", ""
    NEW = (
        "not locked yet",
        "runs pull whatever its tag stands for that day, and nothing shows when that changes",
    )
    MOVED = (
        "tag moved: another image",
        "runs go on with the locked image while the registry has it; after --update records made in it are "
        "no longer current and their cells run again",
    )
    RETAGGED = (
        "tag moved: what runs is the same",
        "records stay current, but for engines with containerd's image store: they know images by digest",
    )
    GONE = "no longer at the registry", "new hosts cannot pull it by its tag"
    ABSENT = (
        "not there", "no run can pull it: a mistake in matrix.yaml's name or tag, or a mirror without it"
    )  # fmt: skip
    UNKNOWN = (
        "could not be asked", "what it stands for now is not known; the lock's entry stays as it was"
    )  # fmt: skip
    BUILD_NEW = "build not locked yet", "nothing shows when what it is made of changes"
    BUILD_CHANGED = (
        "built of other parts",
        "the image is built anew and gets another ID: records made in the old one are no longer current",
    )
    UNHASHED = (
        "wheels without SHA-256",
        "nothing says that they are the ones that were meant, so the image is not built",
    )
    UNUSED = "no longer in matrix.yaml", "no version needs it; --update without --trt removes it"
    LOCAL = "made on this host: no registry has it", "it is known by its name alone, and runs say so"

    @property
    def words(self) -> str:
        """What it is."""
        return self.value[0]

    @property
    def why(self) -> str:
        """Why it matters."""
        return self.value[1]


QUIET = frozenset({Kind.LOCKED, Kind.UNUSED, Kind.LOCAL})
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
    facts: tuple[str, ...] = ()
    old_is_there: bool | None = None


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
    if old.registry == new.registry:
        return replace(old, resolved=new.resolved) == new
    same = replace(old, registry=new.registry, resolved=new.resolved) == new
    return same or (bool(new.platforms) and all(old.of(each.platform) == each for each in new.platforms))


def _image_findings(image: str, old: LockedImage | None, answer: Answer) -> Iterator[Finding]:
    if isinstance(answer, Unresolved):
        missing = Kind.GONE if old is not None else Kind.ABSENT
        kind = missing if answer.trouble is Trouble.MISSING else Kind.UNKNOWN
        yield Finding(subject=image, kind=kind, facts=tuple(answer.message.splitlines()))
        return
    if old is None:
        yield Finding(subject=image, kind=Kind.NEW, facts=tuple(_new_facts(answer)))
        return
    facts: list[str] = []
    if covers(old, answer):
        kind, facts = Kind.LOCKED, [f"{old.digest}, of {old.resolved}"]
        if len(answer.platforms) < len(old.platforms):
            facts.append(f"it has {', '.join(each.platform for each in answer.platforms)} alone")
    else:
        facts = list(_moved_facts(old, answer))
        same = all((now := answer.of(p.platform)) and now.image_id == p.image_id for p in old.platforms)
        kind = Kind.RETAGGED if same and old.digest != answer.digest else Kind.MOVED
    if old.registry != answer.registry:
        facts.append(f"another host answered than the lock's: {old.registry} → {answer.registry}")
    yield Finding(subject=image, kind=kind, facts=tuple(facts))


def _new_facts(image: LockedImage) -> Iterator[str]:
    yield f"{image.digest} at {image.registry}"
    for found in image.platforms:
        said = ", ".join(f"{name} {value}" for name, value in said_versions(found).items())
        says = f"; says {said}" if said else ""
        yield f"{found.platform}: {size_text(found.size)} in {len(found.layers)} layers{says}"


def said_versions(found: LockedPlatform) -> dict[str, str]:
    """Return what an image says of its versions, by their names; what it does not say is left out."""
    said = named_versions(found.environment)
    named = {"TensorRT": said.tensorrt, "CUDA": said.cuda, "driver": said.driver, "torch": said.torch}
    return {name: value for name, value in named.items() if value}


def _moved_facts(old: LockedImage, new: LockedImage) -> Iterator[str]:
    """Yield how an answer differs from the lock, platform by platform."""
    yield f"{old.digest} → {new.digest}"
    for found in new.platforms:
        before, name = old.of(found.platform), found.platform
        if before is None:
            yield f"{name} is added: its hosts can be locked too"
        elif before.manifest == found.manifest and before != found:
            names = ("image_id", "layers", "labels", "environment")
            others = ", ".join(each for each in names if getattr(before, each) != getattr(found, each))
            yield f"{name}: {found.manifest} stands for one content, the lock has another {others}: edited"
        elif before.image_id != found.image_id:
            yield from (f"{name}: {fact}" for fact in _platform_facts(before, found))
        elif before.manifest != found.manifest:
            yield f"{name}: the same image, packed anew: {before.manifest} → {found.manifest}"
    for gone in old.platforms:
        if new.of(gone.platform) is None:
            yield f"{gone.platform} is gone: its hosts cannot pull it by its tag any more"


def is_held(old: LockedImage, answers: Mapping[str, Answer]) -> bool | None:
    """Return whether a registry still has a locked image as the lock has it; None where it does not say.

    ``answers``: by manifest, what the registry has under it: what runs pull.
    """
    there: list[bool | None] = []
    for locked in old.platforms:
        answer = answers[locked.manifest]
        if isinstance(answer, Unresolved):
            there.append(False if answer.trouble is Trouble.MISSING else None)
        else:
            # The manifest alone does not say under which name an index has its platform.
            there.append([replace(each, platform=locked.platform) for each in answer.platforms] == [locked])
    return None if None in there and False not in there else all(there)


def _platform_facts(old: LockedPlatform, new: LockedPlatform) -> Iterator[str]:
    """Yield what differs between two images of one name: versions first, then other words, then sizes."""
    before, after = said_versions(old), said_versions(new)
    yield from _named_facts("", before, after, "not named")
    if before == after and after:
        named = ", ".join(f"{name} {value}" for name, value in after.items())
        yield f"the versions that it names are the same ({named}): what else is in it changed"
    elif before == after:
        yield "it names no versions: what changed in it cannot be told from here"
    yield from _named_facts("variable ", old.environment, new.environment, "none", colon=":")
    yield from _named_facts("label ", old.labels, new.labels, "none", colon=":")
    known = {layer.digest for layer in old.layers}
    fresh = {layer.digest: layer.size for layer in new.layers if layer.digest not in known}
    yield (
        f"size {size_text(old.size)} → {size_text(new.size)}, of which {size_text(sum(fresh.values()))} in "
        f"{len(fresh)} layers are not in the locked one"
    )


def _named_facts(
    what: str, old: Mapping[str, str], new: Mapping[str, str], none: str, colon: str = ""
) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield f"{what}{name}{colon} {old.get(name, none)} → {new.get(name, none)}"


def _build_findings(version: str, old: LockedBuild | None, parts: BuildParts) -> Iterator[Finding]:
    subject, versions = f"build {version}", (version,)
    if old is None:
        wheels, files = (", ".join(names) or "none" for names in (parts.build.wheels, parts.build.files))
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


def lock_text(
    findings: Sequence[Finding], facts: Sequence[FactCheck], file: str, written: bool | None
) -> str:
    """Return the findings for a terminal. ``written``: whether the file was, None where nothing was to be."""
    shown = {finding.kind for finding in findings} - {Kind.LOCKED}
    parts = [
        "\n".join(_section(kind, [finding for finding in findings if finding.kind is kind]))
        for kind in Kind if kind in shown
    ]  # fmt: skip
    if told := list(_fact_lines(facts)):
        parts.append("\n".join(["what the images say of themselves, against matrix.yaml", *told]))
    return "\n\n".join([*parts, "\n".join(_ending(findings, file, written))])


def _section(kind: Kind, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings of one kind; a remedy that several share stands once."""
    yield f"{kind.words}: {len(findings)}"
    yield f"  why it matters: {kind.why}"
    remedies = {finding.facts[1:]: None for finding in findings} if kind is Kind.UNKNOWN else {}
    for finding in findings:
        used = finding.versions and not finding.subject.startswith("build ")
        yield f"  {finding.subject}" + (f" · {', '.join(finding.versions)}" if used else "")
        yield from (f"    {fact}" for fact in (finding.facts[:1] if remedies else finding.facts))
        if finding.old_is_there is True:
            yield "    the registry still has the locked image: it can be pulled by its digest"
        elif finding.old_is_there is False:
            yield "    the registry no longer has the locked image: keep it (nox -s pack), or move on"
    for lines in remedies:
        yield from lines


def _fact_lines(facts: Sequence[FactCheck]) -> Iterator[str]:
    """Yield what images contradict, and what they settle that was not read so far."""
    for check in facts:
        known = f"  {check.version}: {check.name} {check.fact.value} ({check.fact.known.value})"
        if check.agreement is Agreement.CONTRADICTED:
            yield f"{known} is contradicted"
            yield f"    the image says {check.says}: correct matrix.yaml, or pin another image"
        elif check.settles:
            yield f"{known} is confirmed"
            yield f"    the image says {check.says}: write known: read there, with the image as its source"


_MISSING = {
    Kind.ABSENT: "not at the registry, so not locked (a mistake in matrix.yaml?)",
    Kind.UNKNOWN: "could not be asked, so their entries are as they were",
}


def _ending(findings: Sequence[Finding], file: str, written: bool | None) -> Iterator[str]:
    counts = Counter(finding.kind for finding in findings)
    told = [f"{kind.words}: {count}" for kind, count in counts.items()]
    yield f"{file}: {'; '.join(told) or 'none of these versions comes from an image'}"
    for kind, words in _MISSING.items():
        if names := ", ".join(dict.fromkeys(f.subject for f in findings if f.kind is kind)):
            yield f"{words}: {names}"
    if written is not None:
        yield f"{file} is written: review it by git diff" if written else f"{file} is as it was"
    elif needs_decision(findings):
        yield f"nothing was changed; to take over what was found: {UPDATE}"


def lock_json(
    findings: Sequence[Finding], facts: Sequence[FactCheck], file: str, written: bool | None
) -> dict[str, Any]:
    """Return the findings as plain data."""
    return {
        "schema": 1,
        "lock": file,
        "written": written,
        "findings": [
            {
                "subject": finding.subject, "kind": finding.kind.name.lower().replace("_", "-"),
                "what": finding.kind.words, "why": finding.kind.why, "versions": list(finding.versions),
                "facts": list(finding.facts),
                "old_is_there": finding.old_is_there,
                "decide": finding.kind not in QUIET | UNRESOLVED,
            }
            for finding in findings
        ],
        "facts": [
            {
                "version": check.version, "fact": check.name, "value": check.fact.value,
                "known": check.fact.known.value, "image_says": check.says or None,
                "agreement": check.agreement.name.lower(),
            }
            for check in facts
        ],
    }  # fmt: skip
