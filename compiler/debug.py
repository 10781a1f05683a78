"""What the debugging ladder shows: phases, dumps and overrides, as `settings` asks."""

from __future__ import annotations

import sys

from tilewright.compiler.ir import ir, parse, take_over
from tilewright.compiler.settings import debug_level, settings


def log(level: int, text: str) -> None:
    """Prints to standard error when TILEWRIGHT_DEBUG is at least `level`."""
    if debug_level() >= level:
        print(f"tilewright: {text}", file=sys.stderr)


def dump_module(name: str, module: ir.Module) -> None:
    """Writes the module to the dump folder as `name`.mlir, and prints it at debug level 3."""
    asked = settings()
    if asked.debug >= 3:
        print(f"// after {name}\n{module}", file=sys.stderr)
    if asked.dump:
        dump_text(f"{name}.mlir", module.operation.get_asm(enable_debug_info=True))


def dump_text(name: str, text: str) -> None:
    """Writes one file to the dump folder, when there is one."""
    folder = settings().dump
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def override_text(name: str) -> str | None:
    """The file of that name in the override folder, or None when there is no such file or folder."""
    folder = settings().override
    path = folder / name if folder else None
    if path is None or not path.is_file():
        return None
    log(1, f"{name}: taken from {folder}")
    return path.read_text()


def override_module(name: str, module: ir.Module) -> None:
    """Replaces what `module` holds by `name`.mlir of the override folder, where there is one.

    Raises PassError with the place when the file does not parse.
    """
    text = override_text(f"{name}.mlir")
    if text is None:
        return
    take_over(module, parse(text, f"{name}.mlir"))


def wants_kernels() -> bool:
    """True when kernels are to be seen or replaced, so that none may come from the cache unseen."""
    asked = settings()
    return bool(asked.debug >= 5 or asked.dump or asked.override)


def dump_kernel(name: str, optimised: str, assembly: str) -> None:
    """Writes a kernel's LLVM IR and assembly to the dump folder, and prints both at debug level 5."""
    if settings().debug >= 5:
        print(f"; {name}\n{optimised}\n# {name}\n{assembly}", file=sys.stderr)
    dump_text(f"{name}.ll", optimised)
    dump_text(f"{name}.s", assembly)
