import common
import tensorrt as trt


def get_engine(path):
    def build():
        builder = trt.Builder(trt.Logger())
        network = builder.create_network(common.trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)  # expect: deprecated NetworkDefinitionCreationFlag.EXPLICIT_BATCH
        return builder.build_engine(network, builder.create_builder_config())  # expect: removed Builder.build_engine

    try:
        with open(path, "rb") as file:
            return trt.Runtime(trt.Logger()).deserialize_cuda_engine(file.read())
    except FileNotFoundError:
        return build()


def main():
    with get_engine("plan") as engine, engine.create_execution_context() as context:
        inputs, outputs, bindings, stream = common.allocate_buffers(engine)
        context.set_binding_shape(0, (1, 3, 608, 608))  # expect: removed IExecutionContext.set_binding_shape
        return common.do_inference_v2(context, bindings, inputs, outputs, stream)
