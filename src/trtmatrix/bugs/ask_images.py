"""Asks a list of the user's images of a case: each is a version of its own, found by looking into it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace

from trtmatrix.bugs.ask_versions import CaseRun, Versions, command_line
from trtmatrix.bugs.bisect_report import Candidate, Reply, Report
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.remembered import Remembered
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.launchers.containers import read_contents
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.launchers.images import pull_by_name
from trtmatrix.suite.image_names import HeldImage, find_image
from trtmatrix.suite.matrix import Fact, ImageOrigin, Source, Version
from trtmatrix.suite.model import Known, Product, is_release
from trtmatrix.upgrade.question import DOOR

FOLDER = "bisect"
"""Where in the cache the records of images lie that matrix.yaml does not name, a folder for each image."""

SOURCE = "image"


class UserImages:
    """Images in the order that they were given, the oldest first."""

    interrupted = Versions.interrupted

    def __init__(self, run: CaseRun, args: argparse.Namespace, names: tuple[str, ...]) -> None:
        self.run, self.args, self.names = run, args, names
        self.product = Product(args.product)
        self.candidates = tuple(Candidate(name=name, image=name) for name in names)
        self.subject = run.subject(self.product, "image")
        self.rests_on = f"a good answer rests on {run.rebuilds} builds" if run.rebuilds > 1 else ""
        self._held: dict[int, HeldImage] = {}
        self._remembered = Remembered(run.context.project.cache)

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what records of these very images answer; those that are here are looked into first."""
        engine = find_engine(gpu_here=False)
        if not engine.available:
            raise MachineryError(f"no image can be looked into: {engine.reason}")
        replies: dict[int, Reply] = {}
        for number, name in enumerate(self.names):
            held = find_image(engine.images, name)
            if held is not None:
                self._held[number] = held
                version = self._version(held)
                if isinstance(version, Reply):
                    replies[number] = version
                elif found := self._run_of(held, version).look([version])[0].get(version.name):
                    replies[number] = _of_image(found, held)
            elif not self.args.pull:
                replies[number] = _silent("not here", "pull it, or say --pull")
        return replies, {}

    def ask(self, number: int) -> Reply:
        """Run the case in an image, which is pulled first where it is not here."""
        if number not in self._held:
            try:
                self._held[number] = pull_by_name(self.names[number])
            except MachineryError as error:
                return replace(_silent("not pulled", str(error).splitlines()[0]), tried=True)
        held = self._held[number]
        version = self._version(held)
        if isinstance(version, Reply):
            return version
        return _of_image(self._run_of(held, version).ask(version), held)

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return what searches these images again; an image is named by its digest where it has one."""

        def name(number: int) -> str:
            held = self._held.get(number)
            return held.registry if held and held.registry else self.names[number]

        row = ["--image", *map(name, range(report.search.count))]
        words = [*self.run.words(self.args), *row, *report.ends(name), "--product", self.args.product]
        return (command_line([DOOR, "bisect", "--", *words]),)

    def _version(self, held: HeldImage) -> Version | Reply:
        """Return the version of the product that an image has, or why it cannot say."""
        try:
            found = self._remembered.recall("contents", held.id, lambda: read_contents(held.id))
        except MachineryError as error:
            return _of_image(_silent("cannot be run", str(error)), held)
        library = found.get(self.product.value)
        if library is None:
            has = ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing that is known"
            return _of_image(_silent(f"no {PRODUCT_NAMES[self.product]} in it", f"it has {has}"), held)
        if not is_release(library):
            return _of_image(_silent("unclear version", f"{library} is no release number"), held)
        return make_version(self.product, library, held.name, found)

    def _run_of(self, held: HeldImage, version: Version) -> CaseRun:
        """Return the run in one image: its own records, beside the versions that control TensorRT's cells."""
        context = self.run.context
        checks = [v for v in context.matrix.versions if v.product is Product.ONNXRUNTIME]
        versions = (version, *(checks if self.product is Product.TENSORRT else []))
        sources = {**context.matrix.sources, SOURCE: Source(title="what the image says of itself")}
        results = context.project.cache / FOLDER / held.id.removeprefix("sha256:")[:16]
        matrix = replace(context.matrix, versions=versions, sources=sources)
        project = replace(context.project, results=results)
        return replace(self.run, context=replace(context, matrix=matrix, project=project))


def _silent(what: str, reason: str) -> Reply:
    return Reply(answer=Answer.CANNOT_SAY, words=what, reason=reason, known="looked at")


def _of_image(reply: Reply, held: HeldImage) -> Reply:
    return replace(reply, image=held.registry, image_id=held.id)


def make_version(product: Product, library: str, image: str, found: Mapping[str, str]) -> Version:
    """Return the column that an image is; its name is that of the release inside."""
    release = re.sub(r"[^a-z0-9.]+", ".", library.lower()).strip(".")
    prefix = "" if product is Product.TENSORRT else f"{product.value}-"

    def fact(value: str | None) -> Fact | None:
        return Fact(value=value, known=Known.INFERRED, source=SOURCE) if value else None

    return Version(
        version=prefix + release, product=product, origin=ImageOrigin(image=image),
        torch=fact(found.get("torch")), torch_tensorrt=fact(found.get("torch_tensorrt")),
        library=Fact(value=library, known=Known.INFERRED, source=SOURCE),
    )  # fmt: skip


def read_images(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the images that were named, in order; :class:`UsageError` where that is not two at least."""
    names = [name for several in args.image for name in several]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--image: {twice} stands twice: a row has each image once")
    if len(names) < 2:
        raise UsageError("--image: 1 image; to search between takes two at least, oldest first")
    return tuple(names)
