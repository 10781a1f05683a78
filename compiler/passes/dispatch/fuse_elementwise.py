"""Fuses element-wise operations of a dispatch into each other and into reductions, but no padding into windows.

    %p = linalg.generic { yield select(%in, tensor.extract %x[..], %zero) }        // padding of one input
    %y = linalg.generic ins(%p) ; %z = linalg.generic ins(%y), relu          =>    %p and %y as they were, %z with what followed it

Upstream's fusion would pull the gather into the windows, which compute it once for every tap and read no memory in
vectors then; an rTask pads for itself instead (`split-pads`).

Operations without a reduction that add to what their result held before, as a product over one step does, read that as an input
first: upstream's fusion keeps such a result beside the other, and adds to it again for every step of a loop that only the other has.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.padding import slid_padding
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import bufferization, ir, run_upstream, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Runs `linalg-fuse-elementwise-ops`, which leaves what has a second reader: padding is given one for that time."""

    def run(self, op: ir.Operation) -> None:
        readers = []
        for generic in walk(op, "linalg.generic"):
            generic = _read_apart(generic)
            if slid_padding(generic) is not None or _read_by_contraction(generic):
                with ir.InsertionPoint.after(generic), generic.location:
                    readers.append(bufferization.DeallocTensorOp(generic.results[0]).operation)
        run_upstream(op, f"{op.name}(linalg-fuse-elementwise-ops)")
        for reader in readers:
            reader.erase()


def _read_by_contraction(generic: ir.Operation) -> bool:
    """Whether a contraction reads what an element-wise operation gives."""
    readers = (Structured.read(use.owner.operation) for result in generic.results for use in result.uses)
    return any(reader is not None and reader.is_contraction for reader in readers)


def _read_apart(generic: ir.Operation) -> ir.Operation:
    """The operation with an input for what its result held before, where it is element-wise and reads that."""
    structured = Structured.read(generic)
    if (
        structured is None
        or not structured.is_elementwise
        or not structured.accumulates
        or len(generic.results) != 1
    ):
        return generic
    *inputs, start = generic.operands
    type_ = ir.RankedTensorType(start.type)
    with ir.InsertionPoint(generic), generic.location:
        made = ir.Operation.create(
            "linalg.generic",
            results=[type_],
            operands=[*inputs, start, tensor.empty(static_shape(type_), type_.element_type)],
            attributes={
                **{name: generic.attributes[name] for name in generic.attributes},
                "indexing_maps": ir.ArrayAttr.get(
                    [ir.AffineMapAttr.get(map_) for map_ in (*structured.maps, structured.result_map)]
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs) + 1, 1]),
            },
            regions=1,
        )
    body = structured.body
    body.append_to(made.regions[0])
    body.add_argument(type_.element_type, generic.location)
    generic.results[0].replace_all_uses_with(made.results[0])
    generic.erase()
    return made
