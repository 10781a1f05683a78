"""What a program takes on a device that runs threads: a model of blocks on multiprocessors."""

from __future__ import annotations

import numpy as np


def evaluate_threads(performance, programs, staged):
    from tilewright.compiler.tuning.roller.performance import Estimate

    n = len(programs)
    device = performance.device
    S = np.asarray([p[1] for p in programs], dtype=np.int64)
    R = np.asarray([p[0] for p in programs], dtype=np.int64)
    padded = (-(-performance.extents // S) * S / performance.extents).prod(axis=1)
    compute = performance.flops * padded / device.peak_gflops / 1e3
    dram = performance.traffic(1, [p[1] for p in programs]) / device.layers[2].bandwidth_gbps / 1e3
    shared = performance.traffic(0, [p[0] for p in programs]) / device.layers[1].bandwidth_gbps / 1e3
    times = {"compute": compute, device.layers[2].name: dram, device.layers[1].name: shared}
    st = np.stack(list(times.values()))
    return Estimate(st.max(axis=0), [list(times)[i] for i in st.argmax(axis=0)], times)
