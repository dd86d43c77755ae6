import tensorrt as trt
def f(:
    pass
