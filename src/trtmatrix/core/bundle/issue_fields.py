"""The short fields of upstream's forms: environment, latest release, other frameworks, a capture. Pure."""

from __future__ import annotations

from trtmatrix.core.bundle.facts import SCRIPT, Environment, Failure, Form
from trtmatrix.core.bundle.issue_parts import RIGHT, WRONG
from trtmatrix.core.markdown import bullets, code, fence, plain
from trtmatrix.core.model import Verdict

UNKNOWN = "not known"


def environment_fields(failure: Failure, form: Form) -> dict[str, str]:
    """Return the form's fields about the environment, by the names of its places."""
    env = failure.environment
    on_cpu = not env.gpu
    none = "none: it ran on the CPU"
    fields = {
        "TENSORRT": _tensorrt(failure), "GPU": none if on_cpu else _gpu(env),
        "DRIVER": none if on_cpu else _driver(env), "CUDA": plain(env.cuda) or (none if on_cpu else UNKNOWN),
        "CUDNN": plain(env.cudnn) or ("not loaded" if not on_cpu else none), "OS": _os(failure),
        "PYTHON": plain(env.python) or UNKNOWN, "TENSORFLOW": plain(env.tensorflow) or "none",
        "TORCH": plain(env.torch) or "none", "CONTAINER": _container(failure), "ENVIRONMENT": _more(env),
    }  # fmt: skip
    if form is Form.TORCH:
        fields |= {
            "TORCH_TENSORRT": plain(env.torch_tensorrt) or UNKNOWN, "MACHINE": plain(env.machine) or UNKNOWN,
            "INSTALLED": "it is in the image" if failure.image else UNKNOWN, "BUILT": "not compiled here",
            "SOURCES": "neither: as the image ships it" if failure.image else "neither",
            "OTHER": _other(failure),
        }  # fmt: skip
    return fields


def _tensorrt(failure: Failure) -> str:
    env = failure.environment
    library = plain(env.library or failure.version)
    if failure.product_name != "TensorRT":
        library = f"none: this is {plain(failure.product_name)} {library}"
    bindings = f" (Python bindings {plain(env.bindings)})" if env.bindings not in {"", env.library} else ""
    return library + bindings


def _gpu(env: Environment) -> str:
    count = f"{env.gpu_count} × " if env.gpu_count > 1 else ""
    facts = [env.variant, f"compute capability {env.compute}" if env.compute else ""]
    facts.append(f"MIG {env.mig}" if env.mig else "")
    return count + plain(f"{env.gpu} ({', '.join(fact for fact in facts if fact)})")


def _driver(env: Environment) -> str:
    cuda = f" (it supports CUDA up to {env.driver_cuda})" if env.driver_cuda else ""
    return plain((env.driver or UNKNOWN) + cuda)


def _os(failure: Failure) -> str:
    env = failure.environment
    inside = f"{env.os} in the container" if env.os and failure.image else env.os
    host = f"host: {env.host_os}" if env.host_os else ""
    machine = env.machine
    inside = inside or ("" if host else "not recorded")
    return plain(", ".join(part for part in (inside, host, machine) if part)) or UNKNOWN


def _container(failure: Failure) -> str:
    image = failure.image
    if image is None:
        return "Baremetal"
    if image.reference:
        return f"Container: {code(image.reference)} ({plain(image.name)})"
    built = "; it is in no registry, `image/` in the archive says how it is built" if image.build else ""
    return f"Container: {plain(image.name)}, id {code(image.id)}{built}"


def _more(env: Environment) -> str:
    """Return what the form does not ask for, and a maintainer may."""
    lines = []
    if env.clocks:
        lines.append("Clocks: " + ", ".join(f"{plain(name)} {value}" for name, value in env.clocks.items()))
    if env.libcuda:
        lines.append(f"libcuda that was loaded: {code(env.libcuda)}")
    if env.numpy:
        lines.append(f"NumPy: {plain(env.numpy)}")
    if env.torch_tensorrt:
        lines.append(f"Torch-TensorRT: {plain(env.torch_tensorrt)}")
    set_ = ", ".join(code(f"{name}={value}") for name, value in env.variables.items())
    lines.append(f"Environment variables that change numbers: {set_ or 'none is set'}")
    return bullets(lines)


def _other(failure: Failure) -> str:
    env = failure.environment
    driver = "" if not env.gpu else f"; driver {_driver(env)}"
    return f"TensorRT {_tensorrt(failure)}{driver}; {_container(failure)}"


def latest_words(failure: Failure) -> str:
    """Return whether the latest release was tried; where it was not, why, and what was instead."""
    tried = {line.version: line for line in failure.versions}
    found = tried.get(failure.latest)
    is_this = failure.latest in {failure.version, failure.cell.version}
    if failure.latest and failure.latest == failure.newest_known:
        if is_this:
            return f"Yes: this is {plain(failure.latest)}, the latest that is known of."
        if found is not None and found.verdict in RIGHT | WRONG:
            return f"Yes: {plain(failure.latest)} {_verdict_words(found.verdict)}."
    why = plain(failure.latest_words) or "it could not be run here"
    newest = f" ({plain(failure.newest_known)})" if failure.newest_known else ""
    words = f"No{newest}: {why}."
    if found is not None and found.verdict is not None and not is_this:
        words += f" The newest that was tried, {plain(failure.latest)}, {_verdict_words(found.verdict)}."
    elif is_this:
        words += f" This, {plain(failure.latest)}, is the newest that was tried."
    return words


def _verdict_words(verdict: Verdict | None) -> str:
    match verdict:
        case Verdict.PASS:
            return "is right"
        case Verdict.FAIL:
            return "fails too"
        case Verdict.FLAKY:
            return "fails in some builds"
        case _:
            return f"gave no answer ({verdict.value})" if verdict else "was not run"


def frameworks_words(failure: Failure) -> str:
    """Return what other frameworks make of the graph."""
    return plain(failure.on_cpu) or "Not tried."


def capture_words(failure: Failure) -> str:
    """Return that the capture is attached, or the commands that make it.

    Source: https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/capture-replay.html.
    """
    names = set(failure.attached)
    for calls in sorted(name for name in names if name.endswith(".json")):
        constants = calls.removesuffix(".json") + ".bin"
        if constants in names:
            return f"{code(calls)} and {code(constants)} are in the archive; they hold the model's weights."
    lines = (
        "export TRT_SHIM_OUTPUT_JSON_FILE=$PWD/capture.json   # capture.bin is written beside it\n"
        "# where there is no libnvinfer.so (wheels): export TRT_SHIM_NVINFER_LIB_NAME=/…/libnvinfer.so.10\n"
        f"LD_PRELOAD=libtensorrt_shim.so python3 {SCRIPT} --builds 1\n"
        "tensorrt_player -j capture.json -o replayed.engine   # builds the engine again from the two files"
    )
    return (
        "Not attached: the model itself is, and a capture holds its weights again. To make it, in the "
        f"archive's folder on x86\\_64 Linux, TensorRT's `lib` in `LD_LIBRARY_PATH`:\n\n{fence(lines)}"
    )
