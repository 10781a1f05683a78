"""Whether example inputs are such as an exported program was made for: its graph holds for no others."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from tilewright.compiler.errors import ModelImportError


def check_examples(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises ModelImportError for the first input of another structure, type, extent or constant than was exported."""
    inputs = _inputs(program)
    spec = program.call_spec.in_spec
    order = spec.child(1).context if spec is not None and spec.num_children == 2 else kwargs
    ordered = {name: kwargs[name] for name in order if name in kwargs} | kwargs
    given, found = pytree.tree_flatten((args, ordered))
    if spec is not None and found != spec:
        wanted = pytree.tree_unflatten([name for name, _ in inputs], spec)
        kinds = pytree.tree_map(lambda value: type(value).__name__, (args, ordered))
        raise ModelImportError(
            f"the program was exported for the arguments {wanted[0]} and {wanted[1]}, found {kinds[0]} and {kinds[1]}"
        )
    known = {
        extent.node.expr: size
        for (_, value), example in zip(inputs, given)
        if isinstance(value, torch.Tensor) and isinstance(example, torch.Tensor)
        for extent, size in zip(value.shape, example.shape)
        if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol
    }
    for (name, value), example in zip(inputs, given):
        reason = _misfit(program, value, example, known)
        if reason is not None:
            raise ModelImportError(f"input `{name}`: the program was exported for {reason}")


def _inputs(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Names of the user's inputs, and the tensors without data or the constants that they were exported for."""
    placeholders = program.graph.find_nodes(op="placeholder")
    pairs = zip(program.graph_signature.input_specs, placeholders)
    return [(node.name, node.meta.get("val")) for spec, node in pairs if spec.kind is InputKind.USER_INPUT]


def _misfit(program: ExportedProgram, value: Any, example: Any, known: dict[Any, int]) -> str | None:
    """What an input should be and is not; None where it fits. `known` is what symbols of its shape stand for."""
    if not isinstance(value, torch.Tensor) or not isinstance(example, torch.Tensor):
        is_constant = isinstance(value, (bool, int, float, str))
        fits = not is_constant or (type(value) is type(example) and value == example)
        return None if fits else f"the constant {value!r}, found {example!r}"
    shape = list(example.shape)
    if value.dtype is not example.dtype:
        return f"{value.dtype}, found {example.dtype}"
    if value.dim() != example.dim():
        return f"{value.dim()} dimensions, found {shape}"
    for dimension, (extent, size) in enumerate(zip(value.shape, shape)):
        wanted = _extent(program, extent, size, known)
        if wanted is not None:
            return f"{wanted} in dimension {dimension}, found {shape}"
    return None


def _extent(program: ExportedProgram, extent: Any, size: int, known: dict[Any, int]) -> str | None:
    """What an extent should be, where it is another one."""
    if not isinstance(extent, torch.SymInt):
        return None if extent == size else f"{extent}, which dynamic_shapes did not name,"
    expression = extent.node.expr
    bounds = program.range_constraints.get(expression)
    if bounds is not None and not bounds.lower <= size <= bounds.upper:
        return f"{bounds.lower} to {bounds.upper}"
    wanted = expression.subs(known)
    return f"{wanted}, as other inputs say," if wanted.is_number and wanted != size else None
