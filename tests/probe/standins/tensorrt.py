"""A stand-in for TensorRT's Python bindings with NumPy inside: no TensorRT runs without a GPU.

It has the part of the interface that the probe uses, as the release named in STANDIN_TENSORRT has it
(test_surface.py compares that with NVIDIA's own bindings), and refuses what that release refuses.
A graph is a JSON text: {"inputs": {name: [dtype, shape]}, "outputs": ..., "says": an error message,
"layers": [{"type": "SOFTMAX", "output": name}, ...]}; each name of "plugins" wants them registered. "host":
inputs that are shape tensors, "expands": outputs whose shape is the values of one; an output of the shape
[-1] is as long as the data say; "quantized": the flags that a weakly typed network needs; "weights": a file
that must lie beside it; "refuses": the parser's errors.
"""

from __future__ import annotations

import enum
import json
import os
import time
from typing import Any

import standin_context  # type: ignore[import-not-found]  # it lies beside this file

__version__ = os.environ.get("STANDIN_TENSORRT", "10.7.0")
MAJOR, MINOR = (int(part) for part in __version__.split(".")[:2])


IExecutionContext, IOutputAllocator = standin_context.IExecutionContext, standin_context.IOutputAllocator


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __str__(self) -> str:
        return f"Severity.{self.name}"


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = Severity

    def __init__(self) -> None:
        self.ready = True

    def log(self, severity: Severity, text: str) -> None:
        raise NotImplementedError


class Logger(ILogger):
    """Prints what is at least as severe as it was asked to."""

    def __init__(self, least: Severity = Severity.WARNING) -> None:
        super().__init__()
        self.least = least

    def log(self, severity: Severity, text: str) -> None:
        if severity <= self.least:
            print(f"[TRT] [{severity.name}] {text}")


class NetworkDefinitionCreationFlag(enum.IntEnum):
    if MAJOR < 11:
        EXPLICIT_BATCH = 0
    if MAJOR < 9:
        EXPLICIT_PRECISION = 1
    else:
        STRONGLY_TYPED = 0 if MAJOR > 10 else 1


class BuilderFlag(enum.IntEnum):
    if MAJOR < 11:
        FP16, INT8, OBEY_PRECISION_CONSTRAINTS = 0, 1, 12
        if (MAJOR, MINOR) >= (8, 6):
            FP8 = 17
    TF32 = 7


MemoryPoolType = enum.Enum("MemoryPoolType", "WORKSPACE")
ProfilingVerbosity = enum.Enum("ProfilingVerbosity", "LAYER_NAMES_ONLY NONE DETAILED")
LayerInformationFormat = enum.Enum("LayerInformationFormat", "ONELINE JSON")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
TensorLocation = enum.Enum("TensorLocation", "DEVICE HOST")


class DataType(enum.IntEnum):
    FLOAT, HALF, INT8, INT32, BOOL, UINT8, FP8 = range(7)
    if MAJOR >= 9:
        BF16, INT64 = 7, 8


float32, float16 = DataType.FLOAT, DataType.HALF
LayerType = enum.Enum("LayerType", "SOFTMAX MATRIX_MULTIPLY")
_REGISTERED: list[str] = []


def init_libnvinfer_plugins(logger: ILogger, namespace: str) -> bool:
    assert logger.ready
    _REGISTERED.append(namespace)
    return "STANDIN_NO_PLUGINS" not in os.environ


class ITensor:
    is_shape_tensor = False
    name = ""
    shape: tuple[int, ...] = ()

    def __init__(self, name: str) -> None:
        self.name, self.dtype = name, DataType.FLOAT


class ILayer:
    num_outputs = 1
    type: LayerType = LayerType.SOFTMAX
    output_type = DataType.HALF
    if MAJOR < 11:
        precision = DataType.HALF

        def set_output_type(self, index: int, dtype: DataType) -> None:
            assert index == 0
            self.output_type = dtype

    def __init__(self, kind: str, output: str) -> None:
        self.type, self.output = LayerType[kind], ITensor(output)

    def get_output(self, index: int) -> ITensor:
        assert index == 0
        return self.output

    @property
    def kept(self) -> bool:
        return {getattr(self, "precision", None), self.output_type} == {DataType.FLOAT}


_TYPES = {
    "float32": "FLOAT", "float16": "HALF", "int64": "INT64" if MAJOR >= 9 else "INT32", "bfloat16": "BF16",
    "int32": "INT32", "bool": "BOOL", "uint8": "UINT8",
}  # fmt: skip


class INetworkDefinition:
    def __init__(self, logger: ILogger, flags: int) -> None:
        self.logger, self.graph = logger, {}  # type: ILogger, dict[str, Any]
        self.flags = {flag.name for flag in NetworkDefinitionCreationFlag if flags >> flag & 1}
        if flags >> 2:
            raise ValueError(f"unknown flags: {flags}")
        self.graph_alive = [True]
        self.layers: list[ILayer] = []
        self.marked: list[ITensor] = []

    num_layers = property(lambda self: len(self.layers))
    num_inputs = property(lambda self: len(self.graph["inputs"]))

    def get_layer(self, index: int) -> ILayer:
        return self.layers[index]

    def mark_output(self, tensor: ITensor) -> None:
        self.marked.append(tensor)

    def get_input(self, index: int) -> ITensor:
        name = list(self.graph["inputs"])[index]
        tensor = ITensor(name)
        tensor.shape = tuple(self.graph["inputs"][name][1])
        tensor.is_shape_tensor = name in self.graph.get("host", ())
        return tensor


ErrorCode = enum.Enum("ErrorCode", "SUCCESS UNSUPPORTED_NODE INVALID_GRAPH MODEL_DESERIALIZE_FAILED")


class ParserError:
    def __init__(self, text: str, code: str = "INVALID_GRAPH", node: int = -1, operator: str = "") -> None:
        self.text, self.number, self.kind = text, node, ErrorCode[code]
        self.operator = operator

    def code(self) -> ErrorCode:
        return self.kind

    def node(self) -> int:
        return self.number

    def __str__(self) -> str:
        return self.text

    if MAJOR >= 10:

        def node_name(self) -> str:
            return f"/told/{self.operator}" if self.operator else ""

        def node_operator(self) -> str:
            return self.operator


class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        self.network, self.logger, self.errors = network, logger, []  # type: Any, ILogger, list[ParserError]
        self.alive = network.graph_alive = [True]
        assert logger.ready, "ILogger.__init__ was not called"

    def __del__(self) -> None:
        self.alive[0] = False

    def parse_from_file(self, path: str) -> bool:
        with open(path, "rb") as stream:  # noqa: PTH123 - as an image's own code may
            return self._parse(stream.read(), os.path.dirname(path))  # noqa: PTH120

    def parse(self, model: bytes) -> bool:
        return self._parse(model, "/nowhere")

    def _parse(self, model: bytes, folder: str) -> bool:
        if MAJOR < 10 and "EXPLICIT_BATCH" not in self.network.flags:
            self.errors.append(ParserError("This version only supports networks with explicit batch"))
        try:
            self.network.graph = json.loads(model[model.rfind(b"\n{") + 1 :])  # what stands before it is ONNX
        except ValueError as error:
            self.errors.append(ParserError(f"no graph: {error}", "MODEL_DESERIALIZE_FAILED"))
        if self.network.graph.get("plugins") and not _REGISTERED:
            self.errors.append(ParserError("Plugin not found", "UNSUPPORTED_NODE"))
        for text, code, node, operator in self.network.graph.get("refuses", ()):
            self.errors.append(ParserError(text, code, node, operator))
            stop = f'ModelImporter.cpp:771: While parsing node number {node} [{operator} -> "t"]:'
            self.logger.log(ILogger.ERROR, stop)
        weights = self.network.graph.get("weights")
        if weights and not os.path.isfile(os.path.join(folder, weights)):  # noqa: PTH113, PTH118
            self.errors.append(ParserError(f"Failed to open file: {weights}"))
        kinds = self.network.graph.get("layers", [])
        self.network.layers = [ILayer(layer["type"], layer["output"]) for layer in kinds]
        return not self.errors

    num_errors = property(lambda self: len(self.errors))

    def get_error(self, index: int) -> ParserError:
        return self.errors[index]


class IOptimizationProfile:
    def __init__(self) -> None:
        self.ranges: dict[str, list[list[int]]] = {}

    def set_shape(self, name: str, least: Any, best: Any, most: Any) -> None:
        self.ranges[name] = [list(least), list(best), list(most)]

    def set_shape_input(self, name: str, least: list[int], best: list[int], most: list[int]) -> None:
        self.ranges[name] = [[len(least), *least], [len(best), *best], [len(most), *most]]


class IBuilderConfig:
    __slots__ = ("flags", "pools", "profiles", "profiling_verbosity") + (
        ("builder_optimization_level",) if (MAJOR, MINOR) >= (8, 6) else ()
    )

    def __init__(self) -> None:
        self.flags, self.pools = {BuilderFlag["TF32"]}, {}  # type: set[Any], dict[MemoryPoolType, int]
        self.profiles: list[IOptimizationProfile] = []
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        if (MAJOR, MINOR) >= (8, 6):
            self.builder_optimization_level = 3

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.pools[pool] = size

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        if any(least > most for least, _, most in profile.ranges.values()):
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def set_flag(self, flag: Any) -> None:
        self.flags.add(BuilderFlag(flag))

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(BuilderFlag(flag))


class IHostMemory(bytes):
    nbytes = property(bytes.__len__)


class Builder:
    """STANDIN_BUILDERS: a file that gets a line for each; STANDIN_BUILDER: how the first goes wrong.

    STANDIN_BUILDS: a file that gets a line for each engine that is built.
    """

    create_builder_config, create_optimization_profile = IBuilderConfig, IOptimizationProfile

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger
        _note_builder()
        self.used = []  # type: list[IBuilderConfig]

    def create_network(self, flags: int) -> INetworkDefinition:
        return INetworkDefinition(self.logger, flags)

    def build_serialized_network(self, network: INetworkDefinition, config: Any) -> IHostMemory | None:
        assert not any(config is other for other in self.used), "a config keeps its timing cache"
        self.used.append(config)
        assert network.graph_alive[0], "the parser is gone, and its weights with it"
        strong = MAJOR > 10 or "STRONGLY_TYPED" in network.flags
        flags = sorted(flag.name for flag in config.flags)
        if "warns" in network.graph:
            self.logger.log(ILogger.WARNING, network.graph["warns"])
        if strong and "FP16" in flags:
            self.logger.log(ILogger.ERROR, "!config.getFlag(kFP16) in a strongly typed network")
            return None
        dynamic = {n for n, (_, shape) in network.graph["inputs"].items() if -1 in shape}
        ranges = config.profiles[0].ranges if config.profiles else {}
        if not dynamic | set(network.graph.get("host", ())) <= set(ranges):
            self.logger.log(ILogger.ERROR, "no optimization profile has been defined")
            return None
        if not strong and not set(network.graph.get("quantized", ())) <= set(flags):
            self.logger.log(ILogger.ERROR, "a quantized network without the flag")
            return None
        if "says" in network.graph:
            self.logger.log(ILogger.ERROR, network.graph["says"])
            return None
        if "STANDIN_BUILDS" in os.environ:
            with open(os.environ["STANDIN_BUILDS"], "a") as stream:  # noqa: PTH123 - as an image's own code may
                stream.write("built\n")
        level = getattr(config, "builder_optimization_level", None)
        words = [*flags, *(["strong"] if strong else []), f"level={level}"]
        words += [f"{layer.type.name}=FLOAT" for layer in network.layers if layer.kept]
        words += [f"{tensor.name}:{tensor.dtype.name}" for tensor in network.marked]
        detailed = config.profiling_verbosity is ProfilingVerbosity.DETAILED
        name = " ".join(words) if detailed else "hidden"
        return IHostMemory(json.dumps({**network.graph, "layer": name, "ranges": ranges}).encode())


def _note_builder() -> None:
    path, wrong = os.environ.get("STANDIN_BUILDERS"), os.environ.get("STANDIN_BUILDER")
    if path is None:
        return
    with open(path, "a+") as stream:  # noqa: PTH123 - as an image's own code may
        stream.write(f"{os.getpid()}\n")
        stream.seek(0)
        first = len(stream.readlines()) == 1
    if first and wrong == "crashes":
        os.abort()
    if first and wrong == "hangs":
        time.sleep(600)


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: IHostMemory) -> ICudaEngine | None:
        graph = json.loads(plan)
        return None if graph.get("undeserializable") else ICudaEngine(graph, self.logger)


class ICudaEngine:
    major = MAJOR

    def __init__(self, graph: dict[str, Any], logger: ILogger) -> None:
        self.graph, self.logger = graph, logger
        self.tensors = {**graph["inputs"], **graph["outputs"]}

    num_io_tensors = property(lambda self: len(self.tensors))

    def get_tensor_name(self, index: int) -> str:
        return str(list(self.tensors)[index])

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.graph["inputs"] else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[_TYPES[self.tensors[name][0]]]

    def get_tensor_shape(self, name: str) -> list[int]:
        return list(self.tensors[name][1])

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[list[int]]:
        assert profile == 0
        return list(self.graph["ranges"][name])

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if name in self.graph.get("host", ()) else TensorLocation.DEVICE

    if MAJOR < 11:
        device_memory_size = 4096
    if (MAJOR, MINOR) >= (10, 1):
        device_memory_size_v2 = 8192

    def complain(self, text: str) -> None:
        self.logger.log(ILogger.ERROR, text)

    def create_execution_context(self) -> Any:
        if "context_says" in self.graph:
            self.logger.log(ILogger.ERROR, self.graph["context_says"])
            return None
        return IExecutionContext(self)

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self)


class EngineInspector:
    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine

    def get_engine_information(self, kind: LayerInformationFormat) -> str:
        """Return layers as objects, or "brief" only their names, as an engine without details does."""
        assert kind is LayerInformationFormat.JSON
        name = self.engine.graph["layer"]
        return json.dumps({"Layers": [name if "brief" in self.engine.graph else {"Name": name}]})
