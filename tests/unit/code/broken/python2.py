import tensorrt as trt
print trt.__version__
engine.num_bindings
