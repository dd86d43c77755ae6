"""What is handed in from outside, with nothing to tell what it is."""
import tensorrt as trt
from otherlib import load_engine


def describe(engine):
    return engine.num_bindings  # expect: removed ICudaEngine.num_bindings


def infer(ctx, bindings, stream):
    ctx.execute_async_v2(bindings, stream)  # expect: removed IExecutionContext.execute_async_v2


class Holder:
    def __init__(self, options, network):
        self.options, self.network = options, network

    def size(self): return self.options.max_batch_size

    def layer(self, x, w):
        return self.network.add_fully_connected(x, 1, w)  # expect: removed INetworkDefinition.add_fully_connected

    def free(self, memory): memory.free()


def given(trt):
    return trt.BuilderFlag.STRICT_TYPES  # expect: removed BuilderFlag.STRICT_TYPES


def elsewhere():
    with load_engine("y") as context:
        context.set_binding_shape(0, (1,))  # expect: removed IExecutionContext.set_binding_shape
    return load_engine("x").num_bindings  # expect: removed ICudaEngine.num_bindings
