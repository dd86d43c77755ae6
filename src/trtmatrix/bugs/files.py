"""The files of an archive: a graph with its arrays, or the repro with the probe that runs it."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from trtmatrix.bugs.recipe import Limits, Recipe
from trtmatrix.bugs.redact import Redactor, clean_graph
from trtmatrix.common.errors import UsageError
from trtmatrix.onnxmodel.preparing import mark_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Files = dict[str, bytes | Path]

MODEL, INPUTS, REFERENCE, SCRIPT, RUN = "model.onnx", "inputs.npz", "reference.npz", "repro.py", "run.sh"
FINER = 256
"""A reference is rounded so many times below its noise floor: it is compressed far better then."""

LARGE = 4 << 20
"""Bytes from which on the shape of a known defect is kept to one bit: c is 8e-4 off then."""

RUN_TEXT = """\
#!/bin/sh
# {why}: so here is the repro with the probe that runs it.
# Exit code: 1 the failure came back, 0 it did not, 125 cannot be said. Needs Python 3.8, NumPy and {needs}.
cd -- "$(dirname -- "$0")" || exit 125
PYTHONPATH=. python3 repros/{repro} --files case --product {product} "$@" | python3 check.py
"""


def graph_files(
    folder: Path, recipe: Recipe, sample: int, limits: Limits, floors: Mapping[str, float | None],
    redactor: Redactor, *, on_cpu: bool,
) -> tuple[Files, dict[str, str]]:  # fmt: skip
    """Return graph, inputs and reference of one sample, and the new names of tensors that had private ones.

    ``floors``: noise floors by the arrays' names; ``on_cpu``: ONNX Runtime runs it, by ``check.onnx`` where
    there is one. The keys of ``limits`` and of the arrays are the graph's names.
    """
    check = folder / "check.onnx"
    model, renamed = clean_model(
        check if on_cpu and check.is_file() else folder / MODEL, redactor, recipe.marked
    )
    mark = mark_of(sample, recipe.samples)
    inputs = {
        renamed.get(g, g): np.load(folder / "inputs" / f"{a}{mark}.npy") for a, g in recipe.inputs.items()
    }
    reference: dict[str, NDArray[Any]] = {}
    for array, graph in recipe.outputs.items():
        if graph in limits:
            r = np.load(folder / "reference" / f"{array}{mark}.npy")
            reference[renamed.get(graph, graph)] = round_off(r, floors.get(array + mark) or 0.0)
        for defect in (key[: -len(f" in {graph}")] for key in limits if key.endswith(f" in {graph}")):
            d = np.load(folder / "defects" / defect / f"{array}.npy")
            name = f"{defect} in {renamed.get(graph, graph)}"
            reference[name] = round_off(d, FINER / 2) if d.nbytes > LARGE else d
    return {MODEL: model, INPUTS: write_npz(inputs), REFERENCE: write_npz(reference)}, renamed


def clean_model(file: Path, redactor: Redactor, marked: tuple[str, ...] = ()) -> tuple[bytes, dict[str, str]]:
    """Return a graph with its weights as one file, without notes; ``marked``: inner tensors made outputs."""
    import onnx

    model = onnx.load(str(file))
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in marked if name not in known)
    renamed = clean_graph(model, redactor, MODEL)
    try:
        return model.SerializeToString(deterministic=True), renamed
    except ValueError as error:  # protobuf holds 2 GB at most
        raise UsageError(
            f"{file}: graph and weights do not fit into one file: minimise it first: nox -s minimise -- CELL"
        ) from error


def folder_files(
    folder: Path, repro: Path, product: str, needs: str, why: str, redactor: Redactor, *, compared: bool
) -> Files:
    """Return a repro's file, the probe, the case and what runs them, as one readable folder.

    ``compared``: outputs are compared with references, which go along.
    """
    import trtprobe

    probe = Path(trtprobe.__file__).parent
    run = RUN_TEXT.format(why=why[:1].upper() + why[1:], needs=needs, repro=repro.name, product=product)
    params = json.loads((folder / "case.json").read_text(encoding="utf-8"))["params"]
    files: Files = {
        RUN: run.encode(), "case/case.json": json.dumps({"params": params}, indent=1).encode(),
        f"repros/{repro.name}": redactor.clean(repro.name, repro.read_text(encoding="utf-8")).encode(),
    }  # fmt: skip
    files |= {f"trtprobe/{f.relative_to(probe)}": f.read_bytes() for f in sorted(probe.rglob("*.py"))}
    for file in sorted(folder.rglob("*")):
        name = f"case/{file.relative_to(folder)}"
        if file.suffix == ".onnx":
            files[name] = clean_model(file, redactor)[0]
        elif file.suffix == ".npy" and (compared or "/reference/" not in name):
            files[name] = file.resolve()
    return files


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz``: the same each time, and read by NumPy alone."""
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(arrays[name], order="C"), allow_pickle=False)
            info = ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr, info.compress_type = 3, 0o644 << 16, ZIP_DEFLATED
            archive.writestr(info, member.getbuffer(), compresslevel=9)
    return out.getvalue()


def round_off(array: NDArray[Any], floor: float) -> NDArray[Any]:
    """Return a float64 array rounded far below a relative noise floor, as float32 where it fits.

    Rounding to nearest at k bits changes each value, and so the whole in relative L2, by at most 2^-(k+1).
    """
    if array.dtype != np.float64 or not 0 < floor < math.inf:
        return array
    bits = max(1, math.ceil(math.log2(FINER / floor)) - 1)
    if bits >= 52:
        return array
    mantissa, exponent = np.frexp(array)
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)
        rounded = np.where(np.isfinite(rounded), rounded, array)
        single = rounded.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), rounded, equal_nan=True) else rounded
