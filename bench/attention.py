"""Times attention alone, fused and as separate dispatches, beside eager.

    python -m tilewright.bench.attention [--seconds S] [-o FILE.json [--keep-least]]

Twelve heads of 64, f32, batch 1. Work counts both products in full, masked or not. The limit is the FMA peak that
`python bench/fma_peak.py` measures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import tilewright
from tilewright.bench.without_passes import compile_without

HEADS, WIDTH = 12, 64
CALLS = 5
CASES = ((64, True), (128, False), (197, False), (512, False), (512, True), (1024, False), (1024, True))
"""Lengths and masks: GPT-2's prompt, BERT, ViT-B/16, and longer ones."""


class Attention(nn.Module):
    """`scaled_dot_product_attention`, causal or not."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def compiled(model: nn.Module, inputs: tuple, fused: bool) -> Callable:
    """The compiled model, with attention in one dispatch or in several."""
    return tilewright.compile(model, inputs) if fused else compile_without(model, inputs, ("fuse-attention",))


def measure(length: int, causal: bool, seconds: float, known: dict) -> dict:
    """The least milliseconds of calls in interleaved rounds: what the machine does while nobody else is on it; those of `known` count."""
    torch.manual_seed(0)
    inputs = tuple(torch.randn(1, HEADS, length, WIDTH) for _ in range(3))
    model = Attention(causal)
    contenders = {
        "fused": compiled(model, inputs, True),
        "unfused": compiled(model, inputs, False),
        "eager": model,
    }
    expected = model(*(t.double() for t in inputs))
    for name, contender in contenders.items():
        error = float((contender(*inputs) - expected).norm() / expected.norm())
        if not error < 1e-5:
            sys.exit(f"attention of {length}: {name} is off by {error:.1e}")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, contender in contenders.items():
            contender(*inputs)  # The threads of the one before may still be waiting at full speed.
            for _ in range(CALLS):
                start = time.perf_counter()
                contender(*inputs)
                times[name].append((time.perf_counter() - start) * 1e3)
    work = 4 * HEADS * length * length * WIDTH
    least = {
        f"{name}_ms": min(round(min(values), 4), known.get(f"{name}_ms", math.inf))
        for name, values in times.items()
    }
    rate = work / least["fused_ms"] / 1e6
    return {
        "length": length,
        "causal": causal,
        "gflop": work / 1e9,
        **least,
        "fused_gflops": round(rate, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output")
    parser.add_argument(
        "--keep-least",
        action="store_true",
        help="keep times in FILE that are less: run again while others work",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="per case")
    options = parser.parse_args()
    rows: list[dict] = []
    known = {}
    if options.keep_least and Path(options.output).exists():
        cases = json.loads(Path(options.output).read_text(encoding="utf-8"))["cases"]
        known = {(case["length"], case["causal"]): case for case in cases}
    with torch.no_grad():
        for length, causal in CASES:
            rows.append(measure(length, causal, options.seconds, known.get((length, causal), {})))
            print(json.dumps(rows[-1]))
    if options.output:
        report = {
            "command": f"python -m tilewright.bench.attention {' '.join(sys.argv[1:])}",
            "threads": torch.get_num_threads(),
            "cases": rows,
        }
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
