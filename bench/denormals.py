"""What denormal numbers cost: `python -m tilewright.bench.denormals`.

Times models on activations of ordinary size and on activations that are denormal, in eager PyTorch and compiled with
`denormals="keep"` and `"flush"`, on one thread; the best of many calls, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import tilewright
from tilewright.bench.machine import machine

CALLS = 50


def best_us(call: Callable[[], object]) -> float:
    """The shortest of CALLS calls."""
    call()
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def chain(layer: Callable[[], nn.Module], activation: Callable[[], nn.Module], count: int = 3) -> nn.Module:
    """`count` layers, each followed by an activation."""
    return nn.Sequential(*(part for _ in range(count) for part in (layer(), activation()))).eval()


def models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Modules without biases, whose activations stay as small as their inputs, and the shapes of those."""
    torch.manual_seed(0)
    return {
        "3 x (linear, ReLU)": (chain(lambda: nn.Linear(512, 512, bias=False), nn.ReLU), (64, 512)),
        "3 x (linear, GELU)": (chain(lambda: nn.Linear(512, 512, bias=False), nn.GELU), (64, 512)),
        "3 x (convolution, ReLU)": (
            chain(lambda: nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.ReLU),
            (1, 32, 28, 28),
        ),
        "tanh": (nn.Tanh(), (512, 512)),
        "softmax": (nn.Softmax(-1), (512, 512)),
    }


def row(module: nn.Module, x: torch.Tensor) -> list[float]:
    """Microseconds in eager, eager with its own flushing, and compiled with denormals kept and flushed."""
    calls = [tilewright.compile(module, (x,), denormals=mode) for mode in ("keep", "flush")]
    with torch.inference_mode():
        times = [best_us(lambda: module(x))]
        torch.set_flush_denormal(True)
        times.append(best_us(lambda: module(x)))
        torch.set_flush_denormal(False)
        return [*times, *(best_us(partial(call, x)) for call in calls)]


def main() -> None:
    """Prints the table as Markdown."""
    torch.set_num_threads(1)
    print(f"{machine()['processor']}, one thread, µs\n")
    columns = ["model", "inputs", "eager", "eager, flushing", "keep", "flush"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name, (module, shape) in models().items():
        x = torch.randn(shape)
        for kind, scale in (("ordinary", 1.0), ("denormal", 1e-39)):
            times = row(module, x * scale)
            print(f"| {name} | {kind} | {' | '.join(f'{us:.0f}' for us in times)} |", flush=True)


if __name__ == "__main__":
    main()
