import tensorrt as trt
def f(:
    return engine.num_bindings
