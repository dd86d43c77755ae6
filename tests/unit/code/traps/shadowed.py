"""Names that are shadowed by functions and classes."""
import tensorrt as trt


def build_engine(network):
    return network


class trt_like:
    class BuilderFlag:
        STRICT_TYPES = 1


print(build_engine(1), trt_like.BuilderFlag.STRICT_TYPES)
