"""The command check: a model's file held against what repros know of nodes, without a GPU."""

from __future__ import annotations

from trtmatrix.cli.options import CheckOptions
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.suite.model import Product, is_release


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
