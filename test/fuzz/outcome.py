"""What can become of a program."""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = ("ok", "refused", "wrong", "internal", "crash", "hang", "invalid")
FAILURES = ("wrong", "internal", "crash", "hang")


@dataclass(frozen=True)
class Outcome:
    """`detail` is one line: what was refused, which element is wrong, which error or signal ended the program.

    - `refused`: an UnsupportedError, or under `torch.compile` operators that ran in eager PyTorch.
    - `wrong`: another result, shape, dtype, aliasing or mutation than eager's, or no error where eager raises one.
    - `internal`: an exception that is no refusal.
    - `crash`, `hang`: the process died, or did not answer in time.
    - `invalid`: eager PyTorch itself refuses the program; only while minimising.
    """

    kind: str
    detail: str = ""
    seconds: float = 0.0
    compared: int = 0
    elements: int = 0

    @property
    def mechanism(self) -> str:
        """The detail without numbers and names that differ from program to program."""
        text = re.sub(r"^(first|second) call: ", "", self.detail)
        text = re.sub(r"^(output|the gradient of|after the call) \w+: \d+ of .*", r"elements of \1", text)
        text = re.sub(r"(at )?<program \d+>:\d+(:\d+)?( in \w+)?", "", text)
        return re.sub(r"%\w+|[-+]?\d+(\.\d+)?(e[-+]?\d+)?|\b[vxwc]\d+", "_", text)[:160]
