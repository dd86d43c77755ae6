"""Code for several versions: what stands behind a test that is false at the target is only possible."""
import tensorrt as trt
from packaging.version import Version

MAJOR = int(trt.__version__.split(".")[0])
IS_TEN = Version(trt.__version__) >= Version("10.0")
engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b"")
context = engine.create_execution_context()

if MAJOR < 10:
    print(engine.num_bindings)  # possible: removed ICudaEngine.num_bindings
else:
    print(engine.num_io_tensors)
if MAJOR >= 7:  # true for both: no guard
    print(engine.max_batch_size)  # expect: removed ICudaEngine.max_batch_size
if trt.__version__ < "8":  # expect: changed version test trt.__version__ < '8'
    context.execute(1, [])  # possible: removed IExecutionContext.execute
if trt.__version__[0] in ("7", "8"):
    context.execute_async(1, [], 0)  # possible: removed IExecutionContext.execute_async
if trt.__version__.startswith("8."):
    context.get_strides(0)  # possible: removed IExecutionContext.get_strides
if tuple(int(part) for part in trt.__version__.split(".")[:2]) >= (10, 0):
    context.execute_async_v3(0)
else:
    context.execute_async_v2([], 0)  # possible: removed IExecutionContext.execute_async_v2


def old_way():
    return engine.get_binding_name(0)  # possible: removed ICudaEngine.get_binding_name


def run():
    if IS_TEN:
        return engine.get_tensor_name(0)
    print(engine.get_binding_index("x"))  # possible: removed ICudaEngine.get_binding_index
    return old_way()


def checked():
    if Version(trt.__version__) < Version("7.0"):
        raise RuntimeError("too old")
    return engine.get_binding_dtype(0)  # expect: removed ICudaEngine.get_binding_dtype


shape = engine.get_binding_shape(0) if not IS_TEN else engine.get_tensor_shape("x")  # possible: removed ICudaEngine.get_binding_shape
