"""Runs the judging part of many archives' scripts in one interpreter, Python 3.8 too, by ONNX Runtime.

Standard input: a JSON list of {"script", "model", "case", "key" of graph and inputs, "arrays": that of
reference and defects}; standard output: a line for each with the exit code that the script would end in
and what the probe measures of the same outputs.
"""

import contextlib
import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trtprobe.answer import measure_all
from trtprobe.files import CaseFiles, strict


def main() -> None:
    known: Any = {}
    for job in json.load(sys.stdin):
        spec = importlib.util.spec_from_file_location("repro", job["script"])
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.np, module.MODEL, files = np, Path(job["model"]), CaseFiles(Path(job["case"]))
        if job["key"] not in known:  # cases that differ in precision alone follow each other
            feeds = {name: np.ascontiguousarray(array) for name, array in files.inputs.items()}
            known = {job["key"]: (module.onnxruntime_engine()(feeds), {})}
        computed, measured = known[job["key"]]
        reference = dict(files.reference)
        for defect, arrays in files.defects.items():
            reference.update({defect + " in " + name: array for name, array in arrays.items()})
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            module.judge(computed, reference)
        code = 1 if ": WRONG\n" in said.getvalue() else 125 if ": unclear\n" in said.getvalue() else 0
        if job["arrays"] not in measured:
            outputs = {name: array for name, array in computed.items() if name in files.reference}
            measured[job["arrays"]] = measure_all(outputs, files)
        found = {"code": code, "said": said.getvalue(), "measurements": measured[job["arrays"]]}
        print(json.dumps(strict(found)), flush=True)


if __name__ == "__main__":
    main()
