"""Names taken out of the module, under other names too."""
from tensorrt import Builder as B, BuilderFlag, IInt8EntropyCalibrator2 as Calibrator, Logger, Runtime  # expect: deprecated IInt8EntropyCalibrator2
from tensorrt import SliceMode, UffParser  # expect: removed SliceMode, removed UffParser

log = Logger()
builder = B(log)
network = builder.create_network()
flag = BuilderFlag.STRICT_TYPES  # expect: removed BuilderFlag.STRICT_TYPES
config = builder.create_builder_config()
config.set_flag(BuilderFlag.FP16)
parser = UffParser()  # expect: removed UffParser
mode = SliceMode.WRAP
make = builder.build_engine  # expect: removed Builder.build_engine
engine = make(network, config)
count = engine.num_bindings  # expect: removed ICudaEngine.num_bindings


def load(path):
    runtime = Runtime(log)
    with open(path, "rb") as file:
        return runtime.deserialize_cuda_engine(file.read())


names = [load("a").get_binding_name(i) for i in range(4)]  # expect: removed ICudaEngine.get_binding_name
