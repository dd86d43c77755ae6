"""A stand-in for TensorRT's Python bindings with NumPy inside: no TensorRT runs without a GPU.

It has the part of the interface that the probe uses, as the release named in STANDIN_TENSORRT has it
(test_surface.py compares that with NVIDIA's own bindings), and refuses what that release refuses.
A graph is a JSON text: {"inputs": {name: [dtype, shape]}, "outputs": ..., "says": an error message,
"layers": [{"type": "SOFTMAX", "output": name}, ...]}; each name of "plugins" wants them registered.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import time
from typing import Any

import numpy as np

__version__ = os.environ.get("STANDIN_TENSORRT", "10.7.0")
MAJOR, MINOR = (int(part) for part in __version__.split(".")[:2])


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


class NetworkDefinitionCreationFlag(enum.IntEnum):
    if MAJOR < 11:
        EXPLICIT_BATCH = 0
    if MAJOR < 9:
        EXPLICIT_PRECISION = 1
    else:
        STRONGLY_TYPED = 0 if MAJOR > 10 else 1


class BuilderFlag(enum.IntEnum):
    if MAJOR < 11:
        FP16, OBEY_PRECISION_CONSTRAINTS = 0, 12
    TF32 = 7


MemoryPoolType = enum.Enum("MemoryPoolType", "WORKSPACE")
ProfilingVerbosity = enum.Enum("ProfilingVerbosity", "LAYER_NAMES_ONLY NONE DETAILED")
LayerInformationFormat = enum.Enum("LayerInformationFormat", "ONELINE JSON")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")


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


_TYPES = {"float32": "FLOAT", "float16": "HALF", "int64": "INT64", "bfloat16": "BF16"}


class INetworkDefinition:
    def __init__(self, logger: ILogger, flags: int) -> None:
        self.logger, self.graph = logger, {}  # type: ILogger, dict[str, Any]
        self.flags = {flag.name for flag in NetworkDefinitionCreationFlag if flags >> flag & 1}
        if flags >> 2:
            raise ValueError(f"unknown flags: {flags}")
        self.layers: list[ILayer] = []
        self.marked: list[ITensor] = []

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def get_layer(self, index: int) -> ILayer:
        return self.layers[index]

    def mark_output(self, tensor: ITensor) -> None:
        self.marked.append(tensor)


class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        self.network, self.errors = network, []  # type: INetworkDefinition, list[str]
        assert logger.ready, "ILogger.__init__ was not called"

    def parse(self, model: bytes) -> bool:
        if MAJOR < 10 and "EXPLICIT_BATCH" not in self.network.flags:
            self.errors.append("This version of the ONNX parser only supports networks with explicit batch")
        try:
            self.network.graph = json.loads(model)
        except ValueError as error:
            self.errors.append(f"no graph: {error}")
        if self.network.graph.get("plugins") and not _REGISTERED:
            self.errors.append("Plugin not found")
        kinds = self.network.graph.get("layers", [])
        self.network.layers = [ILayer(layer["type"], layer["output"]) for layer in kinds]
        return not self.errors

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    def get_error(self, index: int) -> str:
        return self.errors[index]


class IBuilderConfig:
    __slots__ = ("flags", "pools", "profiling_verbosity") + (
        ("builder_optimization_level",) if (MAJOR, MINOR) >= (8, 6) else ()
    )

    def __init__(self) -> None:
        self.flags, self.pools = {BuilderFlag["TF32"]}, {}  # type: set[Any], dict[MemoryPoolType, int]
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        if (MAJOR, MINOR) >= (8, 6):
            self.builder_optimization_level = 3

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.pools[pool] = size

    def set_flag(self, flag: Any) -> None:
        self.flags.add(BuilderFlag(flag))

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(BuilderFlag(flag))


class IHostMemory(bytes):
    @property
    def nbytes(self) -> int:
        return len(self)


class Builder:
    """STANDIN_BUILDERS: a file that gets a line for each; STANDIN_BUILDER: how the first goes wrong."""

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger
        _note_builder()
        self.used = []  # type: list[IBuilderConfig]

    def create_network(self, flags: int) -> INetworkDefinition:
        return INetworkDefinition(self.logger, flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        assert not any(config is other for other in self.used), "a config keeps its timing cache"
        self.used.append(config)
        strong = MAJOR > 10 or "STRONGLY_TYPED" in network.flags
        flags = sorted(flag.name for flag in config.flags)
        if "warns" in network.graph:
            self.logger.log(ILogger.WARNING, network.graph["warns"])
        if strong and "FP16" in flags:
            self.logger.log(ILogger.ERROR, "!config.getFlag(kFP16) in a strongly typed network")
            return None
        if "says" in network.graph:
            self.logger.log(ILogger.ERROR, network.graph["says"])
            return None
        level = getattr(config, "builder_optimization_level", None)
        words = [*flags, *(["strong"] if strong else []), f"level={level}"]
        words += [f"{layer.type.name}=FLOAT" for layer in network.layers if layer.kept]
        words += [f"{tensor.name}:{tensor.dtype.name}" for tensor in network.marked]
        detailed = config.profiling_verbosity is ProfilingVerbosity.DETAILED
        name = " ".join(words) if detailed else "hidden"
        return IHostMemory(json.dumps({**network.graph, "layer": name}).encode())


def _note_builder() -> None:
    path = os.environ.get("STANDIN_BUILDERS")
    if path is None:
        return
    with open(path, "a+") as stream:  # noqa: PTH123 - as an image's own code may
        stream.write(f"{os.getpid()}\n")
        stream.seek(0)
        first = len(stream.readlines()) == 1
    if first and os.environ.get("STANDIN_BUILDER") == "crashes":
        os.abort()
    if first and os.environ.get("STANDIN_BUILDER") == "hangs":
        time.sleep(600)
    if os.environ.get("STANDIN_BUILDER") == "raises":
        raise RuntimeError("no Builder")


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: IHostMemory) -> ICudaEngine | None:
        graph = json.loads(plan)
        return None if graph.get("undeserializable") else ICudaEngine(graph, self.logger)


class ICudaEngine:
    def __init__(self, graph: dict[str, Any], logger: ILogger) -> None:
        self.graph, self.logger = graph, logger
        self.tensors = {**graph["inputs"], **graph["outputs"]}

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    def get_tensor_name(self, index: int) -> str:
        return str(list(self.tensors)[index])

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.graph["inputs"] else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[_TYPES[self.tensors[name][0]]]

    def create_execution_context(self) -> IExecutionContext | None:
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


class IExecutionContext:
    """Every output is the ReLU of the first input, computed when the run is enqueued."""

    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self.addresses = {}  # type: dict[str, int]
        self.shapes = {name: list(shape) for name, (_, shape) in engine.tensors.items()}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name in self.engine.graph["inputs"]
        return list(shape) == self.shapes[name]

    def get_tensor_shape(self, name: str) -> list[int]:
        return self.shapes[name]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream >> 56 == 0x7F, "no stream of the stand-in driver"
        if "run_says" in self.engine.graph:
            self.engine.logger.log(ILogger.ERROR, self.engine.graph["run_says"])
            return False
        x = self._array(next(iter(self.engine.graph["inputs"])))
        for name in self.engine.graph["outputs"]:
            y = self._array(name)
            y[...] = np.maximum(x, 0).astype(y.dtype)
        return True

    def _array(self, name: str) -> Any:
        """View a tensor's memory, which is the host's."""
        dtype = np.dtype(self.engine.tensors[name][0])
        size = int(np.prod(self.shapes[name], dtype=np.int64)) * dtype.itemsize
        block = (ctypes.c_uint8 * size).from_address(self.addresses[name])
        return np.frombuffer(block, dtype).reshape(self.shapes[name])
