"""Products of a few rows with the same weight become one product: the weight is read once for all of them.

    %1 = linalg.matmul ins(%x1, %w) outs(%zero)     // [1, K] x [K, N]
    %2 = linalg.matmul ins(%x2, %w) outs(%zero)
      =>
    %x = tensor.concat dim(0) %x1, %x2
    %y = linalg.matmul ins(%x, %w) outs(%zeros)     // [2, K] x [K, N]
    %1 = tensor.extract_slice %y[0, 0] [1, N] [1, 1]
    %2 = tensor.extract_slice %y[1, 0] [1, N] [1, 1]

A recurrence that is written out has one such product of its inputs per layer and step, and one of its states. Those of
the inputs of one layer are batched; those of its states need each other.

Which products may be one: those that were computed with the same weights before, their own not among them. Then none
needs another, not by way of other batches either: whatever needs a product was computed with one weight more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.dependences import bits_before, in_order, needed_by
from tilewright.compiler.analysis.views import element_count
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import element_bytes, functions, ir, linalg, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target

_MAPS = "[affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]"


@dataclass(frozen=True)
class BatchProducts(Pass):
    """Batches `linalg.matmul`s of at most `most_rows` rows each, whose rows and results take `most_bytes` together.

    A product of more rows takes longer than reading its weight does. Left alone: products of what is no weight,
    other index maps, starts that are no fills, and results of dynamic shape.
    """

    most_rows: int = 16
    most_bytes: int = 1 << 20

    @classmethod
    def for_target(cls, target: Target) -> BatchProducts:
        """Rows that are multiplied while DRAM delivers an f32 weight; a quarter of the outermost cache for results."""
        dram, cache = target.memory[:2]
        rows = target.peak_gflops["f32"] * 4 / (2 * dram.bandwidth_gbps) if dram.bandwidth_gbps else 0
        return cls(int(rows), cache.capacity_bytes // 4)

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if len(function.regions[0].blocks) == 1:
                self._batch(function)

    def _batch(self, function: ir.Operation) -> None:
        *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
        shared = self._shared(function, ops)
        own = {number: 1 << bit for bit, members in enumerate(shared) for number in members}
        if not own:
            return
        needed = needed_by(ops)
        before = bits_before(needed, own)
        batch_of: dict[int, int] = {}
        batches: list[Sequence[int]] = []
        for members in shared:
            sets: dict[int, list[int]] = defaultdict(list)
            for number in members:
                if not before[number] & own[number]:
                    sets[before[number]].append(number)
            for alike in sets.values():
                for part in self._parts(alike, ops[alike[0]]):
                    batch_of.update((number, len(ops) + len(batches)) for number in part)
                    batches.append(part)
        if not batches:
            return
        # A batch needs what its products need, and what needs one of these needs the batch.
        needed += [[other for number in part for other in needed[number]] for part in batches]
        needed = [[batch_of.get(other, other) for other in numbers] for numbers in needed]
        groups = [[op] for op in ops] + [_batched([ops[number] for number in part]) for part in batches]
        for number in in_order(needed, (batch_of.get(n, n) for n in range(len(ops)))):
            for op in groups[number]:
                op.move_before(terminator)
        for number in batch_of:
            ops[number].erase()

    def _shared(self, function: ir.Operation, ops: Sequence[ir.Operation]) -> list[list[int]]:
        """Numbers of products that could be one, were it for weight and shape alone; nothing where none could."""
        groups: dict[tuple, list[int]] = defaultdict(list)
        for number, op in enumerate(ops):
            key = self._key(op)
            if key is not None:
                groups[key].append(number)
        found = [(key, members) for key, members in groups.items() if len(members) > 1]
        if not found:
            return []
        weights = WeightFlow.of(function, argument_roles(function)).values
        shared = [
            [n for n in members if ops[n].operands[0] not in weights]
            for (weight, *_), members in found
            if weight in weights
        ]
        return [members for members in shared if len(members) > 1]

    def _key(self, op: ir.Operation) -> tuple | None:
        """What products must have in common to be one: weight, start, shapes; None for what is left alone."""
        if op.name != "linalg.matmul" or len(op.results) != 1:
            return None
        if "indexing_maps" in op.attributes and str(op.attributes["indexing_maps"]) != _MAPS:
            return None
        rows, weight, start = op.operands
        types = [ir.RankedTensorType(value.type) for value in (rows, op.results[0])]
        if not all(type_.has_static_shape for type_ in types) or types[1].shape[0] > self.most_rows:
            return None
        if isinstance(start.owner, ir.Block) or start.owner.name != "linalg.fill":
            return None
        return weight, start.owner.operands[0], *map(str, types)

    def _parts(self, products: Sequence[int], first: ir.Operation) -> Iterator[Sequence[int]]:
        """The products, all like `first`, in runs that take `most_bytes` at most; runs of one are left out."""
        types = [ir.RankedTensorType(value.type) for value in (first.operands[0], first.results[0])]
        nbytes = sum(element_count(t) * element_bytes(t.element_type) for t in types)
        count = max(1, self.most_bytes // max(1, nbytes))
        for start in range(0, len(products), count):
            part = products[start : start + count]
            if len(part) > 1:
                yield part


def _batched(products: Sequence[ir.Operation]) -> list[ir.Operation]:
    """What computes `products` as one, and is read in their place; it must be moved behind their rows."""
    last = products[-1]
    type_ = ir.RankedTensorType(last.results[0].type)
    rows = [op.operands[0] for op in products]
    row = ir.RankedTensorType(rows[0].type)
    height, width = type_.shape
    count = height * len(products)
    with ir.InsertionPoint(last), last.location:
        joined = tensor.concat(ir.RankedTensorType.get([count, row.shape[1]], row.element_type), 0, rows)
        empty = tensor.empty([count, width], type_.element_type)
        start = linalg.fill(last.operands[2].owner.operands[0], outs=[empty])
        whole = linalg.matmul(joined, last.operands[1], outs=[start])
        parts = []
        for number, op in enumerate(products):
            place = [number * height, 0]
            parts.append(tensor.extract_slice(type_, whole, [], [], [], place, [height, width], [1, 1]))
            op.results[0].replace_all_uses_with(parts[-1])
    return [value.owner.operation for value in (joined, empty, start, whole, *parts)]
