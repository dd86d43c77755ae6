"""Classes derived from TensorRT's: loggers, calibrators, plugins, allocators."""
import numpy as np
import tensorrt as trt


class MyLogger(trt.ILogger):
    def log(self, severity, msg):
        if severity <= trt.ILogger.Severity.ERROR:
            print(msg)


class Calibrator(trt.IInt8EntropyCalibrator2):  # expect: deprecated IInt8EntropyCalibrator2
    def __init__(self, files):
        super().__init__()
        self.files = files

    def get_batch_size(self): return 1

    def get_batch(self, names): return None


class Allocator(trt.IGpuAllocator):
    def allocate(self, size, alignment, flags): return 0

    def free(self, memory): return None


class Creator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "mine", "1", ""


def main():
    log = MyLogger()
    builder = trt.Builder(log)
    config = builder.create_builder_config()
    config.int8_calibrator = Calibrator([])  # expect: deprecated IBuilderConfig.int8_calibrator
    log.log(trt.Logger.INFO, np.zeros(1))
    return builder.build_engine(builder.create_network(), config)  # expect: removed Builder.build_engine
