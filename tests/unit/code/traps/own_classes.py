"""Classes of one's own with the same members, and names that are shadowed by functions and classes."""
import tensorrt as trt


class Engine:
    num_bindings = 3

    def __init__(self):
        self.max_batch_size = 4

    def build_engine(self, network, config):
        return self.num_bindings + self.max_batch_size

    def get_binding_shape(self, index):
        return self.build_engine(index, None)


class Builder(Engine):
    def execute_async_v2(self, bindings, stream):
        return self.get_binding_shape(0), self.num_bindings


engine = Engine()
print(engine.num_bindings, engine.build_engine(1, 2), Builder().execute_async_v2([], 0))
def all_of(engines): return [each.get_binding_shape(0) for each in engines]
all_of([Engine(), Builder()])
logger = trt.Logger()


def build_engine(network):
    return network


class trt_like:
    class BuilderFlag:
        STRICT_TYPES = 1


print(build_engine(1), trt_like.BuilderFlag.STRICT_TYPES)
