"""The command upgrade: gathers what is known of two versions, decides, prints and writes the report."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.api.types import ApiSection
from trtmatrix.common.errors import ExitCode
from trtmatrix.common.paths import write_output
from trtmatrix.judge.standing import Standing
from trtmatrix.plan.context import Context, open_context
from trtmatrix.plan.survey import entries_of, find_additions, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import NO_GPU, Product
from trtmatrix.suite.plan import Launch, Pull
from trtmatrix.upgrade.decide import choose_version, decide
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.move import (
    ANY,
    Gathered,
    check_options,
    find_move,
    gather,
    is_of_tensorrt,
    make_question,
)
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.report import Lacking, ModelSection, Upgrade, plain, upgrade_json

if TYPE_CHECKING:
    from trtmatrix.upgrade.document import Document

NO_SURFACES = "surfaces are kept of TensorRT's bindings alone"


def upgrade_command(args: argparse.Namespace) -> ExitCode:
    """Say whether to move from one version to another; the exit code is the answer."""
    check_options(args)
    if args.api:
        return _tell_api(args)
    context = open_context(args)
    left_out: frozenset[str] = frozenset()
    if args.after == ANY:  # the agreed versions, and those that were measured
        stored = read_records(context.project.results)
        left_out = find_additions(context, stored, Standing.PLANNED, Standing.REPORTED)
    before, afters = find_move(context.matrix, args.before, args.after, left_out)
    gathered = gather(context, before)
    if args.after == ANY:
        upgrade = _choose(args, context, gathered, before, afters)
    else:
        upgrade = _decide(args, context, gathered, before, afters[0])
    show(args, upgrade)
    return upgrade.exit_code


def _choose(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, afters: Sequence[Version]
) -> Upgrade:
    """Return the report of the version to move to; the API and the model are looked at for that alone."""
    plain = argparse.Namespace(**{**vars(args), "model": None, "code": []})
    tried = [_decide(plain, context, gathered, before, after, api=False) for after in afters]
    chosen = choose_version(tried, args.repro)
    after = next(version for version in afters if version.name == chosen.after)
    whole = _decide(args, context, gathered, before, after)
    others = [u for u in tried if u.after != whole.after]
    order = {version.name: index for index, version in enumerate(afters)}
    return choose_version(sorted([whole, *others], key=lambda u: order[u.after]), args.repro)


def _decide(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, after: Version, *,
    api: bool = True,
) -> Upgrade:  # fmt: skip
    known = before.product is Product.TENSORRT
    section = _compare_apis(args, before.name, after.name, known=known) if api else ApiSection()
    question = make_question(args, context, gathered, before, after)
    own = _own(args, context, gathered, before, after)
    upgrade = decide(replace(question, api=section, code=bool(args.code), own=own))
    return replace(upgrade, lacking=_priced(upgrade.lacking, context, before, after)) if api else upgrade


def _priced(lacking: Sequence[Lacking], context: Context, *versions: Version) -> tuple[Lacking, ...]:
    """Return what is lacking with what each command fetches: images that are not here, GB and time."""
    from trtmatrix.launchers.gpu import find_gpus
    from trtmatrix.plan.survey import find_engine_of
    from trtmatrix.run.planned import image_words

    engine = find_engine_of(context, find_gpus())
    absent = [
        Launch(version=version, gpu=NO_GPU, cells=(), pull=not origin.build, build=bool(origin.build))
        for version in versions
        if isinstance(origin := version.origin, ImageOrigin) and engine.held(origin) is None
    ]

    def price(item: Lacking) -> Lacking:
        words = item.command.replace(",", " ").split()
        cost = image_words([each for each in absent if each.version.name in words], context, engine)
        return replace(item, what=f"{item.what} ({cost})") if cost else item

    return tuple(map(price, lacking))


def _compare_apis(args: argparse.Namespace, before: str, after: str, *, known: bool) -> ApiSection:
    """Return what changes for code; ``known``: the surfaces of the product's bindings are."""
    if not known:
        return ApiSection(code=tuple(map(str, args.code)) if args.api else (), lacking=NO_SURFACES)
    from trtmatrix.api.section import make_api_section

    return make_api_section(args.results, before, after, args.code)


def _own(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, after: Version
) -> Own | None:
    """Run the user's model where it can be run here, unless told not to, and return what is known of it."""
    if args.model is None:
        return None
    from trtmatrix.model.own_model import ModelOptions, open_model
    from trtmatrix.run.perform import Options, perform
    from trtmatrix.upgrade.model_section import make_model_section

    selection = replace(
        context.selection, versions=tuple(dict.fromkeys((before.name, after.name))), repros=(), cases=(),
        gpus=(gathered.gpu_word,) if gathered.gpu_word else (),
    )  # fmt: skip
    mine = open_model(replace(context, selection=selection), ModelOptions.of(vars(args)))
    survey = take_survey(mine, Pull.NEVER if args.no_run else Pull.NAMED)
    if args.no_run:
        entries = entries_of(mine, survey, survey.stored)
    else:
        from trtmatrix.judge.confirm import CONFIRMING_BUILDS

        entries = perform(mine, survey, Options(rebuilds=CONFIRMING_BUILDS, log=mine.project.log)).entries
    section = make_model_section(mine, entries, before.name, after.name, args, gathered.calibration)
    if after.product is Product.TENSORRT:
        section = _with_nodes(section, args.model, context, gathered, (before.name, after.name))
    tolerance = args.atol is not None or args.rtol is not None
    return Own(section=section, entries=Entries(entries, gathered.calibration), tolerance=tolerance)


def _with_nodes(
    section: ModelSection, model: Path, context: Context, gathered: Gathered, move: tuple[str, str]
) -> ModelSection:
    """Return a model's section with what the repros know of its nodes."""
    from trtmatrix.model.static_check import check_model
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.upgrade.known_nodes import with_nodes

    facts = {name: loaded.repro for name, loaded in context.repros.items()}
    check = check_model(load_model(model), model.name, facts, move, gathered.gpu.compute or "")
    return with_nodes(section, check, *move)


def _tell_api(args: argparse.Namespace) -> ExitCode:
    """Tell the difference of the two APIs, with code where it is used, and nothing else; it alone decides."""
    from trtmatrix.api.report import render_api_text
    from trtmatrix.common.jsontext import to_json

    section = _compare_apis(args, args.before, args.after, known=is_of_tensorrt(args))
    code = exit_code_of(section)
    data = to_json({"exit_code": int(code), **plain(section)})
    for file in args.output:
        write_output(file, data if file.suffix == ".json" else _sarif(args, section))
    with contextlib.suppress(BrokenPipeError):  # the answer stays what it is
        print(data if args.json else render_api_text(section), end="", flush=True)
    return code


def _sarif(args: argparse.Namespace, section: ApiSection) -> str:
    from trtmatrix.api.sarif import render_sarif

    return render_sarif(section, args.before, args.after, str(Path.cwd()))


def exit_code_of(section: ApiSection) -> ExitCode:
    """Return 11 where code must change, 12 where code was named and not all of it could be read, else 0."""
    if section.must_change:
        return ExitCode.DONT
    whys = ("it does not parse", "its expressions", "it is not in UTF-8", "it is binary", "it cannot be read")
    unparsed = any(why.startswith(whys) for _, why in section.unread)  # a file that is about TensorRT
    unseen = section.code and (section.lacking or not section.files or unparsed)
    return ExitCode.NOT_ENOUGH if unseen else ExitCode.AS_EXPECTED


def show(args: argparse.Namespace, upgrade: Upgrade) -> None:
    """Print the answer, and write the report to the files asked for, which say when they were made."""
    from datetime import datetime, timezone

    from trtmatrix.upgrade.document import make_document

    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    upgrade = replace(upgrade, generated=now)
    document = make_document(upgrade)
    for file in args.output:
        write_output(file, _render(file.suffix, args, upgrade, document))
    if args.json:
        text = upgrade_json(upgrade)
    else:
        from trtmatrix.upgrade.render_text import render_screen, render_text

        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = min(max(shutil.get_terminal_size().columns, 80), 160)
        text = render_screen(upgrade, document, width, colour=colour)
        text = render_text(document, colour=colour) if args.full else text
    with contextlib.suppress(BrokenPipeError):  # the answer stays what it is
        print(text, end="", flush=True)


def _render(suffix: str, args: argparse.Namespace, upgrade: Upgrade, document: Document) -> str:
    """Return the report in the format of a file's suffix, which was checked."""
    match suffix:
        case ".md":
            from trtmatrix.upgrade.render import render_markdown

            return render_markdown(document)
        case ".html":
            from trtmatrix.upgrade.render import render_page

            return render_page(document)
        case ".json":
            return upgrade_json(upgrade)
        case _:
            return _sarif(args, upgrade.api)
