"""One lock, many processes: one artifact and the same bits of results, whatever their threads, caches and hash seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tilewright.compiler import driver

MODEL = """
import torch
from torch import nn


def net():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 20), nn.Softmax(1)
    return nn.Sequential(*layers).eval(), torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)
"""
PROCESS = """
import hashlib, json, sys
import locked_model
import tilewright

module, x = locked_model.net()
compiled = tilewright.compile(module, (x,), lock=sys.argv[1])
compiled.save("model.twm")
artifact = hashlib.sha256(open("model.twm", "rb").read()).hexdigest()
print(json.dumps([artifact, hashlib.sha256(compiled(x).numpy().tobytes()).hexdigest()]))
"""


@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_one_lock_is_one_artifact(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    import locked_model  # type: ignore[import-not-found]

    module, x = locked_model.net()
    imported = driver.import_model(module, (x,))
    tuned = driver.tune_imported(imported, options={"trials": 16, "strategy": "random", "seed": count})
    tuned.lock.write(tmp_path / "net.tune.lock")
    torch.testing.assert_close(tuned.model(x), module(x))
    found = []
    for number in range(count):
        folder = tmp_path / f"process{number}"
        folder.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "PYTHONHASHSEED": str(number),
            "TILEWRIGHT_CACHE_DIR": str(folder / "cache"),
            "TILEWRIGHT_NUM_THREADS": str(1 + number % 2),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, str(tmp_path / "net.tune.lock")],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert len({artifact for artifact, _ in found}) == 1
    assert len({results for _, results in found}) == 1
    assert found[0][1]
