"""The command upgrade: gathers what is known of two versions, decides, prints and writes the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.api.report import render_api_text, render_sarif
from trtmatrix.api.section import make_api_section
from trtmatrix.api.types import ApiSection
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.common.paths import check_outputs, write_output
from trtmatrix.common.text import one_line, to_json
from trtmatrix.judge.compare import CONFIRMING_BUILDS, count_engines
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.noise import read_calibration
from trtmatrix.launchers.gpu import find_gpus
from trtmatrix.model.own_model import Opened, find_models, model_repro, open_models
from trtmatrix.plan.context import Context, open_context
from trtmatrix.plan.survey import choose_gpu, entries_of, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import CONTROLS, unlisted_version
from trtmatrix.suite.matrix import ImageOrigin, Matrix, Version
from trtmatrix.suite.model import CPU, NO_GPU, Product, Verdict
from trtmatrix.suite.plan import Engine, Launch, Pull
from trtmatrix.tables.render_text import print_text, terminal_width
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.document import render_markdown, render_page
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.gate import compare_with, render_junit
from trtmatrix.upgrade.performance import make_performance
from trtmatrix.upgrade.question import Own, Question, UpgradeOptions, typed
from trtmatrix.upgrade.report import Lacking, ModelSection, Upgrade, plain, upgrade_json
from trtmatrix.upgrade.screen import render_screen

__all__ = ["UpgradeOptions", "upgrade_command"]
MORE = "perhaps slower or larger than the limit; more engines of each version are built to make sure"
FURTHER = 4
"""Engines of each version that are built to make sure."""
SUFFIXES, API_SUFFIXES = (".html", ".md", ".json", ".xml", ".sarif"), (".json", ".sarif")


def upgrade_command(options: UpgradeOptions) -> ExitCode:
    """Say whether to move from one version to another; the exit code is the answer."""
    if problems := list(_find_problems(options)):
        raise UsageError("\n".join(problems))
    check_outputs(options.output, API_SUFFIXES if options.api else SUFFIXES)
    if options.api:
        return _tell_api(options)
    context = open_context(options.project)
    before = _find_version(context.matrix, "--from", options.before)
    after = _find_version(context.matrix, "--to", options.after)
    alike = [version.name for version in context.matrix.versions if version.product is before.product]
    if after.product is not before.product:
        others = ", ".join(name for name in alike if name != before.name) or "no other"
        raise UsageError(f"an upgrade stays inside one product: from {before.name} to {others}")
    gpu, word, api = CPU, "", ApiSection(lacking="surfaces are kept of TensorRT's bindings alone")
    if before.product is Product.TENSORRT:
        gpu = choose_gpu(context.selection.gpus, find_gpus().gpus, read_records(context.project.results))
        word = context.selection.gpus[0] if context.selection.gpus else gpu.name
        api = make_api_section(options.before, options.after, options.code, options.project.results)
    selection = replace(context.selection, versions=tuple(alike), gpus=(word,) if word else ())
    narrowed = replace(context, selection=selection)
    survey = take_survey(narrowed, Pull.NEVER)
    question = Question(
        options=options, before=before, after=after, gpu=gpu, matrix=context.matrix, gpu_word=word, api=api,
        entries=Entries(entries_of(narrowed, survey, survey.stored), read_calibration()),
    )  # fmt: skip
    question = replace(question, owns=_run_models(options, context, question))
    upgrade = decide(question)
    priced = _priced(upgrade.lacking, context, survey.host.engine, before, after)
    upgrade = replace(upgrade, lacking=tuple(priced))
    if options.baseline is not None:
        upgrade = replace(upgrade, baseline=compare_with(upgrade, options.baseline, question.owns))
    _show(options, upgrade)
    return upgrade.exit_code


def _find_problems(options: UpgradeOptions) -> Iterator[str]:
    project, model = options.project, options.model
    chosen = project.selection
    versions = {"--trt": chosen.versions, "--runtime": chosen.runtimes, "--python": project.pythons}
    for option in (option for option, names in versions.items() if names):
        yield f"{option}: upgrade takes its two versions by --from and --to; leave {option} out"
    if len(chosen.gpus) > 1:
        yield f"--gpu {','.join(chosen.gpus)}: an answer is for one GPU; ask once for each"
    others = () if options.models else ("atol", "rtol", "check", "explain")
    given = typed(model, "inputs", "profile", *others) if options.models or not model.model else ()
    if given:
        yield f"{given[0]} is about one model: name it by --model FILE.onnx; of several, models.yaml says it"
    if options.api and (model.model or options.models or options.baseline):
        yield "--api tells of the APIs and --code alone: leave --model, --models and --baseline out"
    if options.tag and not options.models:
        yield "--tag is about models of a list: name it by --models models.yaml"
    named = {
        "--baseline": [options.baseline], "--code": options.code, "--models": options.models,
        "--check": [model.check],
    }  # fmt: skip
    for option, paths in named.items():
        yield from (f"{option} {path}: there is no such file" for path in paths if path and not path.exists())
    for file in options.output:
        if file.suffix == ".sarif" and not options.code:
            yield f"--output {file}: it tells lines of your code: name that by --code DIR"


def _find_version(matrix: Matrix, option: str, name: str) -> Version:
    names = [version.name for version in matrix.versions]
    if name not in names:
        hint = "What changes in its API alone: --api, with --code DIR"
        raise UsageError(f"{unlisted_version(option, name, names)}. {hint}")
    return matrix.version(name)


def _priced(
    lacking: Sequence[Lacking], context: Context, engine: Engine, *versions: Version
) -> Iterator[Lacking]:
    """Yield what is lacking with what each command fetches: images that are not here, and GB."""
    from trtmatrix.images.checks import image_words

    absent = [
        Launch(version=version, gpu=NO_GPU, cells=(), pull=not origin.build, build=bool(origin.build))
        for version in versions
        if isinstance(origin := version.origin, ImageOrigin) and engine.held(origin) is None
    ]
    for item in lacking:
        words = item.command.replace(",", " ").split()
        mine = [each for each in absent if each.version.name in words]
        cost = image_words(mine, context.lock, engine)
        yield replace(item, what=f"{item.what} ({cost})") if cost else item


def _run_models(options: UpgradeOptions, context: Context, question: Question) -> tuple[Own, ...]:
    """Run the user's models, unless told not to, and return what is known of each.

    All are cells of one launch a version, which take turns: engines of both versions are built and timed in
    one session. Where both are one version, twice as many are built, and compared with each other. A model
    that seems slower or larger than its limit is built and timed more often before that is believed.
    """
    from trtmatrix.run.perform import Options, perform

    limit = 0.0 if options.no_performance else options.max_slowdown
    own = replace(options.model, limit=limit, build_limit=options.max_build_slowdown or 0.0)
    places = [*([own.model] if own.model else []), *options.models]
    if not places:
        return ()
    names = tuple(dict.fromkeys((question.before.name, question.after.name)))
    gpus = (question.gpu_word,) if question.gpu_word else ()
    selection = replace(context.selection, versions=names, repros=(), cases=(), gpus=gpus)
    models = find_models(places, replace(own, model=None), options.tag) if options.models else (own,)
    mine, opened = open_models(replace(context, selection=selection), models)
    if not options.models and opened[0].mistake:
        raise UsageError(opened[0].mistake)
    if not any(one.context for one in opened):
        return tuple(_look_at(one, (), (), context, question) for one in opened)
    survey = take_survey(mine, Pull.NEVER if options.no_run else Pull.NAMED)
    stored = survey.stored
    if options.no_run:
        entries = list(entries_of(mine, survey, survey.stored))
    else:
        builds = CONFIRMING_BUILDS * (3 - len(names))
        how = Options(rebuilds=builds, interleaved=True, log=mine.project.log)
        entries = list(perform(mine, survey, how).entries)
        if again := _unsure(opened, entries, question):
            print(f"trtmatrix: {', '.join(again.values())}: {MORE}", file=sys.stderr)
            mine = replace(mine, selection=replace(mine.selection, repros=tuple(again)), controls=False)
            survey = take_survey(mine, Pull.NEVER)
            here = tuple(launch for launch in survey.plan.launches if launch.version.name in names)
            survey = replace(survey, plan=replace(survey.plan, launches=here))
            # Of both sides, also where one had more, as after an interrupt.
            most = max(count_engines(e.records) for e in entries if e.cell.repro.id in again)
            more = perform(mine, survey, replace(how, rebuilds=most + FURTHER)).entries
            new = {entry.cell.id: entry for entry in more}
            entries = [new.get(entry.cell.id, entry) for entry in entries]
    return tuple(_look_at(one, entries, stored, context, question) for one in opened)


def _unsure(opened: Sequence[Opened], entries: Sequence[Entry], question: Question) -> dict[str, str]:
    """Return the repros, with names, of right models that more engines must show to be beyond a limit."""
    names, unsure = (question.before.name, question.after.name), dict[str, str]()
    for one, context in ((one, one.context) for one in opened if one.context):
        repro = model_repro(context).repro
        mine = [e for e in entries if e.cell.repro.id == repro.id and e.cell.version.name in names]
        if not any(e.excluded or e.verdict is Verdict.FAIL for e in mine) and any(
            line.more_engines
            for line in make_performance(Entries(mine), *names, one.options.limit, one.options.build_limit)
        ):
            unsure[repro.id] = repro.title.removeprefix("your model ")
    return unsure


def _look_at(
    one: Opened, entries: Sequence[Entry], stored: Sequence[Stored], context: Context, question: Question
) -> Own:
    """Return what is known of a model by all entries of a run, and by the records before it."""
    from trtmatrix.model.static_check import check_model
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.operators.models import check_operators, sum_up_operators
    from trtmatrix.records.operators import read_operator_records
    from trtmatrix.upgrade import model_section as of_model

    model, names = one.options, (question.before.name, question.after.name)
    if one.context is None:
        mistake = one_line(one.mistake, 400)
        section = ModelSection(name=model.title, tags=model.tags, mistake=mistake)
        return Own(section=section, entries=Entries(()))
    repros = {model_repro(one.context).repro.id, CONTROLS}
    own = Entries([e for e in entries if e.cell.repro.id in repros], question.entries.calibration)
    run = not question.options.no_run
    section = of_model.make_model_section(one.context, own, *names, model, run=run)
    if question.after.product is Product.TENSORRT and model.model:
        facts = {name: loaded.repro for name, loaded in context.repros.items()}
        graph = load_model(model.model)
        records = read_operator_records(context.project.results)
        check = check_model(graph, model.model.name, facts, names, question.gpu.compute or "", records)
        tested = check_operators(graph, section.name, records, names, (question.gpu.slug,))
        known = (("operators", sum_up_operators(tested)),) if tested.versions else ()
        section = of_model.with_nodes(section, check, *names)
        cpu = of_model.tell_cpu(one.context, stored, own.calibration)
        section = replace(section, facts=(*section.facts, *known, *cpu))
    return Own(section=section, entries=own, limit=one.options.limit, build=one.options.build_limit)


def _tell_api(options: UpgradeOptions) -> ExitCode:
    """Tell the difference of the two APIs, with code where it is used, and nothing else; it alone decides.

    Returns 11 where code must change, 12 where code was named and not all of it could be read, else 0.
    :class:`UsageError` where the API of an end is not known, or both are the same.
    """
    if options.before == options.after:
        raise UsageError(
            f"{options.before} and {options.after}: a difference takes two versions of one product"
        )
    section = make_api_section(options.before, options.after, options.code, options.project.results)
    if section.lacking:
        raise UsageError(section.lacking)
    whys = ("it does not parse", "it cannot be read")
    unparsed = any(why.startswith(whys) for _, why in section.unread)  # a file that is about TensorRT
    unseen = section.code and (not section.files or unparsed)
    code = ExitCode.NOT_ENOUGH if unseen else ExitCode.AS_EXPECTED
    code = ExitCode.DONT if section.must_change else code
    data = to_json({"exit_code": int(code), **plain(section)})
    for file in options.output:
        sarif = file.suffix == ".sarif"
        write_output(file, _sarif(section, options.before, options.after) if sarif else data)
    print(data if options.json else render_api_text(section), end="")
    return code


def _sarif(section: ApiSection, before: str, after: str) -> str:
    return render_sarif(section, before, after, str(Path.cwd()))


def _show(options: UpgradeOptions, upgrade: Upgrade) -> None:
    """Print the answer, and write the report to the files asked for, which say when they were made."""
    dated = replace(upgrade, generated=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))
    writers: Mapping[str, Callable[[Upgrade], str]] = {
        ".md": render_markdown, ".html": render_page, ".json": upgrade_json, ".xml": render_junit,
        ".sarif": lambda found: _sarif(found.api, found.before, found.after),
    }  # fmt: skip
    for file in options.output:
        write_output(file, writers[file.suffix](dated))
    if options.json:
        print(upgrade_json(dated), end="")
    elif options.full:
        print_text(render_markdown(upgrade, sys.maxsize), markdown=True)
    else:
        print_text(render_screen(upgrade, terminal_width()))
