"""The source lines of a model: those that lead to each operator, noted while it is traced, and those of errors."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from torch.fx import traceback as fx_traceback
from torch.overrides import TorchFunctionMode

from tilewright import runtime
from tilewright.compiler.importers.torch.types import TORCH_FOLDER

COMPILER_FOLDER = str(Path(__file__).parents[2])
RUNTIME_FOLDER = str(Path(runtime.__file__).parent)  # type: ignore[arg-type]
"""Where the sources of the compiler and of the runtime lie."""

_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]

UNKNOWN = "<unknown location>"
"""The place of what no line of the model led to."""

DEEPEST = 8
"""Lines kept of one call stack, the innermost ones."""


class SourceLines(TorchFunctionMode):
    """Gives every traced node the lines of the model's own code; PyTorch's modules where there is none.

    Looks at the stack once per call of PyTorch's interface, not once per traced operator.
    """

    def __enter__(self):
        self._kept = fx_traceback.preserve_node_meta()
        self._kept.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any):
        super().__exit__(*error)
        self._kept.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fx_traceback.current_meta["stack_trace"] = stack_text()
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


def here() -> str:
    """The innermost source line of the model that is being traced."""
    return _innermost(traceback.extract_stack())


def place(error: BaseException) -> str:
    """The innermost source line outside of PyTorch and of this compiler in an error's traceback."""
    return _innermost(traceback.extract_tb(error.__traceback__))


def _innermost(frames: traceback.StackSummary) -> str:
    """The innermost line of the model; of PyTorch's own modules where the model is nothing else."""
    layers = str(Path(TORCH_FOLDER) / "nn")
    for found in (_is_own, lambda frame: frame.filename.startswith(layers)):
        for frame in reversed(frames):
            if found(frame):
                return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return UNKNOWN


def _is_own(frame: traceback.FrameSummary) -> bool:
    """Whether a line is the user's: neither PyTorch's, nor Python's, nor this compiler's."""
    if frame.filename.startswith((TORCH_FOLDER, COMPILER_FOLDER, RUNTIME_FOLDER, "<")):
        return False
    return not frame.filename.startswith(_STANDARD_LIBRARY) or "site-packages" in frame.filename
