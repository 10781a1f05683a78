"""Schedules of CPU kernels: candidates, register tiles, and the model that ranks them."""
