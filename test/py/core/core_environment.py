"""Run as a program by `test_core_environment.py`: what a user can do who installed tilewright and torch, and no extra."""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement


def name_of(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def requirements(names: list[str]) -> set[str]:
    """Distributions that `names` bring with them, themselves included."""
    found: set[str] = set()
    pending = [name_of(name) for name in names]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        try:
            needs = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:  # of another machine
            continue
        found.add(name)
        pending += [name_of(n.name) for n in needs if not n.marker or n.marker.evaluate({"extra": ""})]
    return found


class Without:
    """A finder of modules that does not see some."""

    def __init__(self, finder: Any, hidden: set[str]):
        self.finder, self.hidden = finder, hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        hidden = name.partition(".")[0] in self.hidden
        return None if hidden else self.finder.find_spec(name, path, target)


def hide_extras() -> set[str]:
    """Hides the modules of every installed distribution that neither tilewright nor torch requires."""
    core = requirements(["tilewright", "torch"]) | {"setuptools"}
    by_module = importlib.metadata.packages_distributions()
    hidden = {module for module, owners in by_module.items() if not core & set(map(name_of, owners))}
    sys.meta_path[:] = [Without(finder, hidden) for finder in sys.meta_path]
    return hidden


def refusal(call: Any) -> str:
    """What `call` says when it is refused."""
    try:
        call()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was not refused")


def main(folder: Path) -> None:
    hidden = hide_extras()
    assert {"rich", "click", "onnx", "pytest"} <= hidden and not {"numpy", "torch"} & hidden

    import numpy as np
    import torch

    import tilewright

    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.randn(4, 8)
    with torch.no_grad():
        expected = model(x)
        for opt in ("O0", "O1"):
            torch.testing.assert_close(tilewright.compile(model, (x,), opt=opt)(x), expected)
        f = torch.compile(model, backend="tilewright", options={"strict": True})
        torch.testing.assert_close(f(x), expected)
    halves = tilewright.compile(lambda x: (x * 2).bfloat16(), (x,))
    assert halves(x.numpy()).dtype == np.uint16 and halves(x).dtype == torch.bfloat16
    path = folder / "model.twm"
    tilewright.compile(model, (x,)).save(str(path))
    np.testing.assert_allclose(tilewright.load(path)(x.numpy()), expected.numpy(), rtol=1e-5, atol=1e-6)

    assert "pip install 'tilewright[onnx]'" in refusal(lambda: tilewright.compile("model.onnx"))
    tool = refusal(lambda: runpy.run_module("tilewright.compiler.cli.main", run_name="__main__"))
    assert (
        tool
        == "SystemExit: tilewright: the tool needs `click`; install it with: pip install 'tilewright[cli]'"
    )
    assert not {name.partition(".")[0] for name in sys.modules} & hidden
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
