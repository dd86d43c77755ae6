"""The commands that look at nothing but files, and at no GPU or engine: list, schema, prepare, check."""

from __future__ import annotations

import json
from pathlib import Path

from trtmatrix.cli.options import CheckOptions, PrepareOptions, ProjectCommand, SchemaOptions
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.plan.context import open_context
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.model import Product, is_release


def list_command(options: ProjectCommand) -> ExitCode:
    """List versions, repros and cases."""
    from trtmatrix.judge.standing import standing_of
    from trtmatrix.records.store import read_records
    from trtmatrix.tables.render_list import list_json, list_text

    context = open_context(options.project)
    versions = select_versions(context.matrix, context.selection)
    rows = select_cases(select_repros(context.plain_repros, context.selection), context.selection)
    recorded = {item.record.cell.version for item in read_records(context.project.results)}
    standings = {v.name: standing_of(v, context.plain_repros, recorded) for v in versions}
    if options.json:
        print(json.dumps(list_json(versions, rows, standings), indent=1))
    else:
        print(list_text(versions, rows, standings))
    return ExitCode.AS_EXPECTED


def schema_command(options: SchemaOptions) -> ExitCode:
    """Print the JSON Schema of matrix.yaml, or of slurm.yaml."""
    from trtmatrix.slurm.sitefile import Site
    from trtmatrix.suite.keys import keys_schema
    from trtmatrix.suite.matrix import Matrix

    print(json.dumps(keys_schema(Site if options.site else Matrix), indent=2, sort_keys=True))
    return ExitCode.AS_EXPECTED


def prepare_command(options: PrepareOptions) -> ExitCode:
    """Write one case's files to a folder."""
    import shutil

    from trtmatrix.prepare.cases import CaseCache

    context = open_context(options.project)
    repro_id, _, case_id = options.which.partition("/")
    loaded = context.repros.get(repro_id)
    case = next((c for c in loaded.repro.cases if c.id == case_id), None) if loaded else None
    if loaded is None or case is None:
        raise UsageError(f"{options.which}: no such case; python -m trtmatrix list shows all")
    target = options.to or Path(case.id)
    if target.exists():
        raise UsageError(f"{target} is there already: name another folder by --to")
    made = CaseCache(context.project.cache).prepare(loaded, case)
    try:
        shutil.copytree(made, target)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    print(f"{target}: run it by hand with\n  python {loaded.file} --files {target}")
    return ExitCode.AS_EXPECTED


def check_command(options: CheckOptions) -> ExitCode:
    """Name the nodes that versions ignore, get wrong or refuse; the exit code is 1 where some are known."""
    from trtmatrix.common.jsontext import to_json
    from trtmatrix.model.static_check import check_json, check_model, render_check
    from trtmatrix.onnxmodel.reading import load_model
    from trtmatrix.suite.repro_files import read_facts
    from trtmatrix.tables.screen import terminal_width

    versions = _versions(options)
    model, facts = load_model(options.file, ""), read_facts(options.repros)
    check = check_model(model, options.file.name, facts, versions)
    code = ExitCode.SURPRISE if check.is_sure else ExitCode.AS_EXPECTED
    if options.json:
        print(to_json({**check_json(check), "exit_code": int(code)}), end="")
    else:
        print(render_check(check, terminal_width(), full=options.full), end="")
    return code


def _versions(options: CheckOptions) -> tuple[str, ...]:
    """Return the versions asked about: any release of TensorRT, else all of matrix.yaml."""
    if not options.trt:
        from trtmatrix.plan.context import read_matrix

        listed = read_matrix(options.matrix).versions
        return tuple(version.name for version in listed if version.product is Product.TENSORRT)
    if wrong := [name for name in options.trt if not is_release(name)]:
        raise UsageError(
            f"--trt {', '.join(wrong)}: no release of TensorRT such as 8.6.1; of nothing else are nodes known"
        )
    return options.trt
