"""What is handed in from outside, with nothing to tell what it is."""
import tensorrt as trt


def describe(engine):
    return engine.num_bindings  # possible: removed ICudaEngine.num_bindings


def infer(ctx, bindings, stream):
    ctx.execute_async_v2(bindings, stream)  # possible: removed IExecutionContext.execute_async_v2


class Holder:
    def __init__(self, options, network):
        self.options, self.network = options, network

    def size(self):
        return self.options.max_batch_size

    def layer(self, x, w):
        return self.network.add_fully_connected(x, 1, w)  # possible: removed INetworkDefinition.add_fully_connected

    def free(self, memory):
        memory.free()


def version():
    return trt.__version__
