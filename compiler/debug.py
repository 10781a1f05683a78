"""What the debugging ladder shows: phases, dumps and overrides, as `settings` asks."""

from __future__ import annotations

import sys

from tilewright.compiler.ir import ir
from tilewright.compiler.settings import settings


def log(level: int, text: str) -> None:
    """Prints to standard error when TILEWRIGHT_DEBUG is at least `level`."""
    if settings().debug >= level:
        print(f"tilewright: {text}", file=sys.stderr)


def dump_module(name: str, module: ir.Module) -> None:
    """Writes the module to the dump folder as `name`.mlir, and prints it at debug level 3."""
    asked = settings()
    if asked.debug >= 3:
        print(module, file=sys.stderr)
    if asked.dump:
        dump_text(f"{name}.mlir", module.operation.get_asm(enable_debug_info=True))


def dump_text(name: str, text: str) -> None:
    """Writes one file to the dump folder, when there is one."""
    folder = settings().dump
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
