"""builder.build_engine(network, config) and engine.num_bindings in texts and comments are no uses."""
import tensorrt as trt

# engine.num_bindings was removed; trtexec --explicitBatch too
HELP = "call engine.get_binding_shape(0), builder.max_batch_size or trtexec --explicitBatch --workspace=1024"
print("trt.BuilderFlag.STRICT_TYPES", HELP, f"num_bindings={len(HELP)}")
options = {"max_batch_size": 1, "max_workspace_size": 2, "num_bindings": 3}
print(options["num_bindings"], options.get("max_batch_size"))
print("trtexec --explicitBatch --onnx=a.onnx")


def build(max_workspace_size, max_batch_size=1):
    return dict(max_workspace_size=max_workspace_size, max_batch_size=max_batch_size)


build(max_workspace_size=1)
logger = trt.Logger()
