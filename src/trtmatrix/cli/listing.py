"""The commands that look at nothing but the project's own files."""

from __future__ import annotations

import argparse
import json

from trtmatrix.common.errors import ExitCode
from trtmatrix.plan.context import open_context
from trtmatrix.slurm.sitefile import Site
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.keys import keys_schema
from trtmatrix.suite.matrix import Matrix
from trtmatrix.tables.render_list import list_json, list_text


def list_command(args: argparse.Namespace) -> ExitCode:
    """List versions, repros and cases."""
    context = open_context(args)
    versions = select_versions(context.matrix, context.selection)
    rows = select_cases(select_repros(context.plain_repros, context.selection), context.selection)
    print(json.dumps(list_json(versions, rows), indent=1) if args.json else list_text(versions, rows))
    return ExitCode.AS_EXPECTED


def schema_command(args: argparse.Namespace) -> ExitCode:
    """Print the JSON Schema of matrix.yaml, or of slurm.yaml."""
    print(json.dumps(keys_schema(Site if args.site else Matrix), indent=2, sort_keys=True))
    return ExitCode.AS_EXPECTED
