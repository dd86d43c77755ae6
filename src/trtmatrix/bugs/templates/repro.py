"""Builds model.onnx, runs it on inputs.npz, compares its outputs with reference.npz, computed in float64.

Needs NumPy and TensorRT 8.5 to 11, or ONNX Runtime (--onnxruntime). Exit code, as git bisect run wants it:
1 the failure came back, 0 it did not, 125 cannot be said (no module, no GPU, between right and wrong)."""

import argparse
import subprocess
import sys
from ctypes import CDLL, byref, c_byte, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

np: Any = __import__("numpy") if "--child" in sys.argv else None  # what is missing ends the child alone
# What differs from archive to archive:
RECORDED: Dict[str, Any] = {}  # what was seen, and where
FLAGS = ["TF32"]  # trt.BuilderFlag: TF32 where it is allowed, FP16, INT8
TYPED = False  # the graph itself is in float16: strongly typed from TensorRT 9 on, of FLAGS with TF32 alone
LEVEL: Optional[int] = None  # builder optimization level
PROFILE: Dict[str, List[Tuple[int, ...]]] = {}  # input: least, best, most of shape (or of values)
LIMITS: Dict[str, Tuple[float, float]] = {}  # output (defect in output): right up to, wrong from
TOLERANCE: Optional[Tuple[float, float]] = None  # atol, rtol: instead the largest |y - r| / (atol + rtol |r|)
BUG_IS: List[str] = []  # build failed, crashed, time-out: which of these is the failure
BUILDS, SECONDS = 1, 300.0  # engines that are built and run one after another, seconds for each

MODEL = Path(__file__).resolve().with_name("model.onnx")
TYPES = {"FLOAT": "f4", "HALF": "f2", "INT8": "i1", "UINT8": "u1", "INT32": "i4", "INT64": "i8", "BOOL": "?"}


def tensorrt_engine() -> Any:
    trt = __import__("tensorrt")
    logger, kinds = trt.Logger(trt.Logger.WARNING), trt.NetworkDefinitionCreationFlag
    trt.init_libnvinfer_plugins(logger, "")
    builder, runtime = trt.Builder(logger), trt.Runtime(logger)
    strong = TYPED and hasattr(kinds, "STRONGLY_TYPED")
    wanted = ["EXPLICIT_BATCH"] * hasattr(kinds, "EXPLICIT_BATCH") + ["STRONGLY_TYPED"] * strong
    network = builder.create_network(sum(1 << int(getattr(kinds, name)) for name in wanted))
    config, parser = builder.create_builder_config(), trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(MODEL)):
        sys.exit(f"build failed: {[str(parser.get_error(i)) for i in range(parser.num_errors)]}")
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 4 << 30)
    config.clear_flag(trt.BuilderFlag.TF32)
    for flag in [flag for flag in FLAGS if flag == "TF32" or not strong]:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if LEVEL is not None and hasattr(config, "builder_optimization_level"):  # from 8.6 on
        config.builder_optimization_level = LEVEL
    if PROFILE:
        profile = builder.create_optimization_profile()
        for x in filter(lambda x: x.name in PROFILE, map(network.get_input, range(network.num_inputs))):
            (profile.set_shape_input if x.is_shape_tensor else profile.set_shape)(x.name, *PROFILE[x.name])
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    engine = sys.exit("build failed") if plan is None else runtime.deserialize_cuda_engine(plan)

    def run(feeds: Dict[str, Any], _: Any = (runtime, builder, logger)) -> Dict[str, Any]:  # these live on
        cuda, own = CDLL("libcuda.so.1"), c_void_p()
        failed = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(byref(own), 0) or cuda.cuCtxSetCurrent(own)
        context, arrays = engine.create_execution_context(), {}
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        for name in sorted(names, key=lambda name: name not in feeds):  # outputs last: their shapes follow
            if name in feeds:
                context.set_input_shape(name, feeds[name].shape)
            shape, dtype = tuple(context.get_tensor_shape(name)), TYPES[engine.get_tensor_dtype(name).name]
            size, memory = int(np.dtype(dtype).itemsize * np.prod(shape)), c_uint64()
            if failed or cuda.cuMemAllocManaged(byref(memory), c_size_t(size or 1), 1):
                sys.exit("no GPU, or out of memory")
            block = (c_byte * size).from_address(memory.value)  # host and GPU see it
            arrays[name] = np.frombuffer(block, dtype).reshape(shape)
            arrays[name][...] = feeds.get(name, 0)
            context.set_tensor_address(name, memory.value)
        if not all(context.execute_async_v3(0) for _ in range(2)) or cuda.cuCtxSynchronize():
            sys.exit("crashed: it cannot be run")
        return arrays

    return run


def onnxruntime_engine() -> Any:
    ort = __import__("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    return lambda feeds: dict(zip([x.name for x in session.get_outputs()], session.run(None, feeds)))


def judge(outputs: Dict[str, Any], reference: Dict[str, Any]) -> None:
    for key, (right, wrong) in LIMITS.items():
        defect, _, name = key.rpartition(" in ")
        y, r = outputs[name].astype("f8"), reference[name].astype("f8")
        if y.shape != r.shape:
            print(f"{key}: wrong shape: {y.shape} instead of {r.shape}: WRONG")
            continue
        look = np.isfinite(r) | (np.isinf(r) & (y != r))  # an infinity is met by the same alone
        e, d, r = (y - r)[look], reference[key][look].astype("f8"), r[look]
        off = abs(e @ d) / (d @ d) if defect else np.linalg.norm(e) / (np.linalg.norm(r) or 1e-300)
        if TOLERANCE:
            off = (abs(e) / (TOLERANCE[0] + TOLERANCE[1] * abs(r))).max(initial=0)
        word = "right" if off <= right else "unclear" if off < wrong else "WRONG"  # NaN is WRONG
        print(f"{key}: {off:.6g}, right up to {right:.3g}, wrong from {wrong:.3g}: {word}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--onnxruntime", action="store_true", help="ONNX Runtime on the CPU, not TensorRT")
    parser.add_argument("--builds", type=int, default=BUILDS, help="so many engines, one after another")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        inputs, reference = (dict(np.load(MODEL.with_name(name))) for name in ("inputs.npz", "reference.npz"))
        for _ in range(args.builds):
            run = onnxruntime_engine() if args.onnxruntime else tensorrt_engine()
            judge(run(inputs), reference)
    else:
        command = ["timeout", str(SECONDS * args.builds), sys.executable, __file__, "--child", *sys.argv[1:]]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, code = "\n" + done.stdout.decode("utf-8", "replace"), done.returncode
        print(f"{said}recorded: {RECORDED}")
        ends = {"time-out": code == 124, "crashed": code < 0 or code > 128 or "\ncrashed" in said}
        ends["build failed"] = "\nbuild failed" in said and "outofmemory" not in said.lower().replace(" ", "")
        bug = ": WRONG\n" in said or any(ends[end] for end in BUG_IS)
        sys.exit(1 if bug else 125 if code or ": unclear\n" in said else 0)
