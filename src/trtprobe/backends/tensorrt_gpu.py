"""TensorRT 8.5 to 11 and TensorRT-RTX: parse, build and, with a GPU, run.

API per release: https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/python-api/.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from trtprobe import ends
from trtprobe.backends.base import Backend, BuildOptions, Engine, Range
from trtprobe.backends.gpu_engine import GpuEngine
from trtprobe.backends.refusals import parser_end, read_errors
from trtprobe.cuda import Cuda
from trtprobe.observe import loaded_libraries
from trtprobe.onnxfile import Model
from trtprobe.plans import Plans

WORKSPACE = 4 << 30
"""Bytes of scratch memory that a builder may use."""

LIBRARY = r"^libnvinfer\.so"
"""The core library's file name."""


class TensorRtBackend(Backend):
    """TensorRT in this process. The first Builder is kept: it costs seconds, later ones nothing.

    Builds share no timing cache: each has a fresh config with none set, and for such a config TensorRT makes
    one of its own and destroys it after the build
    (https://docs.nvidia.com/deeplearning/tensorrt/latest/performance/builder-performance.html).
    """

    module = "tensorrt"
    has_streams = True
    last_weak = 10
    """The last major release whose builder may choose types; a strongly typed network has its graph's."""

    def __init__(self) -> None:
        """Import the bindings; ``ComponentMissing`` where they are not there."""
        super().__init__()
        try:
            self.trt = importlib.import_module(self.module)
        except (ImportError, OSError) as error:  # OSError: a wheel that loads its libraries by path
            raise ends.ComponentMissing("%s cannot be imported: %s" % (self.module, error)) from error
        self.major = int(self.trt.__version__.split(".")[0])
        self.messages: List[str] = []
        self.logger = _make_logger(self.trt, self.messages)
        self._cuda: Optional[Cuda] = None
        self._builder: Any = None
        self._runtime: Any = None
        self._version = ""
        self._plugins = self._plugins_before = False

    def warm_up(self) -> None:
        """Make the Builder."""
        self.builder  # noqa: B018 - it is made on first use

    def begin(self, plans: Plans) -> None:
        """Start a cell; plugins that an earlier one has registered stay registered, and are remembered."""
        super().begin(plans)
        self.messages.clear()
        self._plugins_before = self._plugins

    def trouble(self) -> str:
        """Return what the context says when it is asked to finish its work: its errors stay with it."""
        try:
            if self._cuda is not None:
                self._cuda.synchronize()
        except (ends.CellEnd, RuntimeError) as error:
            return str(error)
        return ""

    @property
    def cuda(self) -> Cuda:
        """The CUDA driver, opened on first use."""
        if self._cuda is None:
            self._cuda = Cuda()
        if "gpu" not in self.facts:
            self.facts.update(self._cuda.facts())
        return self._cuda

    @property
    def builder(self) -> Any:
        """The process's one Builder; the driver is opened first: a missing one is told from its failing."""
        self._before_builder()
        if self._builder is None:
            started = time.perf_counter()
            self._builder = self.trt.Builder(self.logger)
            self.builder_seconds = self.facts["builder_seconds"] = time.perf_counter() - started
        return self._builder

    def _before_builder(self) -> None:
        cuda = self.cuda
        if self._builder is None:
            cuda.synchronize()

    def observed(self) -> Dict[str, Any]:
        """Return the library's version (from the library itself) and the bindings'."""
        bindings = self.trt.__version__
        self._version = self._version or _library_version(LIBRARY) or bindings
        return {"library": self._version, "bindings": bindings}

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        """Parse and build, or take the plan that another cell has built; see :meth:`Backend.build`."""
        self.messages.clear()
        if options.plugins:
            self._register_plugins()
        elif self._plugins_before:
            raise ends.Elsewhere("an earlier cell has registered plugins, and this one asks for none")
        if options.level is not None and not hasattr(self.trt.IBuilderConfig, "builder_optimization_level"):
            self.facts["level_ignored"] = options.level
        given = Model(model)
        name = self.plans.name_next(given.key(), tuple(options))
        found = self.plans.find(name)
        if found is not None:
            self._note_engine(name, **found[1])
            return self._engine(found[0])
        plan, seconds = self._build_plan(given, options)
        facts: Dict[str, Any] = {"build_seconds": seconds, "engine_bytes": int(plan.nbytes)}
        self._note_engine(name, **facts)
        self.plans.keep(name, memoryview(plan), facts)
        return self._engine(plan)

    def _build_plan(self, given: Model, options: BuildOptions) -> Tuple[Any, float]:
        """Parse and build; returns the plan, and the seconds that building took."""
        network, parser = self._parse(given, self._network_flags(options.precision))
        config = self.builder.create_builder_config()
        self._configure(config, options)
        if options.keep_fp32:
            self._constrain(network, config, options.keep_fp32)
        _add_profile(self.builder, network, config, options.profile)
        is_half = options.precision == "fp16-flag"
        _mark_outputs(network, options.outputs, self.trt.float16 if is_half else None)
        started = time.perf_counter()
        plan = self.builder.build_serialized_network(network, config)
        seconds = time.perf_counter() - started
        del parser  # weights that it has read from files belong to it, and the network uses them
        if plan is None:
            raise self.failure("the builder returned no engine")
        return plan, seconds

    def _note_engine(self, name: str, build_seconds: float, engine_bytes: int, shared_with: str = "") -> None:
        """Tell of an engine: what it took, and of which cell it is where it was not built for this one.

        ``build_seconds`` outside of ``engines`` is the last engine's, and only where this cell built it.
        """
        told: Dict[str, Any] = {"name": name, "build_seconds": build_seconds}
        self.facts.setdefault("engines", []).append(told)
        self.facts.update(engine_bytes=engine_bytes, build_seconds=build_seconds)
        if shared_with:
            told["shared_with"] = shared_with
            del self.facts["build_seconds"]

    def _engine(self, plan: Any) -> Engine:
        if self._runtime is None:
            self._runtime = self.trt.Runtime(self.logger)
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise self.failure("the engine cannot be deserialized")
        layers, tactics = _layers(self.trt, engine)
        self.facts.update(layers=layers, tactics=tactics)
        return GpuEngine(self, engine, layers + tactics)

    def _network_flags(self, precision: str) -> int:
        """Return create_network's flags: explicit batch below 10, strong types from 9 for fp16."""
        flags, names = 0, self.trt.NetworkDefinitionCreationFlag
        if self.major < 10:
            flags |= 1 << int(names.EXPLICIT_BATCH)
        if precision == "fp16" and hasattr(names, "STRONGLY_TYPED"):
            flags |= 1 << int(names.STRONGLY_TYPED)
        return flags

    def _parse(self, model: Model, flags: int) -> Tuple[Any, Any]:
        """Return the network, and the parser: it must live until the network is built."""
        network = self.builder.create_network(flags)
        parser = self.trt.OnnxParser(network, self.logger)
        if model.must_stay_a_file:
            parsed = parser.parse_from_file(str(model.path))
        else:
            parsed = parser.parse(model.path.read_bytes())
        if not parsed:
            errors = read_errors(parser, model.onnx, self.messages)
            raise parser_end(self.observed()["library"], model.onnx, errors)
        return network, parser

    def _configure(self, config: Any, options: BuildOptions) -> None:
        """Set precision explicitly (TF32 is on by default), workspace, level and verbosity."""
        trt, precision = self.trt, options.precision
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE)
        if precision == "fp32":
            config.clear_flag(trt.BuilderFlag.TF32)
        else:
            config.set_flag(trt.BuilderFlag.TF32)
        is_strong = precision == "fp16" and hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
        if precision.startswith("fp16") and not is_strong:
            if not hasattr(trt.BuilderFlag, "FP16"):
                raise ends.Unsupported("networks are strongly typed here: there is no FP16 flag")
            config.set_flag(trt.BuilderFlag.FP16)
        if self.major <= self.last_weak and not is_strong:
            for word in options.quantized:  # what the graph's QuantizeLinear nodes round to
                flag = getattr(trt.BuilderFlag, word.upper(), None)
                if flag is None:
                    text = "%s cannot run a graph quantized to %s: it has no such flag"
                    raise ends.Unsupported(text % (self.observed()["library"], word.upper()))
                config.set_flag(flag)
        if options.level is not None and hasattr(config, "builder_optimization_level"):
            config.builder_optimization_level = options.level
        if hasattr(trt, "ProfilingVerbosity"):
            config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    def _register_plugins(self) -> None:
        """Make NVIDIA's plugins known to the parser; a second time does nothing."""
        self._plugins, self._plugins_before = True, False
        if not self.trt.init_libnvinfer_plugins(self.logger, ""):
            raise ends.ComponentMissing("the plugin library cannot be initialised")

    def _constrain(self, network: Any, config: Any, operators: Sequence[str]) -> None:
        """Oblige the builder to keep the layers of some operators in float32."""
        if not hasattr(self.trt.BuilderFlag, "OBEY_PRECISION_CONSTRAINTS"):
            raise ends.Unsupported("networks are strongly typed here: there are no precision constraints")
        config.set_flag(self.trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        kinds = {operator.upper() for operator in operators}
        for layer in map(network.get_layer, range(network.num_layers)):
            kind = layer.type
            if kind.name in kinds:
                layer.precision = self.trt.float32
                layer.set_output_type(0, self.trt.float32)

    def failure(self, what: str, kind: Type[ends.CellEnd] = ends.BuildFailed) -> ends.CellEnd:
        """Return the right end for a failure, from the product's own messages."""
        text = "%s: %s" % (what, " | ".join(self.messages[-6:]) or "no message")
        if re.search(r"out of memory|OutOfMemory|OUT_OF_MEMORY", text, re.IGNORECASE):
            return ends.OutOfGpuMemory(text[:2000])
        return kind(text[:2000])


class RtxBackend(TensorRtBackend):
    """TensorRT-RTX: strongly typed only; parses and builds without a GPU, and is not run."""

    module = "tensorrt_rtx_bindings"
    has_streams = False
    last_weak = 0

    def _before_builder(self) -> None:
        """Need no driver."""

    def observed(self) -> Dict[str, Any]:
        """Return the bindings' version: the library's own function counts from TensorRT's 10."""
        return {"library": self.trt.__version__, "bindings": self.trt.__version__}

    def _register_plugins(self) -> None:
        raise ends.Unsupported("TensorRT-RTX lacks NVIDIA's plugin library")

    def _constrain(self, network: Any, config: Any, operators: Sequence[str]) -> None:
        del network, config, operators
        raise ends.Unsupported("TensorRT-RTX networks are strongly typed: no precision constraints")

    def _network_flags(self, precision: str) -> int:
        """Return no flags: networks are strongly typed by default."""
        del precision
        return 0

    def _configure(self, config: Any, options: BuildOptions) -> None:
        """Refuse what only a weakly typed network has."""
        if options.precision == "fp16-flag":
            raise ends.Unsupported("TensorRT-RTX networks are strongly typed: there is no FP16 flag")
        if options.precision == "fp16":
            options = options._replace(precision="tf32")
        super()._configure(config, options)

    def _engine(self, plan: Any) -> Engine:
        """End the cell: an engine was built, and this host cannot run it."""
        del plan
        raise ends.BuiltOnly("parsed and built, %d bytes; not run" % self.facts["engine_bytes"])


def _make_logger(trt: Any, messages: List[str]) -> Any:
    """Return a logger that prints warnings and keeps errors."""

    class Logger(trt.ILogger):  # type: ignore[misc]  # the module is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if int(severity) <= int(trt.ILogger.WARNING):
                print("[%s] %s" % (str(severity).rsplit(".", 1)[-1], text), flush=True)
            if int(severity) <= int(trt.ILogger.ERROR):
                messages.append(text)

    return Logger()


def _add_profile(builder: Any, network: Any, config: Any, ranges: Tuple[Tuple[str, Range], ...]) -> None:
    """Give the builder the range of each dynamic input; ``BuildFailed`` where one has none, or is refused."""
    inputs, asked = list(map(network.get_input, range(network.num_inputs))), dict(ranges)
    wanting = [t for t in inputs if t.is_shape_tensor or any(int(size) < 0 for size in t.shape)]
    lacking = ["%s %s" % (t.name, list(t.shape)) for t in wanting if t.name not in asked]
    if lacking:
        raise ends.BuildFailed("dynamic inputs without shapes in the profile: %s" % ", ".join(lacking))
    if not wanting:
        return
    profile = builder.create_optimization_profile()
    for tensor in wanting:
        name, shapes = tensor.name, asked[tensor.name]
        try:
            if tensor.is_shape_tensor:
                profile.set_shape_input(name, *map(list, shapes))
            else:
                profile.set_shape(name, *shapes)
        except (ValueError, RuntimeError, TypeError) as error:
            raise ends.BuildFailed("the profile of %s is refused: %s" % (name, error)) from error
    if config.add_optimization_profile(profile) < 0:
        words = ["%s %s" % (t.name, " to ".join(map(str, asked[t.name]))) for t in wanting]
        raise ends.BuildFailed("the optimization profile is refused: %s" % ", ".join(words))


def _mark_outputs(network: Any, names: Sequence[str], dtype: Any) -> None:
    """Make inner tensors outputs of the network; ``BuildFailed`` where it has none of that name."""
    layers = map(network.get_layer, range(network.num_layers)) if names else ()
    tensors = {t.name: t for layer in layers for t in map(layer.get_output, range(layer.num_outputs))}
    for name in names:
        if name not in tensors:
            raise ends.BuildFailed("the network has no tensor %s that could be an output" % name)
        network.mark_output(tensors[name])
        if dtype is not None:
            tensors[name].dtype = dtype


def _layers(trt: Any, engine: Any) -> Tuple[List[str], List[str]]:
    """Return the names of the engine's layers and tactics, as its inspector tells them."""
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError):
        return [], []
    names = [str(x.get("Name", x)) if isinstance(x, dict) else str(x) for x in layers]
    tactics = {str(x["TacticName"]) for x in layers if isinstance(x, dict) and x.get("TacticName")}
    return names, sorted(tactics)


def _library_version(pattern: str) -> Optional[str]:
    """Return the four-part version of the loaded library, from its own functions or its file name.

    getInferLibVersion packs it as major·10000 + minor·100 + patch from 10, and as
    major·1000 + minor·100 + patch before; getInferLibBuildVersion (from 10) is the fourth part.
    """
    for path in loaded_libraries(pattern):
        try:
            library = ctypes.CDLL(path)
            number = int(library.getInferLibVersion())
        except (OSError, AttributeError):
            continue
        unit = 10000 if number >= 100000 else 1000
        parts = [number // unit, number % unit // 100, number % 100]
        try:
            parts.append(int(library.getInferLibBuildVersion()))
        except AttributeError:
            named = re.search(r"\.so\.(\d+\.\d+\.\d+\.\d+)$", path)
            if named:
                return named.group(1)
        return ".".join(str(part) for part in parts)
    return None
