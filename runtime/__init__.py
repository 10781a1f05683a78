"""The runtime: loads and executes packages; imports neither the compiler, MLIR nor torch."""
