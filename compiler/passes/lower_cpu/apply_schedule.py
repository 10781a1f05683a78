"""Cuts a dispatch into rTasks as its schedule says, and fuses every producer into the cut.

    func @d(%a, %b) -> tensor<197x3072xf32>          scf.forall (%i, %j) = (0, 0) to (197, 3072) step (50, 64)
      %0 = linalg.fill                                 %i' = affine.min(%i, 147)
      %1 = linalg.generic  // matmul            =>     fill, matmul, bias on tensor<50x64xf32> slices at [%i', %j]
      %2 = linalg.generic  // bias                     parallel_insert_slice into the result

Upstream's tile-and-fuse gives the last, ragged tile a dynamic size. Here it is moved back to overlap its
neighbour instead, so that every rTask computes one static shape; the elements computed twice get the same
value twice. That asks of the sink that it only writes its result: where it reads it back (an accumulation),
rTasks accumulate in memory of their own and a copy becomes the sink.

Where a product takes another part of a tensor at each step of some loops, an rTask walks these by single steps, whatever it
has of them, and the gather of one part becomes a slice of the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.chosen_parts import chosen_parts, walked_loops
from tilewright.compiler.analysis.line_operations import Lines, lines_of
from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES, overwritten
from tilewright.compiler.analysis.sink import _VIEWS, Loops, packed_blocks, sink_of
from tilewright.compiler.analysis.written_over import kept_argument, replaced_arguments
from tilewright.compiler.dialects import reduction_attribute, schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.panels import fetched_panels
from tilewright.compiler.families.cpu.walked_rows import ALONG, walked_rows
from tilewright.compiler.ir import (
    affine,
    arith,
    functions,
    ir,
    parse,
    run_upstream,
    tensor,
    transform_interpreter,
    walk,
)
from tilewright.compiler.nouns.schedule import FETCHING, THROUGH_MEMORY, Schedule
from tilewright.compiler.passes.dispatch.erase_unread_generics import EraseUnreadGenerics
from tilewright.compiler.passes.dispatch.materialize_returns import copy_of
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.cut_lines import cut_lines
from tilewright.compiler.rewriting.gathered_parts import read_in_place

_SINK = "tilewright.sink"
_LISTED = f"{', '.join(FETCHING[:-1])} or {FETCHING[-1]}"


@dataclass(frozen=True)
class ApplySchedule(Pass):
    """Applies `tilewright.schedule` of every function that has one: tiles, and marks what `reductions` say of each."""

    def run(self, op: ir.Operation) -> None:
        module = op
        for function in list(functions(module.opview)):
            replaces = REPLACES in function.attributes
            self.check_overwritten(function, replaces)
            schedule = schedule_attribute.read(function)
            lines = lines_of(function)
            if lines is not None:
                _cut_lines(function, lines, schedule or Schedule())
                continue
            if schedule is None:
                continue
            reduction_attribute.mark(function, schedule)
            if schedule.stream:
                _mark_stream(function, schedule)
            if schedule.prefetch:
                _mark_prefetch(function, schedule)
            walked = walked_loops(function)
            if not any(schedule.tile) and not walked:
                continue
            sink = sink_of(function)
            illegal = f"dispatch @{ir.StringAttr(function.attributes['sym_name']).value}: illegal schedule"
            if sink is None:
                raise ScheduleError(
                    f"{illegal}: the schedule tiles, but the dispatch has no sink that can be tiled; use tile = []",
                    function.location,
                )
            loops = Loops.of(sink)
            schedule_attribute.check(function, schedule, loops.extents, list(loops.kinds))
            ragged = [i for i, (s, e) in enumerate(zip(schedule.tile, loops.extents)) if s and e % s]
            tile = schedule.tile
            if replaces and ragged:
                raise ScheduleError(
                    f"{illegal}: tile {list(tile)} does not divide loop {ragged[0]} of a result that is written over what "
                    "it is computed from, which must not be computed twice; use a divisor or 0",
                    function.location,
                )
            if ragged and loops.accumulates:
                order = _output_loops(sink)
                if order is not None:
                    tile = tuple(tile[loop] if loop < len(tile) else 0 for loop in order)
            if ragged and loops.accumulates and order is None:
                raise ScheduleError(
                    f"{illegal}: tile {list(schedule.tile)} does not divide loop {ragged[0]} of extent "
                    f"{loops.extents[ragged[0]]}, and the sink accumulates into its result; use a divisor or 0",
                    function.location,
                )
            for loop, block in packed_blocks(function, sink):
                size = schedule.tile[loop] if loop < len(schedule.tile) else 0
                if size and size % block and block % size:
                    raise ScheduleError(
                        f"{illegal}: tile {size} of loop {loop} crosses the blocks of {block} that an operand is "
                        "packed in; use a divisor or a multiple",
                        function.location,
                    )
            if ragged and loops.accumulates:
                sink = _written_once(sink)
            _localize_starts(sink)
            if sink.name == "linalg.generic":
                _reshape_starts(sink)
            _tile(module, sink, tile, walked)
            for forall in walk(function, "scf.forall"):
                _overlap(forall)
            for generic in walk(function, "linalg.generic"):
                chosen = chosen_parts(generic)
                if chosen is not None and chosen.is_one:
                    read_in_place(chosen)

    def check_overwritten(self, function: ir.Operation, replaces: bool) -> None:
        """Raises PassError where the result of a dispatch may not be written over the argument that it says."""
        if OVERWRITES not in function.attributes:
            return
        kept = kept_argument(function)
        known = replaced_arguments(function) if replaces else [] if kept is None else [kept]
        if overwritten(function) not in known:
            what = (
                "every element of the result is computed from" if replaces else "is the result but for a part"
            )
            expected = f"the number of an argument that {what}"
            raise self.refusal(
                function, f"`{OVERWRITES}`: expected {expected}, found {overwritten(function)}"
            )


def _cut_lines(function: ir.Operation, lines: Lines, schedule: Schedule) -> None:
    """Cuts a scan, a sort or a scatter, whose lines begin with what the dispatch says, each in its own rTask."""
    reduction_attribute.mark(function, schedule)
    schedule_attribute.check(function, schedule, lines.extents, list(lines.kinds))
    name = ir.StringAttr(function.attributes["sym_name"]).value
    for field, said in (("stream", schedule.stream), ("prefetch", schedule.prefetch)):
        if said:
            raise ScheduleError(
                f"dispatch @{name}: illegal schedule: {field} is {str(said).lower()}, but it goes along lines one step after the "
                f"other; leave {field} out",
                function.location,
            )
    in_place = OVERWRITES in function.attributes
    for loop, (size, extent) in enumerate(zip(schedule.tile, lines.extents)):
        if in_place and size and extent % size:
            raise ScheduleError(
                f"dispatch @{name}: illegal schedule: tile {size} does not divide loop {loop} of extent {extent} of what is "
                "changed where it lies, which must not be changed twice; use a divisor or 0",
                function.location,
            )
    cut_lines(lines, schedule.tile, in_place)


def _mark_stream(function: ir.Operation, schedule: Schedule) -> None:
    sink = sink_of(function)
    illegal = (
        f"dispatch @{ir.StringAttr(function.attributes['sym_name']).value}: illegal schedule: stream is true"
    )
    if REPLACES in function.attributes:
        raise ScheduleError(
            f"{illegal}, and the result is written over what it is computed from, which must not be computed twice; leave stream "
            "out",
            function.location,
        )
    if sink is None or sink.name != "linalg.generic":
        raise ScheduleError(
            f"{illegal}, but no operation on elements computes what the dispatch returns; leave stream out",
            function.location,
        )
    for number, reduction in enumerate(schedule.reductions):
        if reduction.loops not in THROUGH_MEMORY:
            raise ScheduleError(
                f"{illegal}, but reductions[{number}] says `{reduction.text()}`, which stores its results from registers; "
                "name other loops, or leave stream out",
                function.location,
            )
    sink.attributes[reduction_attribute.STREAM] = ir.UnitAttr.get()


def _mark_prefetch(function: ir.Operation, schedule: Schedule) -> None:
    marked = {*fetched_panels(function, schedule.reductions)}
    if any(schedule.tile):
        marked |= {n for n in walked_rows(function) if schedule.reductions[n].loops == ALONG}
    if not marked:
        raise ScheduleError(
            f"dispatch @{ir.StringAttr(function.attributes['sym_name']).value}: illegal schedule: prefetch is "
            f"{schedule.prefetch}, but no reduction multiplies by an operand that is packed, by {_LISTED}, or walks rows, "
            "of which rTasks take some, for the second time along memory; leave prefetch out",
            function.location,
        )
    for number, op in enumerate(reduction_attribute.reductions_of(function)):
        if number in marked:
            reduction_attribute.write_prefetch(op, schedule.prefetch)


def _output_loops(sink: ir.Operation) -> list[int] | None:
    """The loops that the dimensions of the sink's one result follow, None unless each follows one loop."""
    if sink.name != "linalg.generic" or len(sink.results) != 1:
        return None
    *_, map_ = (ir.AffineMapAttr(a).value for a in sink.attributes["indexing_maps"])
    return [expr.position for expr in map_.results] if all(is_dim(expr) for expr in map_.results) else None


def _written_once(sink: ir.Operation) -> ir.Operation:
    """Lets each rTask accumulate in memory of its own: the new sink copies, and may do so twice where tiles overlap."""
    uses = [(use.owner.operation, use.operand_number) for use in sink.results[0].uses]
    with ir.InsertionPoint.after(sink), sink.location:
        copied = copy_of(sink.results[0])
    for user, position in uses:
        user.operands[position] = copied
    return copied.owner.operation


def _localize_starts(sink: ir.Operation) -> None:
    """Copies what the sink accumulates onto when it comes from outside, so that each rTask starts its own tile.

    Without the copy, bufferization would initialise the whole result once, ahead of all rTasks.
    """
    if sink.name != "linalg.generic":
        return
    inputs = len(sink.operands) - len(sink.results)
    for position in range(inputs, len(sink.operands)):
        value = sink.operands[position]
        if isinstance(value.owner, ir.Block) or value.owner.name == "arith.constant":
            with ir.InsertionPoint(sink), sink.location:
                sink.operands[position] = copy_of(value)


def _reshape_starts(sink: ir.Operation) -> None:
    """Starts results in a tensor of their own shape: a reshape of an empty one has no place in the caller's buffer."""
    for place in range(len(sink.operands) - len(sink.results), len(sink.operands)):
        user, value = sink, sink.operands[place]
        if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "linalg.fill":
            user, place = value.owner.operation, 1
            value = user.operands[place]
        if isinstance(value.owner, ir.Block) or value.owner.operation.name not in _VIEWS:
            continue
        source = value.owner.operation.operands[0].owner
        if not isinstance(source, ir.Block) and source.operation.name == "tensor.empty":
            with ir.InsertionPoint(user), user.location:
                shaped = ir.RankedTensorType(value.type)
                user.operands[place] = tensor.empty(list(shaped.shape), shaped.element_type)


def _tile(module: ir.Operation, sink: ir.Operation, tile: tuple[int, ...], walked: tuple[int, ...]) -> None:
    """Cuts the sink's loops into rTasks, and inside of one into single steps those that it walks."""
    sink.attributes[_SINK] = ir.UnitAttr.get()
    steps = [int(loop in walked) for loop in range(max(walked, default=-1) + 1)]
    cuts, cut = [], "%sink"
    for sizes, form, loops in ((tile, "{use_forall}", 1), (steps, "", len(walked))):
        if any(sizes):
            to, kinds = f"%cut{len(cuts)}", ", ".join(["!transform.any_op"] * (1 + loops))
            cuts.append(
                f"{to}:{1 + loops} = transform.structured.fuse {cut} tile_sizes {list(sizes)} {form} "
                f": (!transform.any_op) -> ({kinds})"
            )
            cut = f"{to}#0"
    script = parse(
        f"""module attributes {{transform.with_named_sequence}} {{
          transform.named_sequence @__transform_main(%module: !transform.any_op) {{
            %sink = transform.structured.match attributes {{{_SINK}}} in %module : (!transform.any_op) -> !transform.any_op
            {" ".join(cuts)}
            transform.yield
          }}
        }}"""
    )
    sequence = script.body.operations[0]
    transform_interpreter.apply_named_sequence(module, sequence, script)
    for op in walk(module):
        if _SINK in op.attributes:
            del op.attributes[_SINK]
    # A producer with a run-time check in its body stays behind although every use of it was fused.
    run_upstream(module, f"{module.name}(canonicalize,cse)")
    EraseUnreadGenerics().run(module)
    run_upstream(module, f"{module.name}(canonicalize)")


def _overlap(forall: ir.Operation) -> None:
    """Moves ragged last tiles back to full size: `iv` becomes `min(iv, extent - step)`."""
    uppers, steps = (list(forall.attributes[name]) for name in ("staticUpperBound", "staticStep"))
    block = forall.regions[0].blocks[0]
    for i, (upper, step) in enumerate(zip(uppers, steps)):
        if upper % step == 0:
            continue
        induction = block.arguments[i]
        users = [(use.owner.operation, use.operand_number) for use in induction.uses]
        with ir.InsertionPoint.at_block_begin(block), forall.location:
            d0 = ir.AffineExpr.get_dim(0)
            start = affine.AffineMinOp(
                ir.AffineMap.get(1, 0, [d0, ir.AffineExpr.get_constant(upper - step)]), [induction]
            ).result
            size = arith.constant(ir.IndexType.get(), step)
        for user, operand in users:
            if user.name == "affine.min" and _is_remaining(user, upper, step):
                user.results[0].replace_all_uses_with(size)
            else:
                user.operands[operand] = start
    run_upstream(forall.parent, f"{forall.parent.name}(canonicalize,cse)")


def _is_remaining(op: ir.Operation, upper: int, step: int) -> bool:
    """Whether `op` computes `min(upper - iv, step)`, the size of a ragged tile."""
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    d0 = ir.AffineExpr.get_dim(0)
    expected = {str(ir.AffineExpr.get_constant(step)), str(d0 * -1 + upper)}
    return map_.n_dims == 1 and {str(expr) for expr in map_.results} == expected
