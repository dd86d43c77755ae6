"""Other libraries with the same names; TensorRT is imported, too."""
import onnxruntime as ort
import openvino as ov
import tensorrt as trt
from otherlib import Engine

session = ort.InferenceSession("model.onnx")
print(session.num_bindings, session.get_binding_shape(0))
other = Engine()
other.build_engine(None, None)
core = ov.Core()
core.max_workspace_size = 1
for request in core.requests():
    request.execute_async_v2([], 0)
binding = session.io_binding()
binding.get_binding_name(0)
print(trt.__version__)
