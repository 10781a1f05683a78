"""A compiled PyTorch model, saved, runs in a process that has neither torch nor MLIR, with its own arguments."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tilewright

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")


class Small(torch.nn.Module):
    """Two arguments, one by keyword; a batch norm to fold; a dictionary out; a buffer that counts calls."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, image, *, scale):
        self.calls += 1
        x = torch.relu(self.norm(self.conv(image)))
        x = x.mean((2, 3)) * scale
        return {"logits": self.head(x), "features": [x], "calls": self.calls + 0}


RUN = """
import sys
import numpy as np
import tilewright
model = tilewright.load(sys.argv[1])
given = np.load(sys.argv[2])
for _ in range(2):
    result = model(given["image"], scale=given["scale"])
np.savez(sys.argv[3], logits=result["logits"], features=result["features"][0], calls=result["calls"])
assert not {"torch", "torch_mlir", "llvmlite"} & set(sys.modules)
"""


def test_a_saved_torch_model_runs_on_numpy_without_torch(tmp_path):
    torch.manual_seed(0)
    model = Small().eval()
    image, scale = torch.randn(2, 3, 9, 11), torch.rand(2, 8)
    compiled = tilewright.compile(model, {"image": image, "scale": scale})
    path, given, results = (str(tmp_path / name) for name in ("model.twm", "given.npz", "results.npz"))
    compiled.save(path)
    np.savez(given, image=image.numpy(), scale=scale.numpy())
    subprocess.run([sys.executable, "-c", RUN, path, given, results], check=True, timeout=120)
    found = np.load(results)
    with torch.no_grad():
        expected = model(image, scale=scale)
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["features"], expected["features"][0], rtol=1e-5, atol=1e-6)
    assert found["calls"] == 2


def test_a_loaded_model_takes_torch_tensors_and_saves_again(tmp_path):
    model = torch.nn.Linear(7, 5)
    x = torch.randn(3, 7)
    tilewright.compile(model, (x,)).save(str(tmp_path / "a.twm"))
    loaded = tilewright.load(tmp_path / "a.twm")
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
    loaded.save(str(tmp_path / "b.twm"))
    assert (tmp_path / "a.twm").read_bytes() == (tmp_path / "b.twm").read_bytes()
