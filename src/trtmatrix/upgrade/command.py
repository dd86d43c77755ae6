"""The command upgrade: gathers what is known of two versions, decides, prints and writes the report."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.api.types import ApiSection
from trtmatrix.common.errors import ExitCode
from trtmatrix.common.paths import write_output
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.plan.context import Context, open_context
from trtmatrix.plan.survey import entries_of, take_survey
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import NO_GPU, Product
from trtmatrix.suite.plan import Launch, Pull
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.move import check_options, find_move, is_of_tensorrt, make_question
from trtmatrix.upgrade.question import Own, Question, UpgradeOptions
from trtmatrix.upgrade.report import Lacking, Upgrade, plain, upgrade_json

__all__ = ["UpgradeOptions", "upgrade_command"]

NO_SURFACES = "surfaces are kept of TensorRT's bindings alone"


def upgrade_command(options: UpgradeOptions) -> ExitCode:
    """Say whether to move from one version to another; the exit code is the answer."""
    check_options(options)
    if options.api:
        return _tell_api(options)
    context = open_context(options.project)
    before, after = find_move(context.matrix, options)
    question = make_question(options, context, before, after)
    section = _compare_apis(options, before.name, after.name, known=before.product is Product.TENSORRT)
    own = _run_model(options, context, question) if options.model.model else None
    upgrade = decide(replace(question, api=section, own=own))
    upgrade = replace(upgrade, lacking=_priced(upgrade.lacking, context, before, after))
    show(options, upgrade)
    return upgrade.exit_code


def _priced(lacking: Sequence[Lacking], context: Context, *versions: Version) -> tuple[Lacking, ...]:
    """Return what is lacking with what each command fetches: images that are not here, GB and time."""
    from trtmatrix.launchers.gpu import find_gpus
    from trtmatrix.plan.survey import find_engine_of
    from trtmatrix.run.perform import image_words

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


def _compare_apis(options: UpgradeOptions, before: str, after: str, *, known: bool) -> ApiSection:
    """Return what changes for code; ``known``: the surfaces of the product's bindings are."""
    if not known:
        code = tuple(map(str, options.code)) if options.api else ()
        return ApiSection(code=code, lacking=NO_SURFACES)
    from trtmatrix.api.section import make_api_section

    return make_api_section(options.project.results, before, after, options.code)


def _run_model(options: UpgradeOptions, context: Context, question: Question) -> Own:
    """Run the user's model where it can be run here, unless told not to, and return what is known of it."""
    from trtmatrix.model.own_model import open_model
    from trtmatrix.model.static_check import check_model
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.run.perform import Options, perform
    from trtmatrix.upgrade.model_section import make_model_section, with_nodes

    model, names = options.model, (question.before.name, question.after.name)
    gpus = (question.gpu_word,) if question.gpu_word else ()
    selection = replace(
        context.selection, versions=tuple(dict.fromkeys(names)), repros=(), cases=(), gpus=gpus
    )
    mine = open_model(replace(context, selection=selection), model)
    survey = take_survey(mine, Pull.NEVER if options.no_run else Pull.NAMED)
    if options.no_run:
        entries = entries_of(mine, survey, survey.stored)
    else:
        entries = perform(mine, survey, Options(rebuilds=CONFIRMING_BUILDS, log=mine.project.log)).entries
    calibration = question.entries.calibration
    section = make_model_section(mine, entries, *names, model, calibration, run=not options.no_run)
    if question.after.product is Product.TENSORRT and model.model:
        facts = {name: loaded.repro for name, loaded in context.repros.items()}
        graph, compute = load_model(model.model), question.gpu.compute or ""
        section = with_nodes(section, check_model(graph, model.model.name, facts, names, compute), *names)
    return Own(section=section, entries=Entries(entries, calibration))


def _tell_api(options: UpgradeOptions) -> ExitCode:
    """Tell the difference of the two APIs, with code where it is used, and nothing else; it alone decides."""
    from trtmatrix.api.report import render_api_text
    from trtmatrix.common.jsontext import to_json

    section = _compare_apis(options, options.before, options.after, known=is_of_tensorrt(options))
    code = exit_code_of(section)
    data = to_json({"exit_code": int(code), **plain(section)})
    for file in options.output:
        write_output(file, data if file.suffix == ".json" else _sarif(options, section))
    print(data if options.json else render_api_text(section), end="")
    return code


def _sarif(options: UpgradeOptions, section: ApiSection) -> str:
    from trtmatrix.api.sarif import render_sarif

    return render_sarif(section, options.before, options.after, str(Path.cwd()))


def exit_code_of(section: ApiSection) -> ExitCode:
    """Return 11 where code must change, 12 where code was named and not all of it could be read, else 0."""
    if section.must_change:
        return ExitCode.DONT
    whys = ("it does not parse", "it is not in UTF-8", "it cannot be read")
    unparsed = any(why.startswith(whys) for _, why in section.unread)  # a file that is about TensorRT
    unseen = section.code and (section.lacking or not section.files or unparsed)
    return ExitCode.NOT_ENOUGH if unseen else ExitCode.AS_EXPECTED


def show(options: UpgradeOptions, upgrade: Upgrade) -> None:
    """Print the answer, and write the report to the files asked for, which say when they were made."""
    from trtmatrix.upgrade.render import render_markdown, render_page, render_screen, render_text

    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    upgrade = replace(upgrade, generated=now)
    writers = {".md": render_markdown, ".html": render_page, ".json": upgrade_json}
    for file in options.output:
        write = writers.get(file.suffix)
        write_output(file, write(upgrade) if write else _sarif(options, upgrade.api))
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    if options.json:
        text = upgrade_json(upgrade)
    elif options.full:
        text = render_text(upgrade, colour=colour)
    else:
        width = min(max(shutil.get_terminal_size().columns, 80), 160)
        text = render_screen(upgrade, width, colour=colour)
    print(text, end="")
