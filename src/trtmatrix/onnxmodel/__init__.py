"""The user's own ONNX model: reading it, its inputs, its reference and its noise floor."""
