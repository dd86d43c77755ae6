from tensorrt import *

logger = Logger(Logger.ERROR)
builder = Builder(logger)
network = builder.create_network()
x = network.add_input("x", float32, (1, 3, 8, 8))
conv = network.add_convolution(x, 8, (3, 3), Weights())  # expect: removed INetworkDefinition.add_convolution
conv.stride = (2, 2)  # expect: removed IConvolutionLayer.stride
pool = network.add_pooling(conv.get_output(0), PoolingType.MAX, (2, 2))  # expect: removed INetworkDefinition.add_pooling
pool.stride_nd = (2, 2)
fc = network.add_fully_connected(pool.get_output(0), 10, Weights(), Weights())  # expect: removed INetworkDefinition.add_fully_connected
network.mark_output(fc.get_output(0))
good = network.add_convolution_nd(x, 8, (3, 3), Weights())
good.stride_nd = (2, 2)
