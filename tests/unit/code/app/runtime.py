"""Exports ``trt``, an engine and functions to the other files of its package."""
import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
DEFAULT = trt.Runtime(LOGGER).deserialize_cuda_engine(b"")


def load(path):
    with open(path, "rb") as file:
        return trt.Runtime(LOGGER).deserialize_cuda_engine(file.read())


def describe(engine):
    return [engine.get_binding_name(i) for i in range(2)]  # expect: removed ICudaEngine.get_binding_name


class Session:
    def __init__(self, path):
        self.engine = load(path)
        self.context = self.engine.create_execution_context()
