"""The head of a script: what it shows, how it is called, and the settings of its case."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from typing import Any

from trtmatrix.core.model import Product

NAMES = {
    Product.TENSORRT: "TensorRT", Product.TENSORRT_RTX: "TensorRT-RTX", Product.ONNXRUNTIME: "ONNX Runtime",
}  # fmt: skip

HEAD = '''\
#!/usr/bin/env python3
"""{title}

{told}

Recorded: {recorded}

    python repro.py                 run the case as recorded, print its figures beside the recorded ones
    python repro.py --builds 5      build and run so many engines, one after another
    python repro.py --out DIR       also write DIR/result.json; with --save-outputs the outputs too
    python repro.py --files DIR     where model.onnx, inputs.npz and the rest are (else: beside this file)

Exit code: 1 the failure came back, 0 it did not, 125 it cannot be said (as git bisect reads them).
It needs Python 3.8 or later, NumPy and {product}{more}, and nothing else. The repro's own code comes first;
each part names the file of trtmatrix that it is taken from, less what this case does not reach.
"""

from __future__ import annotations

import os
import sys


def cannot_say(kind, error, trace):
    """End in 125 on an error that nobody caught: Python's own 1 would say that the failure came back."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" (line {{trace.tb_lineno}} of {{trace.tb_frame.f_code.co_filename}})"
    hint = "; NumPy is needed: {needs}" if getattr(error, "name", "") == "numpy" else ""
    sys.stdout.flush()
    print(f"CANNOT SAY: {{kind.__name__}}: {{error}}{{place}}{{hint}}", file=sys.stderr, flush=True)
    os._exit(130 if issubclass(kind, KeyboardInterrupt) else 125)


sys.excepthook = cannot_say
'''

HEAD_IMPORTS = ("import os", "import sys")
HEAD_NAMES = ("cannot_say",)
"""What the head binds and imports by itself."""


def write_head(repro: str, product: Product, expected: Mapping[str, Any]) -> str:
    """Return the script's docstring: the repro's own, what was recorded, how it is called."""
    text = ast.get_docstring(ast.parse(repro)) or ""
    recorded = f"{expected['cell']}: {expected['verdict']}, {expected['reason']}"
    return HEAD.format(
        title=_plain(expected["title"]), told=_plain(text), product=NAMES[product],
        needs=f"run this by an interpreter that has it and {NAMES[product]}",
        recorded="\n".join(textwrap.wrap(_plain(recorded), 106, break_long_words=False)),
        more="".join(f", {need}" for need in expected["needs"]),
    ).rstrip("\n")  # fmt: skip


def _plain(text: str) -> str:
    """Return a text that can stand in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def write_settings(expected: Mapping[str, Any]) -> str:
    """Return the settings of the case: what ``run`` is given, how often, how long."""
    lines = [
        f"    {name!r}: {expected[name]!r},".replace("'", '"') for name in ("builds", "processes", "seconds")
    ]
    params = [f"        {_quoted(name)}: {_quoted(value)}," for name, value in expected["params"].items()]
    return "\n".join(["CASE = {", *lines, '    "params": {', *params, "    },", "}"])


def _quoted(value: object) -> str:
    """Write a value as Python does, texts with double quotes."""
    if not isinstance(value, str):
        return repr(value)
    plain = repr(value)
    return '"' + plain[1:-1] + '"' if plain[0] == "'" and '"' not in plain else plain
