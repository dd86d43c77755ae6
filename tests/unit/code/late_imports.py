"""Bindings that are imported late, by name, or perhaps not at all."""
import importlib

try:
    import tensorrt_bindings as bindings
except ImportError:
    bindings = None

trt = importlib.import_module("tensorrt")
again = __import__("tensorrt")


def lazy(package):
    return importlib.import_module(package)


def inside():
    import tensorrt
    runtime = tensorrt.Runtime(tensorrt.Logger())
    engine = runtime.deserialize_cuda_engine(b"")
    return engine.get_binding_shape(0)  # expect: removed ICudaEngine.get_binding_shape


def by_rebinding():
    t = trt
    builder = t.Builder(t.Logger())
    return builder.build_engine  # expect: removed Builder.build_engine


if bindings is not None:
    size = bindings.Builder(bindings.Logger()).max_batch_size  # expect: removed Builder.max_batch_size
context = again.Runtime(again.Logger()).deserialize_cuda_engine(b"").create_execution_context()
context.execute_async_v2([], 0)  # expect: removed IExecutionContext.execute_async_v2
if (found := again.Runtime(again.Logger())) is not None:
    print(found.deserialize_cuda_engine(b"").max_batch_size)  # expect: removed ICudaEngine.max_batch_size
