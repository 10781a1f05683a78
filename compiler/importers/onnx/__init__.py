"""Models from ONNX: nodes by their specification, emitted as linalg and tosa."""
