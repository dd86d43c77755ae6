"""Names that are shadowed: by parameters, by assignments, by functions, by other imports."""
import tensorrt as trt


def local():
    trt = {"BuilderFlag": 1}
    return trt.UffParser, trt["BuilderFlag"]


def rebound():
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b"")
    engine = list(range(3))
    return engine.num_bindings


def build_engine(network):
    return network


class trt_like:
    class BuilderFlag:
        STRICT_TYPES = 1


print(build_engine(1), trt_like.BuilderFlag.STRICT_TYPES)
for trt in (1, 2):
    pass
print(trt.BuilderFlag)
