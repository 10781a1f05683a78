"""`tilewright compile --target hip:ARCH`: AMD's assembly of every kernel, for GPUs that nothing here runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.compiler.terminal import console as new_console


def write_assembly(module: Any, name: str, target: str, output: Path | None) -> None:
    """Compiles every dispatch of an imported module; with `output`, a folder, one `.s` file per kernel goes there."""
    from tilewright.compiler import phases
    from tilewright.compiler.codegen.amdgpu import compile_amdgpu
    from tilewright.compiler.codegen.lower_gpu import gpu_module
    from tilewright.compiler.ir import functions, ir
    from tilewright.compiler.targets.target import resolve

    described = resolve(target)
    phases.run_phases(module, described)
    found = [f for f in functions(module) if "tilewright.operator" in f.attributes]
    if output:
        if output.suffix:
            raise click.UsageError(f"-o {output}: expected a folder, assembly is one file per kernel")
        output.mkdir(parents=True, exist_ok=True)
    total = 0
    for function in found:
        kernel, _ = gpu_module(function, described)
        code = compile_amdgpu(kernel, described.arch)
        total += len(code.text)
        if output:
            (output / f"{ir.StringAttr(function.attributes['sym_name']).value}.s").write_text(code.text)
    where = f" in {output}" if output else ""
    new_console(stderr=True).print(
        f"{name}: {len(found)} kernels for {described.arch}, {total:,} B of assembly{where}; nothing here runs it"
    )
