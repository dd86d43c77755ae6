"""What a cell answers: a result and each build's outputs, in memory that nobody can change any more.

A cell's process only hands over. What it hands over is measured by one that never ran a repro.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import sys
import traceback
from pathlib import Path
from typing import IO, Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from trtprobe import ends
from trtprobe.files import CaseFiles, strict
from trtprobe.measure import measure_alone, measure_with_signatures

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEALED = 0xF
"""No other seals, no shrinking, no growing, no writing: https://man7.org/linux/man-pages/man2/fcntl.2.html."""

HEAD, ALIGNED = 16, 64
LONGEST = 1 << 25
"""Bytes of a result, as JSON, that are read."""

Arrays = Dict[str, np.ndarray]


def seal(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> int:
    """Return an open file in memory with a JSON object and arrays; from now on nobody can change it.

    ``TypeError`` where an array holds anything but numbers and truth values.
    """
    words = []
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise TypeError("output %s has the dtype %s" % (name, array.dtype))
        words.append([name, array.dtype.str, list(array.shape)])
    head = json.dumps(strict({"data": data, "arrays": words}), allow_nan=False).encode()

    def write(stream: IO[bytes]) -> None:
        stream.write(b"%0*d" % (HEAD, len(head)) + head)
        for array in arrays.values():
            stream.write(bytes(-stream.tell() % ALIGNED))
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    return seal_file(write)


def seal_file(write: Callable[[IO[bytes]], object]) -> int:
    """Return an open file in memory that ``write`` has filled; from now on nobody can change it."""
    file = os.memfd_create("trtprobe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as stream:
            write(stream)
        fcntl.fcntl(file, F_ADD_SEALS, SEALED)
    except BaseException:
        os.close(file)
        raise
    return file


def sealed_size(file: int) -> int:
    """Return the bytes of a file in memory; ``ValueError`` where it is another file or can be changed."""
    try:
        if fcntl.fcntl(file, F_GET_SEALS) & SEALED == SEALED:
            return os.fstat(file).st_size
    except OSError:
        pass
    raise ValueError("what was handed over is no sealed memory")


def unseal(file: int) -> Tuple[Dict[str, Any], Arrays]:
    """Return what :func:`seal` put into a file: views of its memory; ``ValueError`` where it is not that."""
    size = sealed_size(file)
    if size < HEAD:
        raise ValueError("what was handed over is cut off")
    memory = mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ)
    length = int(memory[:HEAD])
    if not 0 <= length <= min(size - HEAD, LONGEST):
        raise ValueError("what was handed over has a head of %d bytes" % length)
    try:
        head = json.loads(memory[HEAD : HEAD + length].decode())
        data, at, arrays = head["data"], HEAD + length, {}
        for name, dtype, shape in head["arrays"]:
            kind, count = np.dtype(str(dtype)), 1
            for extent in shape:
                if type(extent) is not int or extent < 0:
                    raise ValueError("the shape %s" % shape)
                count *= extent
            at += -at % ALIGNED
            if kind.kind not in "biufc" or type(name) is not str or "/" in name or "\0" in name:
                raise ValueError("the array %s" % name)
            if count:
                arrays[name] = np.frombuffer(memory, kind, count, at).reshape(shape)
            else:
                arrays[name] = np.zeros(shape, kind)
            at += count * kind.itemsize
    except (RecursionError, KeyError, TypeError, MemoryError) as error:
        raise ValueError("what was handed over is damaged: %r" % error) from error
    if not isinstance(data, dict):
        raise ValueError("what was handed over is no object")  # noqa: TRY004 - as for all that is wrong
    return data, arrays


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
        """Take a build's outputs; what came first counts."""
        if 0 <= number < self.builds:
            self.outputs.setdefault(number, dict(outputs))

    def read(self, words: Mapping[str, Any], file: int) -> None:
        """Take what a message says that the file beside it is; ``refused`` says why nothing is taken."""
        try:
            self._take(words, file)
        except (ValueError, OSError) as error:
            self.refused = self.refused or str(error)
        finally:
            os.close(file)

    def _take(self, words: Mapping[str, Any], file: int) -> None:
        """Take a build's outputs or a result; ``ValueError`` where it is neither, or too large."""
        size = sealed_size(file)
        self.bytes += size if "build" in words else 0
        if self.most is not None and max(self.bytes, size) > self.most + LONGEST:
            text = "wrote %d bytes; the output folder may hold %d"
            raise ValueError(text % (max(self.bytes, size), self.most))
        data, arrays = unseal(file)
        if type(words.get("build")) is int:
            self.hand(words["build"], arrays)
        elif is_result(data):
            self.tell(data, final=words.get("result") == "final")
        else:
            raise ValueError("the cell's process told no result")

    def measured(self, spec: Mapping[str, Any]) -> Dict[str, Any]:
        """Return the result with all outputs measured, and with ``kept``: which are worth keeping.

        Where one cannot be measured, a result that had run has not: it says why.
        """
        result, files, kept = self.result, CaseFiles(Path(spec["files"])), self.kept
        for number, outputs in sorted(self.outputs.items()):
            builds = [result, *result.get("builds", ())[:1]] if number == 0 else []
            builds = builds or result.get("builds", ())[number : number + 1]
            try:
                found = measure_all(outputs, files)
            except BaseException as error:
                if result.get("ended") == ends.RAN:
                    result.update(_unmeasured(error, spec, number))
                if "builds" in result:
                    del result["builds"][number:]
                break
            for build in builds:
                build.setdefault("measurements", {}).update(found)
            suffix = "@%d" % number if number else ""
            for name, array in outputs.items() if spec["keep_outputs"] or not files.reference else ():
                kept[name + suffix] = array
        result["kept"] = {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in kept.items()}
        return result


def _unmeasured(error: BaseException, spec: Mapping[str, Any], number: int) -> Dict[str, Any]:
    """Return how a cell ends whose outputs cannot be measured."""
    text = str(error)
    if not isinstance(error, ends.CellEnd):
        traceback.print_exc()
        text = "raised " + "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip()[-500:]
    ended = ends.OUT_OF_HOST_MEMORY if isinstance(error, MemoryError) else ends.PROBE_FAILED
    return {"ended": ended, "detail": which_build(spec.get("builds", 1), number) + text}


def which_build(builds: int, ended: int) -> str:
    """Return ``"build 2 of 3: "`` where one of three builds has ended; nothing outside of several builds."""
    return "build %d of %d: " % (ended + 1, builds) if builds > 1 and ended < builds else ""


def is_result(data: Mapping[str, Any]) -> bool:
    """Whether what a process told has the form of a result, so that a record can be made of it."""
    builds, parts = data.get("builds", []), ("observed", "environment", "engine", "measurements", "counts")
    words = [word for name, word in vars(ends).items() if name.isupper()]
    if not isinstance(builds, list) or not all(isinstance(data.get(name, {}), dict) for name in parts):
        return False
    measured = [build.get("measurements") if isinstance(build, dict) else None for build in builds]
    measured += [data["measurements"]] if "measurements" in data else []
    return (
        data.get("ended") in words and isinstance(data.get("detail"), str)
        and all(isinstance(one, dict) and isinstance(one.get("scalars"), dict) for one in measured)
        and all(type(number) in {int, float} for number in data.get("counts", {}).values())
    )  # fmt: skip


def measure_all(outputs: Mapping[str, np.ndarray], files: CaseFiles) -> Dict[str, Any]:
    """Measure each output against the reference of its name, and against each defect that changes it.

    A case without any reference is a user's own: its outputs are looked at alone, and compared elsewhere.
    """
    reference, defects = files.reference, files.defects
    if not reference:
        return {"outputs": {n: measure_alone(np.asarray(y)) for n, y in outputs.items()}, "signatures": {}}
    unknown = sorted(set(outputs) - set(reference))
    if unknown:
        raise ends.CellEnd("run() returned %s, which has no reference" % ", ".join(unknown))
    found: Dict[str, Any] = {"outputs": {}, "signatures": {}}
    for name, output in outputs.items():
        own = {defect: changes[name] for defect, changes in defects.items() if name in changes}
        measured, signatures = measure_with_signatures(np.asarray(output), reference[name], own)
        found["outputs"][name] = measured
        for defect, signature in signatures.items():
            found["signatures"].setdefault(defect, {})[name] = signature
    return found
