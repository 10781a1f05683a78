"""Notes, while a model is traced, the source lines that lead to each operator."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from torch.fx import traceback
from torch.overrides import TorchFunctionMode

from tilewright import runtime
from tilewright.compiler.importers.torch.types import TORCH_FOLDER

COMPILER_FOLDER = str(Path(__file__).parents[2])
RUNTIME_FOLDER = str(Path(runtime.__file__).parent)  # type: ignore[arg-type]
"""Where the sources of the compiler and of the runtime lie."""

DEEPEST = 8
"""Lines kept of one call stack, the innermost ones."""


class SourceLines(TorchFunctionMode):
    """Gives every traced node the lines of the model's own code; PyTorch's modules where there is none.

    Looks at the stack once per call of PyTorch's interface, not once per traced operator.
    """

    def __enter__(self):
        self._kept = traceback.preserve_node_meta()
        self._kept.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any):
        super().__exit__(*error)
        self._kept.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        traceback.current_meta["stack_trace"] = stack_text()
        return func(*args, **(kwargs or {}))


def stack_text() -> str:
    """The calling stack as Python prints it, without frames of PyTorch and of this compiler."""
    own: list[str] = []
    modules = ""
    frame = sys._getframe(2)
    while frame is not None and len(own) < DEEPEST:
        kind = _kind(frame.f_code)
        if kind == "own":
            own.append(_line(frame.f_code, frame.f_lineno))
        elif kind == "end":
            break
        elif kind == "module" and not modules:
            modules = _line(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return "\n".join(reversed(own)) or modules


@cache
def _kind(code: CodeType) -> str:
    """Whose code it is: the model's "own", a "module" of torch.nn, the "end" of the model, or "other"."""
    path = code.co_filename
    if path.startswith(COMPILER_FOLDER):
        return "end" if code.co_name == "capture" else "other"
    if path.startswith((TORCH_FOLDER, "<")):
        return "module" if code.co_name == "forward" and "/nn/modules/" in path else "other"
    return "own"


@cache
def _line(code: CodeType, line: int) -> str:
    return f'  File "{code.co_filename}", line {line}, in {code.co_name}'
