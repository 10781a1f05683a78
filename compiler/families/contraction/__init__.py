"""GPU kernels of matrix products and convolutions, on ordinary arithmetic and on `mma.sync`."""
