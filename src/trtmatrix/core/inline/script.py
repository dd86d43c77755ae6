"""One self-contained script of a repro: settings, its own run, what that reaches of the probe, a judge."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from trtmatrix.core.inline.edits import SWAPS, shorten
from trtmatrix.core.inline.prune import prune
from trtmatrix.core.inline.reach import Reached, pieces_of
from trtmatrix.core.inline.settings import HEAD_IMPORTS, write_head, write_settings
from trtmatrix.core.inline.source import InlineError, Module, read_module
from trtmatrix.core.inline.weave import name_symbols, write_imports, write_module
from trtmatrix.core.model import Product

REPRO = "repro"
MAIN = ("trtmatrix.standalone.main", "main")
ENGINE = "trtprobe.backends.gpu_engine"
BACKENDS = {
    Product.TENSORRT: ("trtprobe.backends.tensorrt_gpu", "TensorRtBackend"),
    Product.TENSORRT_RTX: ("trtprobe.backends.tensorrt_gpu", "RtxBackend"),
    Product.ONNXRUNTIME: ("trtprobe.backends.onnxruntime_cpu", "OnnxRuntimeBackend"),
}


def make_script(repro: str, probe: Mapping[str, str], product: Product, expected: Mapping[str, Any]) -> str:
    """Return the script of one case, for Python 3.8 or later with NumPy and the product alone.

    ``repro``: the source of the repro's file; ``probe``: sources by module
    (:func:`trtmatrix.effects.inline_sources.read_sources`); ``expected``: what
    :func:`trtmatrix.core.bundle.expected.make_expected` gave. :class:`InlineError` where a name cannot be
    resolved or two clash.
    """
    params = expected["params"]
    reached = _reach(read_module(REPRO, repro), probe, product)
    pruned = prune(repro, params, product, reached)
    words = _words(_reach(read_module(REPRO, pruned), probe, product))
    reached = _reach(read_module(REPRO, pruned), probe, product, words)
    names = name_symbols(reached, (REPRO,))
    outside = set(reached.outside)
    outside |= {(line.split()[-1], line) for line in HEAD_IMPORTS}
    order = reached.order((REPRO, BACKENDS[product][0], ENGINE), MAIN[0])
    if REPRO in reached.needs:
        raise InlineError(
            f"the repro needs {', '.join(reached.needs[REPRO])} while it is read: it stands first"
        )
    groups = [f"{_rule(name, expected)}\n\n{write_module(reached, name, names)}" for name in order]
    parts = [
        write_head(repro, product, expected), _after_head(write_imports(outside)), write_settings(expected),
        "\n\n\n".join(groups),
        'if __name__ == "__main__":\n'
        f"    sys.exit({names[MAIN]}(CASE, {names[REPRO, 'run']}, {names[BACKENDS[product]]}))",
    ]  # fmt: skip
    return "\n\n".join(parts[:3]) + "\n\n\n" + "\n\n\n".join(parts[3:]) + "\n"


def _after_head(imports: str) -> str:
    """Return the imports less those of the head."""
    return "\n".join(line for line in imports.splitlines() if line not in HEAD_IMPORTS)


def _reach(
    repro: Module, probe: Mapping[str, str], product: Product, words: frozenset[str] | None = None
) -> Reached:
    """Return what the repro's run, the product's backend and the command line reach.

    ``words``: what the repro's run says, by which the probe is shortened; None: it is not.
    """
    sources = probe if words is None else shorten(probe, words)
    modules = {name: read_module(name, text) for name, text in sources.items()}
    reached = Reached(modules={**modules, REPRO: repro}, swaps=SWAPS)
    for symbol in ((REPRO, "run"), BACKENDS[product], MAIN):
        reached.add(symbol)
    for piece in repro.pieces:
        if isinstance(piece.node, ast.Expr):  # a call at the top, for what it does
            reached.add_statement(repro, piece)
    reached.settle()
    return reached


def _words(reached: Reached) -> frozenset[str]:
    """Return what the live part of a repro says: names of arguments and attributes, and words of texts."""
    found: set[str] = set()
    for node in (part for piece in pieces_of(reached, REPRO) for part in ast.walk(piece.node)):
        if isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(node.value.split())
    return frozenset(found)


def _rule(name: str, expected: Mapping[str, Any]) -> str:
    if name == REPRO:
        return f"# --- repros/{expected['repro_file']}"
    return f"# --- {name.replace('.', '/')}.py"
