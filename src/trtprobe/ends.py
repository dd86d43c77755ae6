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
ELSEWHERE = "to be run in another process"  # no record ends so: the cell is given to a fresh worker

ENDED_WELL = {RAN, BUILT, UNSUPPORTED, COMPONENT_MISSING, BUILD_FAILED}
"""After a cell that ended so, its process may serve another, and others may have its engines."""


class CellEnd(Exception):
    """Ends a cell in a known way."""

    ended = PROBE_FAILED

    def __init_subclass__(cls, ended: str) -> None:
        cls.ended = ended


class Unsupported(CellEnd, ended=UNSUPPORTED):
    """The product cannot do what the case asks for."""


class ComponentMissing(CellEnd, ended=COMPONENT_MISSING):
    """The product or a library of it is not in the image."""


class BuildFailed(CellEnd, ended=BUILD_FAILED):
    """The parser or the builder refused the graph."""


class RunFailed(CellEnd, ended=CRASHED):
    """The engine was built and the product would not run it."""


class BuiltOnly(CellEnd, ended=BUILT):
    """Parsed and built; this host cannot run the engine."""


class OutOfGpuMemory(CellEnd, ended=OUT_OF_GPU_MEMORY):
    """The GPU's memory does not hold what the case needs."""


class Elsewhere(CellEnd, ended=ELSEWHERE):
    """What an earlier cell left in this process would change what this one does."""
