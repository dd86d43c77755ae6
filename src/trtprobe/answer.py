"""What a cell answers: a result and each build's outputs, in memory that nobody can change any more.

A cell's process only hands over. What it hands over is measured by one that never ran a repro.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from trtprobe import ends
from trtprobe.channel import sealed_size
from trtprobe.files import CaseFiles, to_json
from trtprobe.measure import measure_alone, measure_with_signatures

LONGEST = 1 << 25  # bytes of a result, as JSON, that are read
MAPPED = 1 << 23
"""Larger files with an array, in bytes, are mapped and keep an open file; a cell may hand over thousands of
others, and a process may often open a thousand files."""

READING = mmap.MAP_PRIVATE, mmap.PROT_READ
NUMBERS = "biufc"  # kinds of dtypes that an output may have: truth values and numbers
Arrays = Dict[str, np.ndarray]


class Answer:
    """What has come of a cell so far: its result as last told, and the outputs of each build."""

    def __init__(self, builds: int = 1, most: Optional[int] = None) -> None:
        """Expect at most so many builds' outputs, and at most so many bytes."""
        self.result: Dict[str, Any] = {}
        self.outputs: Dict[int, Arrays] = {}
        self.kept: Arrays = {}
        self.builds, self.most, self.bytes = builds, most, 0
        self.refused, self.is_final = "", False

    def tell(self, result: Mapping[str, Any], *, final: bool = False) -> None:
        """Take a result; a later one replaces it."""
        self.result, self.is_final = dict(result), final

    def hand(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Take outputs of a build; what came first counts."""
        if 0 <= number < self.builds:
            self.outputs[number] = {**outputs, **self.outputs.get(number, {})}

    def read(self, words: Mapping[str, Any], file: int) -> None:
        """Take what a message says that the file beside it is; ``refused`` says why nothing is taken."""
        try:
            self._take(words, file)
        except (ValueError, OSError) as error:
            self.refused = self.refused or str(error)
        finally:
            os.close(file)

    def _take(self, words: Mapping[str, Any], file: int) -> None:
        """Take an output of a build or a result; ``ValueError`` where it is neither, or too large."""
        size, number, name = sealed_size(file), words.get("build"), words.get("output")
        if "output" in words:
            if type(number) is not int or type(name) is not str or {"/", "\0"} & set(name):
                raise ValueError("the output %s of build %s" % (name, number))
            self.bytes += size
            if self.most is not None and self.bytes > self.most + LONGEST:
                text = "wrote %d bytes; the output folder may hold %d"
                raise ValueError(text % (self.bytes, self.most))
            self.hand(number, {name: unseal_array(file)})
            return
        try:
            data = json.loads(os.pread(file, min(size, LONGEST), 0).decode())
            to_json({"result": data})  # what is too deep to be written again is none
        except RecursionError:
            data = None
        if not is_result(data):
            raise ValueError("the cell's process told no result")
        self.tell(data, final=words.get("result") == "final")

    def measured(self, spec: Mapping[str, Any]) -> Dict[str, Any]:
        """Return the result with all outputs measured, and with ``kept``: their names, dtypes and shapes.

        Where one cannot be measured, a result that had run has not: it says why.
        """
        result, files = self.result, CaseFiles(Path(spec["files"]))
        for number, outputs in sorted(self.outputs.items()):
            builds = [*result.get("builds", ())[number : number + 1], *([result] if number == 0 else [])]
            odd: List[str] = []
            try:
                found = measure_all(outputs, files, odd)
            except Exception as error:
                if result.get("ended") == ends.RAN:
                    result.update(_unmeasured(error, spec, number))
                if "builds" in result:
                    del result["builds"][number:]
                break
            for build in builds:
                build.setdefault("measurements", {}).update(found)
            if spec.get("keep_outputs", True) or not files.reference:
                self.kept.update({n + ("@%d" % number if number else ""): y for n, y in outputs.items()})
            if odd and result.get("ended") == ends.RAN:
                detail = which_build(spec.get("builds", 1), number) + "; ".join(odd)
                result.update(ended=ends.PROBE_FAILED, detail=detail)
                if "builds" in result:
                    del result["builds"][number + 1 :]
                break
        result["kept"] = {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in self.kept.items()}
        return result


def unseal_array(file: int) -> np.ndarray:
    """Return a view of a sealed ``.npy`` of numbers or truth values; ``ValueError`` where it is none."""
    size = sealed_size(file)
    try:
        memory = os.pread(file, size, 0) if size <= MAPPED else mmap.mmap(file, size, *READING)
        head: Any = io.BytesIO(memory) if isinstance(memory, bytes) else memory
        np.lib.format.read_magic(head)
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(head)
        values: np.ndarray = np.ndarray(shape, dtype, memory, head.tell(), order="F" if by_column else "C")
    except Exception as error:
        raise ValueError("what was handed over is no array: %s" % error) from error
    if values.dtype.kind not in NUMBERS:
        raise ValueError("what was handed over has the dtype %s" % values.dtype)
    return values


def _unmeasured(error: Exception, spec: Mapping[str, Any], number: int) -> Dict[str, Any]:
    """Return how a cell ends whose outputs cannot be measured."""
    text = str(error)
    if not isinstance(error, ends.CellEnd):
        traceback.print_exc()
        text = "raised " + last_line()
    ended = ends.OUT_OF_HOST_MEMORY if isinstance(error, MemoryError) else ends.PROBE_FAILED
    return {"ended": ended, "detail": which_build(spec.get("builds", 1), number) + text}


def last_line() -> str:
    """Return the exception being handled in one line."""
    return "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip()[-500:]


def which_build(builds: int, ended: int) -> str:
    """Return ``"build 2 of 3: "`` where one of three builds has ended; nothing outside of several builds."""
    return "build %d of %d: " % (ended + 1, builds) if builds > 1 and ended < builds else ""


def is_result(data: Any) -> bool:
    """Whether what a process told has the form of a result, so that a record can be made of it."""
    parts = ("observed", "environment", "engine", "measurements", "counts")
    words = [word for name, word in vars(ends).items() if name.isupper()]
    if not isinstance(data, dict) or not all(isinstance(data.get(name, {}), dict) for name in parts):
        return False
    builds = data.get("builds", [])
    if not isinstance(builds, list):
        return False
    measured = [build.get("measurements") if isinstance(build, dict) else None for build in builds]
    measured += [data["measurements"]] if "measurements" in data else []
    return (
        data.get("ended") in words and isinstance(data.get("detail"), str)
        and all(isinstance(one, dict) and isinstance(one.get("scalars"), dict) for one in measured)
        and all(type(number) in {int, float} for number in data.get("counts", {}).values())
    )  # fmt: skip


def measure_all(
    outputs: Mapping[str, np.ndarray], files: CaseFiles, odd: Optional[List[str]] = None
) -> Dict[str, Any]:
    """Measure each output against the reference of its name, and against each defect that changes it.

    Outputs of another shape are noted in ``odd``; without it the first is raised.

    A case without any reference is a user's own: its outputs are looked at alone, and compared elsewhere.
    """
    reference, defects = files.reference, files.defects
    found: Dict[str, Any] = {"outputs": {}, "signatures": {}}
    unknown = sorted(set(outputs) - set(reference))
    if reference and unknown:
        raise ends.CellEnd("run() returned %s, which has no reference" % ", ".join(unknown))
    for name, output in outputs.items():
        if not reference:
            found["outputs"][name] = measure_alone(np.asarray(output))
            continue
        own = {defect: changes[name] for defect, changes in defects.items() if name in changes}
        try:
            measures, signatures = measure_with_signatures(np.asarray(output), reference[name], own)
        except ValueError as error:
            if odd is None:
                raise
            odd.append("%s: %s" % (name, error))
            continue
        found["outputs"][name] = measures
        for defect, signature in signatures.items():
            found["signatures"].setdefault(defect, {})[name] = signature
    return found
