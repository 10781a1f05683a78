"""GPU kernels of fused attention."""
