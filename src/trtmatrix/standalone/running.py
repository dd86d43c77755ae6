"""Runs the case: each process of it as a child, which may crash or hang, and in that the builds."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trtmatrix.standalone.casefiles import CaseFiles
from trtprobe import ends, observe
from trtprobe.backends.base import Backend
from trtprobe.cell import last_line, measure_all, nothing_yet
from trtprobe.exits import exit_words
from trtprobe.files import write_json

UNCAUGHT = 125
"""What this script ends with on an error that is not the product's; see its first lines."""


class Run(Protocol):
    """The repro's ``run``: what it gives by output."""

    def __call__(self, params: dict[str, Any], files: CaseFiles, trt: Backend) -> dict[str, np.ndarray]:
        """Build and run once."""


def run_builds(
    run: Run, product: type[Backend], files: CaseFiles, builds: int, out: Path, save: Path | None
) -> dict[str, Any]:
    """Build and run the case so often; ``out/result.json`` holds what is known even if this process dies."""
    result: dict[str, Any] = {"observed": observe.observed(), "environment": observe.environment()}
    result.update(ended=ends.CRASHED, detail="", counts={}, kept={}, builds=[], **nothing_yet())
    write_json(out / "result.json", result)
    try:
        backend = product()
        result["observed"].update(backend.observed())
        for number in range(builds):
            write_json(out / "result.json", result)
            backend.reset()
            build = nothing_yet()
            if number == 0:
                result.update(build, counts=backend.counts)
            run_build(run, backend, files, build, save / f"outputs-{number + 1}.npz" if save else None)
            result["builds"].append(build)
        check_context(backend)
        result["ended"] = ends.RAN
    except ends.CellEnd as end:
        result.update(ended=end.ended, detail=str(end))
    except ImportError:
        result.update(ended=ends.COMPONENT_MISSING, detail=last_line())
    except MemoryError:
        result.update(ended=ends.OUT_OF_HOST_MEMORY, detail="MemoryError: " + last_line())
    except Exception:  # noqa: BLE001 - whatever it is, it is how the case ended
        result.update(ended=ends.CRASHED, detail="raised " + last_line())
        traceback.print_exc()
    result["observed"].update(observe.loaded())
    if builds == 1:
        del result["builds"]
    write_json(out / "result.json", result)
    return result


def run_build(run: Run, backend: Backend, files: CaseFiles, build: dict[str, Any], save: Path | None) -> None:
    """Run the repro once and measure what it gives; ``save``: where its outputs are to be written."""
    try:
        outputs = run(dict(files.params), files, backend)
    finally:
        build["engine"].update(backend.facts)
        build["measurements"].update(scalars={**backend.scalars, **backend.counts}, remark=backend.word)
    build["measurements"].update(measure_all(outputs, files))  # type: ignore[arg-type]  # a folder's, there
    if save:
        try:
            np.savez_compressed(str(save), **outputs)  # type: ignore[arg-type]  # by name
        except OSError as error:  # no crash of the product's
            raise ends.CellEnd(f"{save} cannot be written: {error}") from error


def check_context(backend: Backend) -> None:
    """Raise where the GPU's context reports an error once everything is done."""
    trouble = backend.trouble()
    if trouble:
        raise ends.RunFailed("the GPU's context reports an error after it: " + trouble)


def run_in_child(words: list[str], seconds: float) -> dict[str, Any]:
    """Call this script in a process of its own and return its result, however it ends."""
    environment = {name: value for name, value in os.environ.items() if name not in observe.UNSET}
    environment["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), *words, "--child", folder]
        child = subprocess.Popen(command, env=environment, start_new_session=True)
        cut = ""
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            cut = f"not done after {seconds:g} s"
        finally:  # also when this is interrupted: with all that it has started
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        written = Path(folder, "result.json")
        if not written.is_file():
            detail = "it did not start: " + exit_words(child.returncode, False)
            nothing: dict[str, Any] = {"observed": {}, "environment": {}, "counts": {}, "kept": {}}
            return {**nothing, **nothing_yet(), "ended": ends.PROBE_FAILED, "detail": detail}
        result: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    if cut:
        result.update(ended=ends.TIME_OUT, detail=cut)
    elif child.returncode == UNCAUGHT:
        result.update(ended=ends.PROBE_FAILED, detail="an error of this script's own: see above")
    elif child.returncode == -signal.SIGKILL:
        result.update(ended=ends.OUT_OF_HOST_MEMORY, detail="killed from outside, most likely for memory")
    elif child.returncode:
        result.update(ended=ends.CRASHED, detail=exit_words(child.returncode, result["ended"] == ends.RAN))
    return result


def run_processes(words: list[str], processes: int, seconds: float) -> dict[str, Any]:
    """Run the case in so many fresh processes and return the first one's result, with the counts of all."""
    results = [run_in_child(words, seconds)]
    while len(results) < processes and results[-1]["ended"] == ends.RAN:
        results.append(run_in_child(words, seconds))
    first, last = results[0], results[-1]
    first.update(ended=last["ended"], detail=last["detail"], platform=describe_platform())
    if processes > 1:
        first["processes"] = len(results)
        for name in first.get("counts", {}):
            total = sum(result.get("counts", {}).get(name, 0) for result in results)
            first["counts"][name] = first["measurements"]["scalars"][name] = total
    return first


def describe_platform() -> dict[str, Any]:
    """Return the operating system and the versions of the packages that count."""
    from importlib.metadata import distributions

    names = ("tensorrt", "nvidia-", "onnx", "torch", "numpy", "cuda-")
    found = {str(one.metadata["Name"]).lower(): one.version for one in distributions()}
    release = Path("/etc/os-release")
    lines = release.read_text(encoding="utf-8").splitlines() if release.is_file() else []
    pretty = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return {
        "os": pretty[0] if pretty else platform.system(), "kernel": platform.release(),
        "python": platform.python_version(), "machine": platform.machine(),
        "packages": {name: found[name] for name in sorted(found) if name.startswith(names)},
    }  # fmt: skip
