"""Models as ONNX graphs that ONNX Runtime runs in little time."""
