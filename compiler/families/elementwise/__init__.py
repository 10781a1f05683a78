"""GPU kernels that compute every element of their results by itself: maps, windows, transposes, scatters."""
