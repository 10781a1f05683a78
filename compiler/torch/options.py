"""Options and modes of the `torch.compile` backend, checked before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.compiler.errors import TilewrightError

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cuda_graph": True},
    "max-autotune": {"opt": "O1"},
    "max-autotune-no-cudagraphs": {"opt": "O1", "cuda_graph": False},
}
"""What `torch.compile`'s modes mean here; on CPUs there are no CUDA graphs to say anything of."""


@dataclass(frozen=True)
class Options:
    """Options of the backend: the target, whether to refuse eager execution, and the compiler's own.

    Without a target, graphs are compiled for the device that their tensors are on.
    """

    target: str | None = None
    strict: bool = False
    compiler: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: dict[str, Any] | None, mode: str | None = None) -> Options:
        """Raises TilewrightError for a mode, an option or a value that there is none of."""
        from tilewright.compiler.driver import generated_for
        from tilewright.compiler.options import check_options

        if mode is not None and mode not in MODES:
            raise TilewrightError(f"mode: expected one of {', '.join(MODES)}, found `{mode}`")
        given = {**MODES[mode or "default"], **(options or {})}
        target, strict = given.pop("target", None), given.pop("strict", False)
        if "lock" in given:
            raise TilewrightError(
                "lock: it is of one model, and torch.compile compiles graphs; use tilewright.compile"
            )
        if not isinstance(strict, bool):
            raise TilewrightError(f"strict: expected True or False, found `{strict}`")
        if target is not None and target != "cuda":  # which GPU that is, the graph's tensors say
            generated_for(target)
        return cls(target, strict, check_options(given))
