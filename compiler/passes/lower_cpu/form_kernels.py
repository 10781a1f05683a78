"""Gives a dispatch the shape of a kernel: destinations passed in, an rTask id, a status word, scratch.

    func @d(%a: tensor<4xf32>) -> tensor<4xf32>
      =>
    func @d(%task: index, %a: memref<4xf32>, %out: memref<4xf32>, %status: memref<1xi32>, %scratch: memref<?xi8>)

Every buffer argument is `llvm.noalias`: the plan never lets a dispatch write what it reads. A tensor with
`tilewright.strides` lies inside of a larger one and becomes a strided memref; the caller passes where it starts.

A dispatch that is `tilewright.overwrites` reads that argument where its result is written: the caller passes one place twice.
Where it `tilewright.replaces` every element of it, `map-tasks` says so, once loops read and write single elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES, buffer_types, overwritten
from tilewright.compiler.ir import bufferization, func, functions, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class FormKernels(Pass):
    """Rewrites every function of the module, which holds dispatches only."""

    def run(self, op: ir.Operation) -> None:
        dispatches = list(functions(op.opview))
        for function in dispatches:
            self.check(function)
        for function in dispatches:
            _form(function)

    def check(self, function: ir.Operation) -> None:
        """Raises PassError unless the function is a dispatch: one block, static tensors in and out, no calls."""
        type_ = function.attributes["function_type"].value
        for value in (*type_.inputs, *type_.results):
            if not isinstance(value, ir.RankedTensorType) or not ir.ShapedType(value).has_static_shape:
                raise self.refusal(function, f"expected tensors of static shape in and out, found {value}")
        if len(function.regions[0].blocks) != 1:
            raise self.refusal(
                function, "expected one block, found branches; a dispatch holds structured control flow"
            )
        for call in walk(function, "func.call"):
            raise self.refusal(call, "expected a dispatch, found a call; form kernels of single dispatches")
        if OVERWRITES in function.attributes:
            number, inputs = overwritten(function), list(type_.inputs)
            if number >= len(inputs) or list(type_.results) != [inputs[number]]:
                expected = "the number of an argument of the type of the only result"
                raise self.refusal(function, f"`{OVERWRITES}`: expected {expected}, found {number}")


def _form(function: ir.Operation) -> None:
    view = function.opview
    block = view.entry_block
    *_, terminator = block.operations
    tensors = list(block.arguments)
    index = ir.IndexType.get()
    buffers = buffer_types(function)
    inputs, outputs = buffers[: len(tensors)], buffers[len(tensors) :]
    status = ir.MemRefType.get([1], ir.IntegerType.get_signless(32))
    scratch = ir.MemRefType.get([_scratch_bound()], ir.IntegerType.get_signless(8))
    types = [index, *inputs, *outputs, status, scratch]
    for type_ in types:
        block.add_argument(type_, function.location)
    added = list(block.arguments)[len(tensors) :]
    is_kept = OVERWRITES in function.attributes and REPLACES not in function.attributes
    kept = overwritten(function) if is_kept else None
    with ir.InsertionPoint.at_block_begin(block), function.location:
        for number, (tensor, buffer) in enumerate(zip(tensors, added[1:])):
            place = added[1 + len(inputs)] if number == kept else buffer
            value = bufferization.to_tensor(tensor.type, place, restrict=True, writable=number == kept)
            tensor.replace_all_uses_with(value)
    with ir.InsertionPoint(terminator), function.location:
        for result, buffer in zip(terminator.operation.operands, added[1 + len(inputs) :]):
            bufferization.materialize_in_destination(None, result, buffer, restrict=True, writable=True)
        func.return_([])
    terminator.operation.erase()
    for _ in tensors:
        block.erase_argument(0)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    plain = ir.DictAttr.get({})
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([plain, *[noalias] * (len(types) - 1)])
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    if "sym_visibility" in function.attributes:
        del function.attributes["sym_visibility"]


def _scratch_bound() -> int:
    # A static extent keeps the bare-pointer calling convention; scratch is addressed by byte offsets only.
    return 1 << 40
