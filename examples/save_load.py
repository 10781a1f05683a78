"""Save a compiled model as one file and load it in a process that has neither torch nor MLIR loaded."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import tilewright

LOADER = """
import sys
import numpy as np
import tilewright

model = tilewright.load(sys.argv[1])
y = model(np.ones((4, 64), np.float32))
print("loaded:", y.shape, y.dtype, "torch loaded:", "torch" in sys.modules)
"""


def main() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)).eval()
    compiled = tilewright.compile(model, (torch.ones(4, 64),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perceptron.twm"
        compiled.save(str(path))
        print(f"saved: {path.stat().st_size} bytes")
        subprocess.run([sys.executable, "-c", LOADER, str(path)], check=True)


if __name__ == "__main__":
    main()
