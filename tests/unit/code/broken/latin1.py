import tensorrt as trt
x = "\xe9"
# café
