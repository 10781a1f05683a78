"""Schedules of GPU kernels: candidates by family, tiles, occupancy, and the model that ranks them."""
