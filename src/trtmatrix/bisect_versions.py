"""Asks matrix.yaml's versions of a case, or of a model of one's own: stored records first, then a run."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trtmatrix.context import Context, open_context
from trtmatrix.core.bisect import Answer
from trtmatrix.core.bisect_reply import hint_of, reply_of, stored_reply
from trtmatrix.core.bisect_report import Again, Candidate, Reply, Subject
from trtmatrix.core.compare import Entry
from trtmatrix.core.config import ImageOrigin, Matrix, Version
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import CONTROLS, nearest_names
from trtmatrix.core.model import CPU, Case, Evidence, Gpu, Product, Repro
from trtmatrix.core.plan import Isolation, Pull
from trtmatrix.core.upgrade.question import DOOR
from trtmatrix.core.words import PRODUCT_NAMES
from trtmatrix.moving import choose_gpu, file_options, model_options

INTERRUPTED = "it was interrupted; the same command goes on from what is stored"


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """One case on one GPU: what is stored of it at versions, and a run at one of them."""

    context: Context
    repro: Repro
    case: Case
    gpu: Gpu
    rebuilds: int
    pull: Pull
    can_run: bool

    @property
    def name(self) -> str:
        """The case as the command line takes it."""
        return f"{self.repro.id}/{self.case.id}"

    def narrowed(self, versions: Sequence[Version]) -> Context:
        """Return the context of the case at these versions, with the controls that it needs."""
        gpus = () if self.gpu == CPU else (self.gpu.slug,)
        selection = replace(
            self.context.selection, versions=tuple(v.name for v in versions), repros=(self.repro.id,),
            cases=(self.name,), gpus=gpus,
        )  # fmt: skip
        return replace(self.context, selection=selection)

    def look(self, versions: Sequence[Version]) -> tuple[dict[str, Entry], dict[str, Reply], frozenset[str]]:
        """Return by version: what the case shows, what that answers, and where it can run without a pull."""
        from trtmatrix.scene import digests_now, entries_of, look_around

        context = self.narrowed(versions)
        scene = look_around(context, self.pull)
        entries = self._mine(entries_of(context, scene, scene.stored))
        current, images = digests_now(context, scene), scene.host.engine.images
        able = {launch.version.name: launch for launch in scene.plan.launches}
        replies = {
            name: stored_reply(
                entry, rebuilds=self.rebuilds, can_run=self.can_run and entry.excluded is None,
                current=current[entry.cell.id], images=images,
            )
            for name, entry in entries.items()
        }  # fmt: skip
        here = frozenset(name for name, launch in able.items() if not launch.lacks_image)
        return entries, {name: reply for name, reply in replies.items() if reply is not None}, here

    def _mine(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        return {
            entry.cell.version.name: entry
            for entry in entries
            if (entry.cell.repro.id, entry.cell.case.id) == (self.repro.id, self.case.id)
            and not entry.cell.companion
        }

    def ask(self, version: Version) -> Reply:
        """Run the case at a version, with as many engines as a good answer needs.

        In a process of its own: what another cell left, or was remembered of one, is no build. Without what
        goes along with a run: controls and ONNX Runtime's own versions answer nothing here, and a host
        without a network would wait for pip each time.
        """
        from trtmatrix.perform import Options, perform
        from trtmatrix.scene import look_around

        context = replace(self.narrowed([version]), controls=False)
        scene = look_around(context, self.pull)
        result = perform(context, scene, Options(rebuilds=self.rebuilds, isolation=Isolation.PROCESS))
        entry = self._mine(result.entries).get(version.name)
        not_ready = [item.detail or item.why.value for item in result.performed.not_ready]
        if entry is None or entry.outcome is None or entry.evidence is not Evidence.MEASURED:
            why = not_ready or ([entry.excluded.detail] if entry and entry.excluded else [])
            return Reply(
                answer=Answer.CANNOT_SAY, words="not run", reason=why[0] if why else "it left no record",
                known="tried now", tried=True,
            )  # fmt: skip
        images = scene.host.engine.images
        return reply_of(entry, entry.outcome, rebuilds=self.rebuilds, images=images, tried=True)


class Versions:
    """matrix.yaml's versions of one product, the oldest first."""

    interrupted = INTERRUPTED

    def __init__(self, run: CaseRun, args: argparse.Namespace) -> None:
        """Keep what runs a case, and what was asked."""
        self.run, self.args = run, args
        product = Product(args.product)
        found = candidates_of(run.context.matrix, product)
        self.versions = [version for version, _ in found]
        self.candidates = tuple(candidate for _, candidate in found)
        self.subject = make_subject(run, product, "version")
        self.rests_on = rests_on(run.rebuilds)
        self._here: frozenset[int] = frozenset()

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what records answer, and what reports and older records say."""
        entries, replies, here = self.run.look(self.versions)
        numbers = {version.name: number for number, version in enumerate(self.versions)}
        self._here = frozenset(numbers[name] for name in here if name in numbers)
        hints = {numbers[n]: hint for n, entry in entries.items() if (hint := hint_of(entry)) is not None}
        return {numbers[name]: reply for name, reply in replies.items()}, hints

    def here(self) -> frozenset[int]:
        """Return those whose image is here."""
        return self._here

    def ask(self, number: int) -> Reply:
        """Run the case at a version."""
        return self.run.ask(self.versions[number])

    def commands(self, again: Again) -> tuple[str, ...]:
        """Return what runs the case at these versions, and what searches between them again."""
        names = ",".join(self.candidates[number].name for number in again.shown)
        row = ["--repro", self.run.repro.id] if self.args.model is None else []
        case = case_words(self.run, self.args)
        ends = again.ends(lambda number: self.candidates[number].name)
        product = [] if self.args.product == "tensorrt" else ["--product", self.args.product]
        run = words([DOOR, "matrix", "--", "--trt", names, *row, *case])
        search = words([DOOR, "bisect", "--", *case, *ends, *product])
        return (run, search) if names else (search,)


def case_words(run: CaseRun, args: argparse.Namespace) -> list[str]:
    """Return the options that name the case, the GPU, the builds and the files."""
    what = ["--case", run.name] if args.model is None else model_options(args)
    gpu = ["--gpu", args.wanted_gpu] if args.wanted_gpu else []
    return [*what, *gpu, "--rebuilds", str(run.rebuilds), *file_options(args)]


def candidates_of(matrix: Matrix, product: Product) -> list[tuple[Version, Candidate]]:
    """Return the versions of a product, the oldest first."""
    found = sorted((v for v in matrix.versions if v.product is product), key=lambda version: version.release)
    images = [v.origin.image if isinstance(v.origin, ImageOrigin) else "" for v in found]
    return [(v, Candidate(name=v.name, image=image)) for v, image in zip(found, images, strict=True)]


def words(parts: Sequence[str]) -> str:
    """Return a command line; the door's own two words stay as they are."""
    return " ".join([parts[0], shlex.join(parts[1:])])


def rests_on(rebuilds: int) -> str:
    """Say what a good answer rests on."""
    return f"a good answer rests on {rebuilds} builds" if rebuilds > 1 else ""


def make_subject(run: CaseRun, product: Product, what: str) -> Subject:
    """Return what is looked for, in words."""
    driver = f" (driver {run.gpu.driver})" if run.gpu.driver else ""
    return Subject(
        title=run.name, about=run.repro.title, upstream=run.repro.upstream, url=run.repro.url,
        product=PRODUCT_NAMES[product], place=run.gpu.name + driver if run.gpu != CPU else "the CPU",
        what=what, figure_label=run.repro.figure.label,
    )  # fmt: skip


def open_versions(args: argparse.Namespace) -> Versions:
    """Return matrix.yaml's versions; :class:`UsageError` where there is no such case, GPU or version."""
    run = open_case(args)
    versions = Versions(run, args)
    if not versions.candidates:
        raise UsageError(
            f"--product {args.product}: matrix.yaml has no version of it; add some, or name --image"
        )
    return versions


def open_case(args: argparse.Namespace) -> CaseRun:
    """Return the case that was named, with the GPU that is meant."""
    product = Product(args.product)
    context = open_context(_plain(args))
    if args.model is not None:
        from trtmatrix.own_model import notes_of, open_model

        context = open_model(context, args)
        for told in notes_of(context):
            print(f"{args.model.name}: {told}", file=sys.stderr)
    repro, case = _find_case(context, args.wanted_case)
    if product not in case.products:
        able = " or ".join(f"--product {p.value}" for p in Product if p in case.products)
        raise UsageError(f"{repro.id}/{case.id} is not run by {PRODUCT_NAMES[product]}: say {able}")
    return CaseRun(
        context=context, repro=repro, case=case, gpu=_find_gpu(context, args, product),
        rebuilds=3 if args.rebuilds is None else args.rebuilds,
        pull=Pull.NAMED if args.pull else Pull.NEVER, can_run=not args.no_run,
    )  # fmt: skip


def _plain(args: argparse.Namespace) -> argparse.Namespace:
    """Return the options without a selection: what is looked for is named otherwise."""
    empty: dict[str, list[str]] = {name: [] for name in ("trt", "repro", "case", "gpu", "runtime", "python")}
    return argparse.Namespace(**{**vars(args), **empty})


def _find_gpu(context: Context, args: argparse.Namespace, product: Product) -> Gpu:
    if product is not Product.TENSORRT:
        if args.wanted_gpu:
            raise UsageError(f"--gpu {args.wanted_gpu}: {PRODUCT_NAMES[product]} is run on the CPU here")
        return CPU
    from trtmatrix.effects.gpu import find_gpus
    from trtmatrix.effects.store import read_records
    from trtmatrix.scene import without_superseded

    stored = without_superseded(read_records(context.project.results))
    return choose_gpu([args.wanted_gpu] if args.wanted_gpu else [], find_gpus().gpus, stored)


def _find_case(context: Context, wanted: str | None) -> tuple[Repro, Case]:
    """Return the one case of a name; of a model's context the model's own."""
    repros = [repro for repro in context.plain_repros if wanted is not None or repro.id != CONTROLS]
    rows = [(repro, case) for repro in repros for case in repro.cases]
    if wanted is None:
        return rows[0]
    if "@" in wanted:
        case, _, version = wanted.partition("@")
        bad = version.partition("#")[0]
        raise UsageError(f"--case {wanted}: that is a cell; its case: --case {case} --bad {bad}")
    found = [(r, c) for r, c in rows if wanted in {c.id, f"{r.id}/{c.id}"}]
    if len(found) > 1:
        names = ", ".join(f"{repro.id}/{case.id}" for repro, case in found)
        raise UsageError(f"--case {wanted}: several repros have it; name one: {names}")
    if not found:
        known = [c.id for _, c in rows] + [f"{r.id}/{c.id}" for r, c in rows]
        raise UsageError(nearest_names("--case", wanted, known))
    return found[0]
