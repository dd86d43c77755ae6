"""A file of another runtime, though it looks like it."""
from engines import load


def infer(engine, context, bindings, stream):
    context.execute_async_v2(bindings, stream)
    return engine.num_bindings, engine.get_binding_shape(0)


class Network:
    def add_fully_connected(self, x): return self.add_convolution(x)

    def add_convolution(self, x): return x


Network().add_fully_connected(load().max_batch_size)
