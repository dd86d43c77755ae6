"""What each TensorRT release does to a model on a given GPU, with proof."""

__version__ = "0.1.0"
