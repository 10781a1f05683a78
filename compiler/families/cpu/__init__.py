"""Loops of CPU kernels: each kind reads the reductions that it can compute, and writes them."""
