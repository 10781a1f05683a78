"""Runs a PyTorch function dispatch by dispatch: kernels of chosen emitters through the emulator, views by numpy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from tilewright.compiler import phases
from tilewright.compiler.analysis.placement import STRIDES, dense_strides
from tilewright.compiler.codegen.emulation import execute, load_kernel
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target, resolve

SEEDS = (0, 1, 2)
Emit = Callable[[ir.Operation, Schedule, Target], ir.Module]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def dispatches(function: Callable, args: Sequence[torch.Tensor], target: str) -> tuple[ir.Module, dict]:
    """The module of a function after the schedule phase, and its dispatches by name."""
    model = function if isinstance(function, nn.Module) else Function(function)
    imported = import_model(model, tuple(args))
    phases.run_phases(imported.module, resolve(target))
    found = {
        ir.StringAttr(f.attributes["sym_name"]).value: f
        for f in functions(imported.module)
        if "tilewright.operator" in f.attributes
    }
    return imported.module, found


def run(
    function: Callable, args: Sequence[torch.Tensor], *emits: Emit, target: str = "v100"
) -> list[torch.Tensor]:
    """Results of `function` on `args`; each kernel is written by the first of `emits` that takes its dispatch.

    Every kernel runs in three orders of its threads, which must give the same bits.
    """
    module, found = dispatches(function, args, target)
    main = next(f for f in functions(module) if ir.StringAttr(f.attributes["sym_name"]).value == "main")
    values = dict(zip(main.regions[0].blocks[0].arguments, map(array_of, args)))
    for view in main.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "func.return":
            return [torch_of(values[v]) for v in op.operands]
        operands = [values[v] for v in op.operands]
        if op.name == "func.call":
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            results = launched(found[name], operands, emits, resolve(target))
        else:
            results = [viewed(op, operands)]
        values.update(zip(op.results, results))
    raise AssertionError("@main returns")


def kernel_of(function: ir.Operation, emits: Sequence[Emit], target: Target) -> ir.Module:
    """The kernel of a dispatch by the first emitter that takes it."""
    with function.context, ir.Location.unknown():
        schedule = schedule_attribute.read(function) or Schedule()
        for emit in emits:
            with contextlib.suppress(Declined):
                return emit(function, schedule, target)
    raise AssertionError(f"no kernel for {function}")


def launched(
    function: ir.Operation, operands: Sequence[np.ndarray], emits: Sequence[Emit], target: Target
) -> list[np.ndarray]:
    """One dispatch on arrays."""
    kernel = load_kernel(kernel_of(function, emits, target))
    types = list(function.attributes["function_type"].value.results)
    found: list[list[np.ndarray]] = []
    for seed in SEEDS:
        buffers = [memory_of(a, steps) for a, steps in zip(operands, strides_of(function, "arg_attrs"))]
        results = []
        for type_, steps in zip(types, strides_of(function, "res_attrs")):
            shape, dtype = tuple(ir.ShapedType(type_).shape), dtype_of(ir.ShapedType(type_).element_type)
            results.append(memory_of(np.zeros(shape, dtype), steps))
        execute(kernel, [flat for flat, _ in (*buffers, *results)], seed)
        found.append([view.copy() for _, view in results])
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other)), "orders of threads differ"
    return found[0]


def memory_of(array: np.ndarray, strides: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
    """The memory that a buffer spans, and the array's view of it."""
    steps = strides if strides is not None else dense_strides(array.shape)
    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, steps)) if array.size else 0
    flat = np.zeros(span, array.dtype)
    view = np.lib.stride_tricks.as_strided(flat, array.shape, [s * array.itemsize for s in steps])
    view[...] = array
    return flat, view


def strides_of(function: ir.Operation, name: str) -> list[list[int] | None]:
    type_ = function.attributes["function_type"].value
    count = len(type_.inputs if name == "arg_attrs" else type_.results)
    if name not in function.attributes:
        return [None] * count
    entries = [ir.DictAttr(entry) for entry in function.attributes[name]]
    return [list(ir.DenseI64ArrayAttr(e[STRIDES])) if STRIDES in e else None for e in entries]


def viewed(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    """What an operation of @main that computes nothing gives."""
    if op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        return operands[0].reshape(tuple(ir.ShapedType(op.results[0].type).shape))
    if op.name == "tensor.extract_slice":
        return operands[0][box(op)].reshape(tuple(ir.ShapedType(op.results[0].type).shape))
    if op.name == "tensor.insert_slice":
        result = operands[1].copy()
        place = result[box(op)]
        place[...] = operands[0].reshape(place.shape)
        return result
    if op.name == "tensor.empty":
        type_ = ir.ShapedType(op.results[0].type)
        return np.zeros(tuple(type_.shape), dtype_of(type_.element_type))
    if op.name == "arith.constant":
        return np.array(op.attributes["value"])
    raise AssertionError(f"{op.name} in @main")


def box(op: ir.Operation) -> tuple[slice, ...]:
    fields = [list(op.attributes[name]) for name in ("static_offsets", "static_sizes", "static_strides")]
    return tuple(slice(o, o + n * s, s) for o, n, s in zip(*fields))


_DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i64": np.int64, "i32": np.int32,
    "i16": np.int16, "i8": np.int8, "i1": np.bool_,
}  # fmt: skip


def dtype_of(element: ir.Type) -> type:
    return _DTYPES[str(element)]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().contiguous().view(torch.uint16).numpy()
    return tensor.detach().contiguous().numpy()


def torch_of(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


def agree(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float = 2e-5) -> None:
    """Raises AssertionError unless results are PyTorch's, to rounding of their type."""
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected):
        allowed = {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}.get(
            theirs.dtype, tolerance
        )
        ours = ours.reshape(theirs.shape)
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=allowed, atol=allowed, equal_nan=True)
