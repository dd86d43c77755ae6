from . import runtime
from .runtime import DEFAULT, Session, describe, load, trt


def main(path):
    session = Session(path)
    describe(load(path))
    print(DEFAULT.num_bindings)  # expect: removed ICudaEngine.num_bindings
    session.context.execute_async_v2([], 0)  # expect: removed IExecutionContext.execute_async_v2
    print(session.engine.get_binding_shape(0))  # expect: removed ICudaEngine.get_binding_shape
    return trt.BuilderFlag.STRICT_TYPES  # expect: removed BuilderFlag.STRICT_TYPES


class Batched(Session):
    def profile(self, index):
        return self.engine.get_profile_shape(index, 0)  # expect: removed ICudaEngine.get_profile_shape
