"""The helpers that samples share, in our own words."""
import pycuda.driver as cuda
import tensorrt as trt


class HostDevice:
    def __init__(self, host, device):
        self.host, self.device = host, device


def allocate_buffers(engine):
    inputs, outputs, bindings, stream = [], [], [], cuda.Stream()
    for binding in engine:
        size = trt.volume(engine.get_binding_shape(binding)) * engine.max_batch_size  # expect: removed ICudaEngine.get_binding_shape, removed ICudaEngine.max_batch_size
        dtype = trt.nptype(engine.get_binding_dtype(binding))  # expect: removed ICudaEngine.get_binding_dtype
        host = cuda.pagelocked_empty(size, dtype)
        device = cuda.mem_alloc(host.nbytes)
        bindings.append(int(device))
        (inputs if engine.binding_is_input(binding) else outputs).append(HostDevice(host, device))  # expect: removed ICudaEngine.binding_is_input
    return inputs, outputs, bindings, stream


def do_inference_v2(context, bindings, inputs, outputs, stream):
    for each in inputs:
        cuda.memcpy_htod_async(each.device, each.host, stream)
    context.execute_async_v2(bindings=bindings, stream_handle=stream.handle)  # expect: removed IExecutionContext.execute_async_v2
    stream.synchronize()
    return [each.host for each in outputs]


def do_inference(context, bindings, batch_size=1):
    context.execute(batch_size=batch_size, bindings=bindings)  # expect: removed IExecutionContext.execute
