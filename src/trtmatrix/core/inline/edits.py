"""What the script leaves out of the probe: what serves many cells of one process, what a case never asks.

Each cut names the text that it takes out; where the probe has no such text any more, it is refused loudly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtmatrix.core.inline.reach import Symbol
from trtmatrix.core.inline.source import InlineError

CASE_FILES = ("trtmatrix.standalone.casefiles", "CaseFiles")
SWAPS: Mapping[Symbol, Symbol] = {("trtprobe.files", "CaseFiles"): CASE_FILES}
"""What stands in the place of a part of the probe."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A text of a module that goes, and what stands there instead; not where the case says ``unless``."""

    module: str
    old: str
    new: str = ""
    unless: frozenset[str] = frozenset()


_TRT, _GPU = "trtprobe.backends.tensorrt_gpu", "trtprobe.backends.gpu_engine"
_ORT, _BASE = "trtprobe.backends.onnxruntime_cpu", "trtprobe.backends.base"

DOCS = {
    "plugins": "the graph has a node that is one of NVIDIA's plugins.",
    "keep_fp32": "operators (such as ``Softmax``) that the FP16 flag must leave in float32.",
    "outputs": "inner tensors that the engine must write too.",
    "profile": "by dynamic input its least, best and largest shape (a shape tensor: values).",
    "quantized": 'what the graph\'s QuantizeLinear nodes round to, "int8" or "fp8".',
}
"""What is told of each argument of a build that a script may lack."""


def _argument(name: str, kind: str, value: str, stored: str = "") -> tuple[Cut, ...]:
    """Return the cuts that take an argument out of a build: of the call, the options and what is told."""
    texts = (
        f"        {name}: {kind},\n", f"            {name}={value},\n", f"    {name}: {stored or kind}\n",
        f"        ``{name}``: {DOCS[name]}\n",
    )  # fmt: skip
    return tuple(Cut(module=_BASE, old=text, unless=frozenset({name})) for text in texts)


CUTS = (
    # plans, memos and plugins that cells of one process share
    Cut(module=_BASE, old='''\
        self.memo: Optional[Path] = None
        """Where ONNX Runtime keeps outputs for cells of the same job with the same bytes."""
        self.plans: Optional[Plans] = None
        """Where TensorRT keeps engine plans for the other processes of the same cell."""
        self.builder_seconds: Optional[float] = None
        """What the process's first Builder cost."""
'''),
    Cut(module=_TRT, old="self.builder_seconds = self.facts", new="self.facts"),
    Cut(module=_TRT, old="        self._plugins = self._plugins_before = False\n"),
    Cut(module=_TRT, old="        self._plugins, self._plugins_before = True, False\n"),
    Cut(module=_TRT, old='''\
        elif self._plugins_before:
            raise ends.Elsewhere("an earlier cell has registered plugins, and this one asks for none")
'''),
    Cut(module=_TRT, old='''\
        given = Model(model)
        place = None if self.plans is None else self.plans.place(given.key(), options)
        if place is not None and place.is_file():
            return self._engine(place.read_bytes())
        network, parser = self._parse(given, self._network_flags(options.precision))
''', new='''\
        network, parser = self._parse(model, self._network_flags(options.precision))
'''),
    Cut(module=_TRT, old='''\
        if place is not None:
            write_plan(place, plan)
'''),
    # the probe looks into the file for what it tells of a refusal; files beside it are named in it
    Cut(module=_TRT, old="model: Model, flags: int)", new="model: Path, flags: int)"),
    Cut(module=_TRT, old='''\
        if model.must_stay_a_file:
            parsed = parser.parse_from_file(str(model.path))
        else:
            parsed = parser.parse(model.path.read_bytes())
        if not parsed:
            errors = read_errors(parser, model.onnx, self.messages)
            raise parser_end(self.observed()["library"], model.onnx, errors)
''', new='''\
        if model.stat().st_size > 64 << 20 or b"location" in model.read_bytes():  # weights in other files
            parsed = parser.parse_from_file(str(model))
        else:
            parsed = parser.parse(model.read_bytes())
        if not parsed:
            raise refused_by_tensorrt(parser)
'''),
    Cut(module=_TRT, old="from trtprobe.backends.refusals import parser_end, read_errors\n",
        new="from trtmatrix.standalone.refusals import refused_by_tensorrt\n"),
    # ONNX Runtime
    Cut(module=_ORT, old='''\
        kept = memo / _digest(self.model, feeds) if memo is not None else None
        if kept is not None and kept.is_dir():
            self.backend.facts["same_bytes_as_an_earlier_cell"] = True
            return {name: np.load(str(kept / ("%d.npy" % i))) for i, name in enumerate(self.names)}
        started = time.perf_counter()
        outputs = self._run(feeds)
        if not self._timed:
            self._timed = True
            self._note_latency(feeds, 1e3 * (time.perf_counter() - started))
        if kept is not None:
            _keep(kept, outputs)
        return dict(zip(self.names, outputs))
''', new='''\
        return dict(zip(self.names, self._run(feeds)))
'''),
    Cut(module=_ORT, old="        memo = self.backend.memo\n"),
    Cut(module=_ORT, old='''\
        """Run the session once on the CPU, or return what the same bytes gave before.

        What did not run here has no latency.
        """
''', new='''\
        """Run the session once on the CPU."""
'''),
    Cut(module=_ORT, old='''\
    """An inference session.

    Cases that differ only in what ONNX Runtime ignores (precision, level) have the same graph and
    inputs byte for byte: within a job their output is computed once, and the record says so.
    """
''', new='''\
    """An inference session."""
'''),
    Cut(module=_ORT, old='''\
    def __init__(self, backend: OnnxRuntimeBackend, session: Any, model: str) -> None:
        """Wrap a session; ``model`` stands for the graph's content where there is a memo."""
        self.backend, self.session, self.model = backend, session, model
        self.names = [output.name for output in session.get_outputs()]
        self._timed = False
''', new='''\
    def __init__(self, session: Any) -> None:
        """Wrap a session."""
        self.session = session
        self.names = [output.name for output in session.get_outputs()]
'''),
    Cut(module=_ORT, old='''\
        return OnnxRuntimeEngine(self, session, given.key() if self.memo is not None else "")
''', new='''\
        return OnnxRuntimeEngine(session)
'''),
    Cut(module=_ORT, old="started, given = time.perf_counter(), Model(model)",
        new="started = time.perf_counter()"),
    Cut(module=_ORT, old="raise onnxruntime_end(self.ort.__version__, given.onnx, str(error)) from error",
        new="raise refused_by_onnxruntime(str(error)) from error"),
    Cut(module=_ORT, old="from trtprobe.backends.refusals import onnxruntime_end\n",
        new="from trtmatrix.standalone.refusals import refused_by_onnxruntime\n"),
    # what is timed beside the run
    Cut(module=_GPU, old='''\
        if not self._has_latency:
            self._has_latency = True
            started = time.perf_counter()
            facts["latency"] = sum_up(self._times(stream, RUNS, SECONDS, warmed=facts["run_ms"] / 1e3))
            facts["latency_seconds"] = time.perf_counter() - started
            size = self._device_memory()
            facts.update({} if size is None else {"device_memory_bytes": size})
'''),
    Cut(module=_GPU, old="        self._has_latency = False\n"),
    Cut(module=_GPU, old='''\
        """Run twice on one stream and keep the second: the first also loads the kernels.

        An engine's first call then times further runs, whose outputs nobody reads.
        """
''', new='''\
        """Run twice on one stream and keep the second: the first also loads the kernels."""
'''),
    # what this case does not ask of a build: an argument that is left out is refused, not ignored
    Cut(module=_BASE, old="    plugins: bool\n", new="    plugins: bool = False\n"),
    Cut(module=_BASE, old='''\
        return self._build(
            model,
            BuildOptions(
                precision, level, plugins, tuple(keep_fp32), tuple(outputs), _ranges(profile or {}),
                _one_of(quantized, QUANTIZED),
            ),
        )  # fmt: skip
''', new='''\
        options = BuildOptions(
            precision=precision,
            level=level,
            plugins=plugins,
            keep_fp32=tuple(keep_fp32),
            outputs=tuple(outputs),
            profile=_ranges(profile or {}),
            quantized=_one_of(quantized, QUANTIZED),
        )
        return self._build(model, options)
'''),
    Cut(module=_BASE, old='''\
        5; None leaves the product's default). ``plugins``: the graph has a node that is one of
        NVIDIA's plugins. ``keep_fp32``: operators (such as ``Softmax``) that the FP16 flag must
        leave in float32. ``outputs``: inner tensors that the engine must write too, so that it
        cannot fuse across them. ``profile``: by dynamic input its least, best and largest shape (or
        values, where the input is a shape tensor). ``quantized``: what the graph's QuantizeLinear
        nodes round to, of :data:`QUANTIZED`; a strongly typed network does so anyway.
''', new='''\
        5; None leaves the product's default).
''' + "".join(f"        ``{name}``: {text}\n" for name, text in DOCS.items())),
    *_argument("plugins", "bool = False", "plugins"),
    *_argument("keep_fp32", "Sequence[str] = ()", "tuple(keep_fp32)", "Tuple[str, ...] = ()"),
    *_argument("outputs", "Sequence[str] = ()", "tuple(outputs)", "Tuple[str, ...] = ()"),
    *_argument("profile", "Optional[Mapping[str, Sequence[Sequence[int]]]] = None", "_ranges(profile or {})",
               "Tuple[Tuple[str, Range], ...] = ()"),
    *_argument("quantized", "Sequence[str] = ()", "_one_of(quantized, QUANTIZED)", "Tuple[str, ...] = ()"),
    Cut(module=_TRT, old='''\
        if options.plugins:
            self._register_plugins()
''', unless=frozenset({"plugins"})),
    Cut(module=_TRT, old='''\
        if options.keep_fp32:
            self._constrain(network, config, options.keep_fp32)
''', unless=frozenset({"keep_fp32"})),
    Cut(module=_TRT, old='''\
        _mark_outputs(
            network, options.outputs, self.trt.float16 if options.precision == "fp16-flag" else None
        )
''', unless=frozenset({"outputs"})),
    Cut(module=_TRT, old='''\
        if self._is_weakly_typed(options.precision):
            for word in options.quantized:
                self._allow(config, word)
''', unless=frozenset({"quantized"})),
    Cut(module=_TRT, old="        add_profile(self.builder, network, config, options.profile)\n",
        unless=frozenset({"profile"})),
    Cut(module=_GPU, old='''\
            if name not in self._growing:
                self._growing[name] = Growing(self.backend.trt, self.backend.cuda)
            if not self.context.set_output_allocator(name, self._growing[name].allocator):
                raise ends.Unsupported("output %s has a shape that depends on the data: no allocator" % name)
''', new='''\
            raise ends.Unsupported("output %s has a shape that depends on the data" % name)
''', unless=frozenset({"profile"})),
    Cut(module=_GPU, old='''\
            for growing in self._growing.values():
                if growing.trouble is not None:
                    raise growing.trouble
''', unless=frozenset({"profile"})),
    Cut(module=_GPU, old='''\
        if name in memory:
            return self.read(name, memory[name])
        growing = self._growing[name]
        y: np.ndarray = np.empty(growing.shape, self.dtype(name))
        if growing.memory is not None and y.size:
            growing.memory.get(y)
        return y
''', new='''\
        return self.read(name, memory[name])
''', unless=frozenset({"profile"})),
    Cut(module=_GPU, old="        self._growing: Dict[str, Growing] = {}\n", unless=frozenset({"profile"})),
    Cut(module=_GPU, old="        self._check_shapes(inputs)\n", unless=frozenset({"profile"})),
)  # fmt: skip


def shorten(sources: Mapping[str, str], words: frozenset[str]) -> dict[str, str]:
    """Return the sources without what the script leaves out. ``words``: what the case asks of a build."""
    found = dict(sources)
    for cut in CUTS:
        if cut.unless & words:
            continue
        if found[cut.module].count(cut.old) != 1:
            raise InlineError(f"{cut.module} has not exactly one of what is to be cut: {cut.old!r}")
        found[cut.module] = found[cut.module].replace(cut.old, cut.new)
    return found
