"""The command upgrade: gathers what is known of two versions, asks the core, prints and writes the report."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.context import Context, open_context
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.config import Matrix, Version
from trtmatrix.core.errors import ExitCode, UsageError
from trtmatrix.core.model import CPU, Gpu, Product
from trtmatrix.core.plan import Pull
from trtmatrix.core.upgrade.any_version import choose_version
from trtmatrix.core.upgrade.decide import decide
from trtmatrix.core.upgrade.question import DOOR, Own, Question
from trtmatrix.core.upgrade.report import ApiSection, Upgrade
from trtmatrix.core.upgrade.sides import Entries
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.gpu import find_gpus, named_gpus
from trtmatrix.effects.store import read_records
from trtmatrix.scene import entries_of, look_around, recorded_gpus, without_superseded

if TYPE_CHECKING:
    from trtmatrix.core.compare import Stored

SUFFIXES = (".html", ".md", ".json")
ANY = "any"


def upgrade_command(args: argparse.Namespace) -> ExitCode:
    """Say whether to move from one version to another; the exit code is the answer."""
    check_options(args)
    context = open_context(args)
    before, afters = find_move(context.matrix, args.before, args.after)
    if args.api:
        return _print_api(args, context, before, afters[0])
    gathered = gather(context, before)
    if args.after == ANY:
        upgrade = _choose(args, context, gathered, before, afters)
    else:
        upgrade = _decide(args, context, gathered, before, afters[0])
    show(args, upgrade)
    return upgrade.decision.exit_code


def check_options(args: argparse.Namespace) -> None:
    """Refuse what makes no sense together, before anything is read."""
    for option, names in (("--trt", args.trt), ("--runtime", args.runtime), ("--python", args.python)):
        if names:
            raise UsageError(
                f"{option}: upgrade takes its two versions by --from and --to, as matrix.yaml has them; "
                f"leave {option} out, or run other cells by {DOOR} matrix first"
            )
    if args.api and args.after == ANY:
        raise UsageError("--api: name one version by --to, for a difference takes two")
    if len(args.gpu) > 1:
        raise UsageError(f"--gpu {','.join(args.gpu)}: an answer is for one GPU; ask once for each")
    if args.model is None:
        _need_model(args)
    for file in args.output:
        if file.suffix not in SUFFIXES:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(SUFFIXES)}")
        if not file.parent.is_dir():
            raise UsageError(f"--output {file}: there is no folder {file.parent}")


def _need_model(args: argparse.Namespace) -> None:
    """Refuse options about a model where none is named: they would do nothing."""
    named = {
        "--inputs": args.inputs, "--atol": args.atol, "--rtol": args.rtol, "--profile": args.profile,
        "--check": args.check, "--explain": args.explain,
    }  # fmt: skip
    for option, value in named.items():
        if value not in (None, [], False):
            raise UsageError(f"{option} is about your own model: name it by --model FILE.onnx")


def find_move(matrix: Matrix, before: str, after: str) -> tuple[Version, tuple[Version, ...]]:
    """Return the version moved from, and those that may be moved to: one, or all newer ones for ``any``.

    :class:`UsageError` where a name is none of matrix.yaml's, both are the same, or of two products.
    """
    names = [version.name for version in matrix.versions]
    old = _find(matrix, "--from", before)
    same = [version for version in matrix.versions if version.product is old.product]
    if after == ANY:
        newer = sorted((v for v in same if v.release > old.release), key=lambda v: v.release)
        if not newer:
            raise UsageError(
                f"--to any: matrix.yaml has no version newer than {old.name}: {', '.join(names)}"
            )
        return old, tuple(newer)
    new = _find(matrix, "--to", after)
    others = ", ".join(version.name for version in same if version is not old) or "no other"
    if new is old:
        raise UsageError(f"--from and --to are both {old.name}: move to {others}, or ask --to any")
    if new.product is not old.product:
        raise UsageError(
            f"{old.name} is {old.product.value} and {new.name} is {new.product.value}: an upgrade stays "
            f"inside one product; from {old.name} to {others}"
        )
    return old, (new,)


def _find(matrix: Matrix, option: str, name: str) -> Version:
    found = next((version for version in matrix.versions if version.name == name), None)
    if found is not None:
        return found
    names = [version.name for version in matrix.versions]
    near = [known for known in names if known.startswith(f"{name}.") or name.startswith(f"{known}.")]
    near = near or difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"perhaps you meant {', '.join(near)}" if near else f"known are {', '.join(names)}"
    raise UsageError(
        f"{option} {name}: not in matrix.yaml; {hint}. To add a version, see the top of that file"
    )


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of all versions of one product on one GPU. ``gpu_word``: how commands name it."""

    gpu: Gpu
    gpu_word: str
    entries: Entries
    calibration: Calibration


def gather(context: Context, version: Version) -> Gathered:
    """Read the records and expectations of a version's product on the GPU that is meant; runs nothing."""
    names = tuple(v.name for v in context.matrix.versions if v.product is version.product)
    gpu, word = CPU, ""
    if version.product is Product.TENSORRT:
        stored = without_superseded(read_records(context.project.results))
        gpu = choose_gpu(context.selection.gpus, find_gpus().gpus, stored)
        word = context.selection.gpus[0] if context.selection.gpus else gpu.name
    selection = replace(context.selection, versions=names, gpus=(word,) if word else ())
    narrowed = replace(context, selection=selection)
    scene = look_around(narrowed, Pull.NEVER)
    calibration = read_calibration()
    entries = Entries(entries_of(narrowed, scene, scene.stored), calibration)
    return Gathered(gpu=gpu, gpu_word=word, entries=entries, calibration=calibration)


def choose_gpu(named: Sequence[str], here: Sequence[Gpu], stored: Sequence[Stored]) -> Gpu:
    """Return the one GPU that the answer is for: that named, else the only one here.

    :class:`UsageError` where none is named and none, or several kinds, are here.
    """
    recorded = recorded_gpus(stored)
    if named:
        return _with_table(named_gpus(named, [*here, *recorded.values()])[0])
    kinds = {gpu.slug: gpu for gpu in reversed(here)}
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    known = ", ".join(gpu.name for gpu in recorded.values())
    what = (
        f"this host has {', '.join(gpu.name for gpu in kinds.values())}"
        if kinds
        else "no GPU is in this host"
    )
    records = f" (there are records of {known})" if known else ""
    raise UsageError(f"{what}: name the GPU that you deploy on, such as --gpu L4{records}")


def _with_table(gpu: Gpu) -> Gpu:
    """Return a GPU that only records name with what the table of known GPUs says of it."""
    if gpu.present:
        return gpu
    try:
        known = named_gpus([gpu.name], ())[0]
    except UsageError:
        return gpu
    return replace(gpu, datacenter=known.datacenter, compute=gpu.compute or known.compute)


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
    section = _api_section(args, context, before, after) if api else ApiSection()
    question = make_question(args, context, gathered, before, after)
    return decide(
        replace(question, api=section, code=bool(args.code), own=_own(args, context, gathered, before, after))
    )


def make_question(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, after: Version
) -> Question:
    """Return what is to be decided, without the user's model and code."""
    asked = {name: ",".join(getattr(args, name)) for name in ("repro", "case")}
    restricted = " ".join(f"--{name} {value}" for name, value in asked.items() if value)
    left_out = tuple(r.id for r in context.plain_repros if args.repro and r.id not in args.repro)
    return Question(
        before=before, after=after, gpu=gathered.gpu, matrix=context.matrix, entries=gathered.entries,
        gpu_word=gathered.gpu_word, options=tuple(_files(args)), restricted=restricted,
        left_out=tuple(name for name in left_out if name != "controls"), command=command_of(args),
    )  # fmt: skip


def _files(args: argparse.Namespace) -> list[str]:
    """Return the options that name other files than the usual."""
    usual = {
        "matrix": Path("matrix.yaml"),
        "repros": Path("repros"),
        "results": Path("results"),
        "cache": None,
    }
    given = {name: getattr(args, name) for name in usual}
    return [
        word for name, value in given.items() if value != usual[name] for word in (f"--{name}", str(value))
    ]


def command_of(args: argparse.Namespace) -> str:
    """Return the command that makes the same report."""
    words = ["--from", args.before, "--to", args.after]
    words += ["--gpu", args.gpu[0]] if args.gpu else []
    for name in ("repro", "case"):
        words += [f"--{name}", ",".join(getattr(args, name))] if getattr(args, name) else []
    for name in ("model", "inputs", "atol", "rtol", "check"):
        value = getattr(args, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--precision", args.precision] if args.model is not None else []
    for name in ("profile", "code"):
        words += [word for value in getattr(args, name) for word in (f"--{name}", str(value))]
    words += [f"--{name.replace('_', '-')}" for name in ("explain", "no_run") if getattr(args, name)]
    return f"{DOOR} upgrade -- {shlex.join([*words, *_files(args)])}"


def _api_section(args: argparse.Namespace, context: Context, before: Version, after: Version) -> ApiSection:
    """Return what changes for code; only TensorRT's own bindings are known."""
    if before.product is not Product.TENSORRT:
        return ApiSection(lacking="surfaces are kept of TensorRT's bindings alone")
    try:
        from trtmatrix.api_section import make_api_section
    except ModuleNotFoundError:
        return ApiSection(lacking="the part that compares APIs is not here")

    return make_api_section(context.project.results, before.name, after.name, args.code)


def _own(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, after: Version
) -> Own | None:
    """Run the user's model where it can be run here, unless told not to, and return what is known of it."""
    if args.model is None:
        return None
    from trtmatrix.own_model import make_model_section, open_model
    from trtmatrix.perform import Options, perform

    selection = replace(
        context.selection, versions=(before.name, after.name), repros=(), cases=(),
        gpus=(gathered.gpu_word,) if gathered.gpu_word else (),
    )  # fmt: skip
    mine = open_model(replace(context, selection=selection), args)
    scene = look_around(mine, Pull.NEVER if args.no_run else Pull.NAMED)
    if args.no_run:
        entries = entries_of(mine, scene, scene.stored)
    else:
        from trtmatrix.core.confirm import CONFIRMING_BUILDS

        entries = perform(mine, scene, Options(rebuilds=CONFIRMING_BUILDS)).entries
    section = make_model_section(mine, entries, before.name, after.name, args, gathered.calibration)
    tolerance = args.atol is not None or args.rtol is not None
    return Own(section=section, entries=Entries(entries, gathered.calibration), tolerance=tolerance)


def _print_api(args: argparse.Namespace, context: Context, before: Version, after: Version) -> ExitCode:
    """Print the difference of the two APIs and nothing else."""
    section = _api_section(args, context, before, after)
    if args.json:
        import json
        from dataclasses import asdict

        print(json.dumps(asdict(section), indent=1, default=str))
        return ExitCode.AS_EXPECTED
    from trtmatrix.core.render_api_text import render_api_text

    print(render_api_text(section), end="")
    return ExitCode.AS_EXPECTED


def show(args: argparse.Namespace, upgrade: Upgrade) -> None:
    """Print the report, and write it to the files asked for, which say when they were made."""
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    upgrade = replace(upgrade, generated=now)
    for file in args.output:
        file.write_text(render(file.suffix, upgrade), encoding="utf-8")
    with contextlib.suppress(BrokenPipeError):  # the answer stays what it is
        print(render(".json" if args.json else "", upgrade), end="", flush=True)


def render(suffix: str, upgrade: Upgrade) -> str:
    """Return the report in the format of a file's suffix; none means this terminal."""
    match suffix:
        case ".md":
            from trtmatrix.core.render_upgrade_markdown import render_upgrade_markdown

            return render_upgrade_markdown(upgrade)
        case ".html":
            from trtmatrix.core.render_upgrade_html import render_upgrade_html

            return render_upgrade_html(upgrade)
        case ".json":
            from trtmatrix.core.render_upgrade_data import upgrade_json

            return upgrade_json(upgrade)
        case _:
            from trtmatrix.core.render_upgrade_text import render_upgrade_text

            colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
            return render_upgrade_text(upgrade, colour=colour)
