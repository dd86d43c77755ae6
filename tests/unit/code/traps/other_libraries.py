"""Other libraries with the same names; TensorRT is imported, too."""
import onnxruntime as ort
import openvino as ov
import tensorrt as trt
from otherlib import Engine, load_engine

session = ort.InferenceSession("model.onnx")
print(session.num_bindings, session.get_binding_shape(0))
engine = load_engine("x")
print(engine.num_bindings, engine.max_batch_size)
other = Engine()
other.build_engine(None, None)
core = ov.Core()
core.max_workspace_size = 1
for request in core.requests():
    request.execute_async_v2([], 0)
binding = session.io_binding()
binding.get_binding_name(0)
with load_engine("y") as context:
    context.set_binding_shape(0, (1,))
print(trt.__version__)
