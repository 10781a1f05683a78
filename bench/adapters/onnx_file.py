"""One ONNX export per case, shared by the contenders that read ONNX."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path

import torch

from tilewright.bench.adapters import Task, Unavailable, require


def exported(task: Task) -> Path:
    """The case's model as an ONNX file in its folder, written when first asked for; raises Unavailable.

    Modules for which ONNX Runtime has an operator of its own write it, by `write_onnx`.
    """
    path = task.folder / "model.onnx"
    refusal = task.folder / "model.onnx.refused"
    if refusal.exists():
        raise Unavailable(refusal.read_text())
    if not path.exists():
        require("onnx", "tilewright[onnxruntime]")
        require("onnxscript", "tilewright[onnxruntime]")
        if hasattr(task.module, "write_onnx"):
            task.module.write_onnx(path, *task.inputs)
            return path
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                logging.getLogger("torch.onnx").setLevel(logging.ERROR)
                torch.onnx.export(
                    task.module, task.inputs, str(path), dynamo=True, external_data=True, verbose=False
                )
        except Exception as error:
            reason = f"torch.onnx.export: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
            refusal.write_text(reason)
            raise Unavailable(reason) from None
    return path
