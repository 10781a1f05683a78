"""GPU code: emission of kernels, lowering to PTX, and emulation on the CPU."""
