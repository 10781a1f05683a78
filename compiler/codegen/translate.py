"""Prints the assembly of a gpu-level module: the tool behind the tests of generated code.

    python -m tilewright.compiler.codegen.translate kernel.mlir --arch sm_90a
    python -m tilewright.compiler.codegen.translate kernel.mlir --arch sm_80 --emit resources

Shared memory is placed first. `llvm-ir` shows the kernel before LLVM optimises it, `resources` what NVIDIA's assembler
reports of it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from tilewright.compiler.codegen.ptx import DeviceCode, compile_ptx
from tilewright.compiler.codegen.ptxas import assemble
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import parse
from tilewright.compiler.pipeline.pipeline import run_pipeline

PLACE = "builtin.module(gpu.module(gpu.func(place-shared)))"


def translate(text: str, arch: str, source: str = "<string>") -> DeviceCode:
    """The device code of gpu-level MLIR text for an architecture of NVIDIA's or AMD's."""
    module = parse(text, source)
    run_pipeline(module.operation, PLACE)
    if arch.startswith("gfx"):
        from tilewright.compiler.codegen.amdgpu import compile_amdgpu

        return compile_amdgpu(module, arch)
    return compile_ptx(module, arch)


def report(code: DeviceCode) -> str:
    """One line per resource, as the assembler reports them; raises TilewrightError when there is no assembler."""
    assembled = assemble(code.text, code.arch)
    if assembled is None:
        raise TilewrightError(
            f"no installed ptxas knows {code.arch}; install the extra: pip install 'tilewright[cuda]'"
        )
    resources = assembled.resources
    return "\n".join(f"{field.name}: {getattr(resources, field.name)}" for field in fields(resources))


def main(arguments: list[str] | None = None) -> int:
    """Runs the tool; gives its exit code."""
    parser = argparse.ArgumentParser(description="Prints the assembly of a gpu-level module.")
    parser.add_argument("file", help="gpu-level MLIR with one kernel, `-` for standard input")
    parser.add_argument("--arch", default="sm_80", help="sm_70, sm_80, sm_90a, gfx90a, ...")
    parser.add_argument("--emit", choices=("assembly", "llvm-ir", "resources"), default="assembly")
    options = parser.parse_args(arguments)
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    try:
        code = translate(text, options.arch, options.file)
        emitted = {
            "assembly": lambda: code.text,
            "llvm-ir": lambda: code.llvm_ir,
            "resources": lambda: report(code),
        }
        print(emitted[options.emit]())
    except TilewrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
