"""An engine that one method stores and others use; a class that derives from it does too."""
import numpy as np
import pycuda.driver as cuda
import tensorrt as trt


class Base:
    def __init__(self, plan):
        self.logger = trt.Logger()
        self.engine = None
        self.load(plan)
        self.context = self.make_context()
        self.buffers = {}
        self.stream = cuda.Stream()

    def load(self, plan):
        with open(plan, "rb") as file, trt.Runtime(self.logger) as runtime:
            self.engine = runtime.deserialize_cuda_engine(file.read())

    def make_context(self):
        return self.engine.create_execution_context()

    @property
    def bindings(self):
        return range(self.engine.num_bindings)  # expect: removed ICudaEngine.num_bindings


class Detector(Base):
    def allocate(self):
        for binding in self.engine:
            shape = self.engine.get_binding_shape(binding)  # expect: removed ICudaEngine.get_binding_shape
            dtype = trt.nptype(self.engine.get_binding_dtype(binding))  # expect: removed ICudaEngine.get_binding_dtype
            self.buffers[binding] = cuda.mem_alloc(trt.volume(shape) * np.dtype(dtype).itemsize)
            index = self.engine[binding]  # expect: changed ICudaEngine.__getitem__
            if self.engine.binding_is_input(index):  # expect: removed ICudaEngine.binding_is_input
                self.context.set_binding_shape(index, (1, 3, 8, 8))  # expect: removed IExecutionContext.set_binding_shape

    def run(self):
        self.context.execute_async_v2(  # expect: removed IExecutionContext.execute_async_v2
            bindings=list(self.buffers.values()),
            stream_handle=self.stream.handle,
        )
        self.stream.synchronize()
        first = self.engine[0]
        return self.engine.get_tensor_shape(first), self.context.infer_shapes()


class Segmenter(Base):
    def make_context(self):
        context = super().make_context()
        context.active_optimization_profile = 0  # expect: changed IExecutionContext.active_optimization_profile
        print(context.active_optimization_profile)
        return context
