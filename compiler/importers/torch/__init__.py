"""Models from PyTorch: captured, put into operators that lower exactly, and lowered by torch-mlir."""
