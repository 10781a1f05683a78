"""Reads a dispatch as rows: chains of element-wise operations and reductions along the same loops of every row.

    m[i] = max over j of x[i, j] ; e[i, j] = exp(x[i, j] - m[i]) ; s[i] = sum over j of e[i, j] ; y[i, j] = e[i, j] / s[i]

Loops of different operations are one *axis* where a tensor in between says so. Axes that any operation reduces are
columns, the others rows; every reduction goes over all columns of a row, so rows do not depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.placement import groups_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.rows.combine import Combination, read_combinations
from tilewright.compiler.ir import ir, static_shape


class NotRows(Declined):
    """The dispatch is not of this form; the message says why."""


_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True, eq=False)
class Step:
    """One operation: the axis of each of its loops (-1 for a loop of one step), and how its results combine."""

    generic: Structured
    axes: tuple[int, ...]
    combinations: tuple[Combination, ...]

    @property
    def reduces(self) -> bool:
        return bool(self.combinations)

    @property
    def op(self) -> ir.Operation:
        return self.generic.op


@dataclass(frozen=True, eq=False)
class RowProblem:
    """A dispatch as rows. `extents` are the axes'; `rows` and `columns` are numbers of axes, in order of their loops.

    `rank` says of every step how many rounds of reductions its operands wait for. `results` are the values returned.
    """

    function: ir.Operation
    extents: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    steps: tuple[Step, ...]
    rank: dict[ir.Operation, int]
    results: tuple[ir.Value, ...]

    @property
    def num_rows(self) -> int:
        return math.prod(self.extents[axis] for axis in self.rows)

    @property
    def num_columns(self) -> int:
        return math.prod(self.extents[axis] for axis in self.columns)

    def step_of(self, value: ir.Value) -> Step | None:
        """The step that computes a value, None for what is none's."""
        return next((s for s in self.steps if value in list(s.op.results)), None)

    def is_full(self, step: Step) -> bool:
        """Whether a step's results have elements for every column of a row."""
        return not step.reduces and any(axis in self.columns for axis in step.axes)

    @property
    def rounds(self) -> int:
        """How many rounds of reductions follow each other."""
        return 1 + max(self.rank[s.op] for s in self.steps if s.reduces)

    @property
    def splittable(self) -> bool:
        """Whether parts of a row can be reduced apart: nothing but whole rows waits for the only round."""
        computed = [self.step_of(stripped(value)) for value in self.results]
        return self.rounds == 1 and not any(s is not None and self.is_full(s) for s in computed)

    def reductions(self, rank: int) -> list[Step]:
        """Reductions of one round: none of them waits for another."""
        return [s for s in self.steps if s.reduces and self.rank[s.op] == rank]


def read_rows(function: ir.Operation) -> RowProblem:
    """The rows that a dispatch on tensors computes; raises NotRows with the reason where it is none."""
    block = function.regions[0].blocks[0]
    if len(function.regions[0].blocks) != 1:
        raise NotRows("branches")
    *ops, terminator = (view.operation for view in block.operations)
    generics: list[Structured] = []
    for op in ops:
        read = Structured.read(op)
        if read is not None:
            generics.append(read)
        elif op.name not in ("tensor.empty", "linalg.fill", *_RESHAPES) and not _is_scalar(op):
            raise NotRows(f"{op.name}")
    if all(g.is_elementwise for g in generics):
        raise NotRows("no reduction")
    if any(g.is_contraction for g in generics):
        raise NotRows("a contraction")
    if any((not g.extents and g.maps[0].n_dims) or 0 in g.extents for g in generics):
        raise NotRows("a loop of no steps")
    return _Reader(function, generics, list(terminator.operands)).read()


def _is_scalar(op: ir.Operation) -> bool:
    return op.name.startswith(("arith.", "math.")) and not any(
        isinstance(value.type, ir.ShapedType) for value in (*op.operands, *op.results)
    )


def stripped(value: ir.Value) -> ir.Value:
    """What a reshape, or several, is made of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in _RESHAPES:
        value = value.owner.operation.operands[0]
    return value


def check_body(op: ir.Operation, function: ir.Operation) -> None:
    """Raises NotRows for an operation of a body that rows cannot compute."""
    known = op.name in ("linalg.index", "linalg.yield", "cf.assert") or op.name.startswith(
        ("arith.", "math.")
    )
    if op.name == "tensor.extract":
        known = op.operands[0] in list(function.regions[0].blocks[0].arguments)
    if not known or op.regions:
        raise NotRows(f"{op.name} in a body")


class _Reader:
    """Finds the axes: loops, as (operation, loop), that tensors in between make one."""

    def __init__(self, function: ir.Operation, generics: list[Structured], results: list[ir.Value]):
        self.function, self.generics, self.returned = function, generics, results
        self.parents: dict[tuple[int, int], tuple[int, int]] = {}
        self.dims: dict[ir.Value, list[tuple[int, int] | None]] = {}

    def read(self) -> RowProblem:
        for number, generic in enumerate(self.generics):
            self.join(number, generic)
        self.join_through_arguments()
        self.join_reductions()
        extents, axes = self.axes()
        reduced = {
            axes[(n, i)]
            for n, g in enumerate(self.generics)
            for i, kind in enumerate(g.kinds)
            if kind == "reduction" and g.extents[i] > 1
        }
        if not reduced:
            raise NotRows("reductions of one element")
        steps = []
        for n, g in enumerate(self.generics):
            own = tuple(axes.get((n, i), -1) for i in range(len(g.kinds)))
            steps.append(self.step(g, own, reduced, len(extents)))
        order = sorted({axis for s in steps if s.reduces for axis in s.axes if axis >= 0})
        rest = sorted({axis for s in steps for axis in s.axes if axis >= 0} - set(order))
        if rest:
            raise NotRows("rows that a reduction is repeated for")
        columns = tuple(axis for axis in order if axis in reduced)
        rows = tuple(axis for axis in order if axis not in reduced)
        for value in self.returned:
            if not any(stripped(value) in list(s.op.results) for s in steps):
                raise NotRows("a result that no operation computes")
        ranks = self.ranks(steps)
        return RowProblem(self.function, extents, rows, columns, tuple(steps), ranks, tuple(self.returned))

    def join(self, number: int, generic: Structured) -> None:
        for operand, map_ in zip(generic.op.operands, generic.maps):
            dims = self.dims_of(operand)
            if dims is None:
                continue
            for expr, dim in zip(map_.results, dims):
                if is_dim(expr):
                    if dim is not None:
                        self.unite((number, expr.position), dim)
                elif dim is not None or not isinstance(expr, ir.AffineConstantExpr):
                    raise NotRows("a tensor in between is read in another order than it is written")
        for result, map_ in zip(generic.op.results, generic.maps[generic.num_inputs :]):
            if not all(is_dim(expr) or isinstance(expr, ir.AffineConstantExpr) for expr in map_.results):
                raise NotRows("a result is written out of order")
            self.dims[result] = [
                (number, expr.position) if is_dim(expr) and generic.extents[expr.position] > 1 else None
                for expr in map_.results
            ]

    def join_through_arguments(self) -> None:
        """Loops that read the same dimension of an argument are one axis where nothing speaks against it.

        Which elements two reductions go over at the same time is free: this lets one access serve both.
        """
        first: dict[tuple[ir.Value, int], tuple[int, int]] = {}
        for number, generic in enumerate(self.generics):
            for operand, map_ in zip(generic.op.operands, generic.maps):
                if not isinstance(operand.owner, ir.Block) or not isinstance(
                    operand.type, ir.RankedTensorType
                ):
                    continue
                for place, expr in enumerate(map_.results):
                    if is_dim(expr) and generic.extents[expr.position] > 1:
                        node = (number, expr.position)
                        self.unite_freely(first.setdefault((operand, place), node), node)

    def join_reductions(self) -> None:
        """Reductions without an argument in common go over their columns in the order of their loops."""
        found = [
            [(n, i) for i, kind in enumerate(g.kinds) if kind == "reduction" and g.extents[i] > 1]
            for n, g in enumerate(self.generics)
            if not g.is_elementwise
        ]
        for nodes in found[1:]:
            if len(nodes) == len(found[0]):
                for one, other in zip(found[0], nodes):
                    self.unite_freely(one, other)

    def unite_freely(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        """Makes two loops one axis unless an operation would have two loops along it."""
        (n, i), (m, j) = one, other
        roots = {self.root(one), self.root(other)}
        if self.generics[n].extents[i] != self.generics[m].extents[j] or len(roots) == 1:
            return
        for number, generic in enumerate(self.generics):
            own = [self.root((number, loop)) for loop, extent in enumerate(generic.extents) if extent > 1]
            if sum(root in roots for root in own) > 1:
                return
        self.unite(one, other)

    def dims_of(self, value: ir.Value) -> list[tuple[int, int] | None] | None:
        """The loop of every dimension of a tensor computed in the dispatch; None for arguments and fills."""
        if value in self.dims:
            return self.dims[value]
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.operation.name not in _RESHAPES:
            return None
        op = owner.operation
        dims = self.dims_of(op.operands[0])
        if dims is None:
            return None
        small, large = (op.operands[0], op.results[0])
        if op.name == "tensor.collapse_shape":
            small, large = large, small
        shape = static_shape(large.type)
        found: list[tuple[int, int] | None] = [None] * (
            len(shape) if op.name == "tensor.expand_shape" else len(static_shape(small.type))
        )
        for place, group in enumerate(groups_of(op)):
            whole = [d for d in group if shape[d] > 1]
            if len(whole) > 1:
                raise NotRows("a reshape between operations")
            if whole and op.name == "tensor.expand_shape":
                found[whole[0]] = dims[place]
            elif whole:
                found[place] = dims[whole[0]]
        self.dims[value] = found
        return found

    def root(self, node: tuple[int, int]) -> tuple[int, int]:
        while self.parents.get(node, node) != node:
            node = self.parents[node]
        return node

    def unite(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        first, second = sorted((self.root(one), self.root(other)))
        self.parents[second] = first

    def axes(self) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Extents of all axes, and the axis of every loop of more than one step."""
        extents: list[int] = []
        numbers: dict[tuple[int, int], int] = {}
        found: dict[tuple[int, int], int] = {}
        for n, g in enumerate(self.generics):
            for i, extent in enumerate(g.extents):
                if extent == 1:
                    continue
                root = self.root((n, i))
                if root not in numbers:
                    numbers[root] = len(extents)
                    extents.append(extent)
                if extents[numbers[root]] != extent:
                    raise NotRows("loops of different lengths over one tensor")
                found[(n, i)] = numbers[root]
        return tuple(extents), found

    def step(self, generic: Structured, axes: tuple[int, ...], reduced: set[int], count: int) -> Step:
        whole = [axis for axis in axes if axis >= 0]
        if len(set(whole)) != len(whole):
            raise NotRows("two loops of one operation along the same axis")
        for view in generic.body.operations:
            check_body(view.operation, self.function)
        if generic.is_elementwise:
            return Step(generic, axes, ())
        over = {axis for axis, kind in zip(axes, generic.kinds) if kind == "reduction" and axis >= 0}
        if over != reduced:
            raise NotRows("reductions along different axes")
        combinations = read_combinations(generic)
        if combinations is None:
            raise NotRows("a reduction that cannot be regrouped")
        return Step(generic, axes, combinations)

    def ranks(self, steps: list[Step]) -> dict[ir.Operation, int]:
        ready: dict[ir.Value, int] = {}
        found: dict[ir.Operation, int] = {}
        for step in steps:
            rank = max((ready.get(stripped(v), 0) for v in step.op.operands), default=0)
            found[step.op] = rank
            for result in step.op.results:
                ready[result] = rank + int(step.reduces)
        return found
