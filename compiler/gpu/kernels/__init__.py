"""Emitters of GPU kernels, one module per family of dispatches."""
