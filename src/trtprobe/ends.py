"""How a cell can end, and the exceptions that say so."""

RAN = "ran"
BUILT = "built"
UNSUPPORTED = "unsupported by this version"
COMPONENT_MISSING = "component missing"
BUILD_FAILED = "build failed"
OUT_OF_GPU_MEMORY = "out of GPU memory"
OUT_OF_HOST_MEMORY = "out of host memory"
TIME_OUT = "time-out"
CRASHED = "crashed"
INTERRUPTED = "interrupted"
PROBE_FAILED = "probe failed"
ELSEWHERE = "to be run in another process"
"""No record ends so: the cell is given to a fresh worker."""

ENDED_WELL = {RAN, BUILT, UNSUPPORTED, COMPONENT_MISSING, BUILD_FAILED}
"""After a cell that ended so, its process may serve another, and others may have its engines."""


class CellEnd(Exception):
    """Ends a cell in a known way."""

    ended = PROBE_FAILED


class Unsupported(CellEnd):
    """The product cannot do what the case asks for."""

    ended = UNSUPPORTED


class ComponentMissing(CellEnd):
    """The product or a library of it is not in the image."""

    ended = COMPONENT_MISSING


class BuildFailed(CellEnd):
    """The parser or the builder refused the graph."""

    ended = BUILD_FAILED


class RunFailed(CellEnd):
    """The engine was built and the product would not run it."""

    ended = CRASHED


class BuiltOnly(CellEnd):
    """Parsed and built; this host cannot run the engine."""

    ended = BUILT


class OutOfGpuMemory(CellEnd):
    """The GPU's memory does not hold what the case needs."""

    ended = OUT_OF_GPU_MEMORY


class Elsewhere(CellEnd):
    """What an earlier cell left in this process would change what this one does."""

    ended = ELSEWHERE
