"""GPU kernels that go along rows: reductions, norms, softmax, scans and sorts."""
