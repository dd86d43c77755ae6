import tensorrt as trt

engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b"")
count = getattr(engine, "num_bindings")  # expect: removed ICudaEngine.num_bindings
perhaps = getattr(engine, "max_batch_size", 1)  # possible: removed ICudaEngine.max_batch_size
flag = getattr(trt.BuilderFlag, "STRICT_TYPES")  # expect: removed BuilderFlag.STRICT_TYPES
config = trt.Builder(trt.Logger()).create_builder_config()
setattr(config, "max_workspace_size", 1 << 30)  # expect: removed IBuilderConfig.max_workspace_size
mode = trt.SampleMode["DEFAULT"]  # expect: removed SampleMode.DEFAULT
if hasattr(engine, "num_bindings"):  # possible: removed ICudaEngine.num_bindings
    count = engine.num_bindings  # possible: removed ICudaEngine.num_bindings
else:
    count = engine.num_io_tensors
if hasattr(engine, "num_io_tensors"):
    names = [engine.get_tensor_name(i) for i in range(count)]
else:
    names = [engine.get_binding_name(i) for i in range(count)]  # possible: removed ICudaEngine.get_binding_name
try:
    shape = engine.get_binding_shape(0)  # possible: removed ICudaEngine.get_binding_shape
except AttributeError:
    shape = engine.get_tensor_shape(names[0])
short = hasattr(engine, "max_batch_size") and engine.max_batch_size  # possible: removed ICudaEngine.max_batch_size
