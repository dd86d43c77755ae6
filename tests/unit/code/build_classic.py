"""The way that most builders were written for TensorRT 8."""
import sys

import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)
EXPLICIT_BATCH = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)  # expect: deprecated NetworkDefinitionCreationFlag.EXPLICIT_BATCH


def build_engine(onnx_path, engine_path, fp16=False):
    with trt.Builder(TRT_LOGGER) as builder, builder.create_network(EXPLICIT_BATCH) as network, \
            trt.OnnxParser(network, TRT_LOGGER) as parser:
        config = builder.create_builder_config()
        config.max_workspace_size = 1 << 30  # expect: removed IBuilderConfig.max_workspace_size
        builder.max_batch_size = 1  # expect: removed Builder.max_batch_size
        if fp16:
            config.set_flag(trt.BuilderFlag.FP16)
            config.set_flag(trt.BuilderFlag.STRICT_TYPES)  # expect: removed BuilderFlag.STRICT_TYPES
        config.profiling_verbosity = trt.ProfilingVerbosity.VERBOSE  # expect: removed ProfilingVerbosity.VERBOSE
        with open(onnx_path, "rb") as model:
            if not parser.parse(model.read()):
                for i in range(parser.num_errors):
                    print(parser.get_error(i))
                return None
        engine = builder.build_engine(network, config)  # expect: removed Builder.build_engine
        with open(engine_path, "wb") as out:
            out.write(engine.serialize())
        return engine


if __name__ == "__main__":
    engine = build_engine(sys.argv[1], sys.argv[2])
    print("bindings:", engine.num_bindings)  # expect: removed ICudaEngine.num_bindings
    print(len(engine))  # expect: removed ICudaEngine.__len__
