"""Writes the computation of elements of tensors, several lanes at once, from the buffers that they go back to.

    result[m, n] = relu(x[m, n] + bias[n])   =>   %x = vector.load X[p] ; %b = vector.load BIAS[q]   // 4 lanes
                                                  %0 = addf %x[0], %b[0] ; %1 = maximumf %0, %zero ; ... per lane

Operations are followed back from the element that is wanted: element-wise operations, views, slices, insertions,
concatenations and gathers cost no memory in between. Integers that are computed from loop variables alone stay
quasi-affine indices (`Position`), so a slice, a flip or a wrapped index ends in an address that is known to be contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilewright.compiler.analysis.affine_access import composed
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.families.elementwise.access import Access, Buffer, load_lanes
from tilewright.compiler.families.elementwise.integers import folded
from tilewright.compiler.families.elementwise.positions import (
    Digit,
    Flat,
    Opaque,
    Position,
    at_lane,
    bounds,
    digits_of,
    divided,
    lane_steps,
)
from tilewright.compiler.families.elementwise.scalars import Unwritable, apply
from tilewright.compiler.ir import arith, ir, memref, scf, static_shape
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine, Term

Element = Position | list[ir.Value]
"""An integer known as a position, or one value for all lanes, or one per lane."""

_NARROW = 1 << 31
_UNROLLED = 64
"""Steps of a reduction that are written out; more become loops."""


class Elements:
    """Writes elements at the current insertion point; `lanes` points at once.

    `bases` are the numbers of points by the `Flat` they belong to; `accesses` collects how buffers were read. Where an
    element's neighbours are sure to be read too, `reads_neighbours`, the vector around it is. `differs_by_lane` is set
    where indices are divided or tensors concatenated, which holds for some numbers of lanes only.
    """

    def __init__(
        self, buffers: dict[ir.Value, Buffer], lanes: int, messages: list[str], status: ir.Value | None = None
    ):
        self.buffers, self.lanes, self.messages, self.status = buffers, lanes, messages, status
        self.bases: dict[int, ir.Value] = {}
        self.opaques: dict[int, ir.Value] = {}
        self.depends: dict[ir.Value, tuple[Digit, ...]] = {}
        self.accesses: list[Access] = []
        self.index = ir.IndexType.get()
        self.reads_neighbours = False
        self.differs_by_lane = False
        self._scopes: list[dict] = [{}]

    # What is known, by region.

    def remembered(self, key: tuple, make: Callable):
        """What `make` gave for `key` before, in this region or around it; else what it gives now."""
        for scope in self._scopes:
            if key in scope:
                return scope[key]
        found = make()
        self._scopes[-1][key] = found
        return found

    @contextmanager
    def region(self, block: ir.Block) -> Iterator[None]:
        """Writes into a block of a nested region; what is computed there is forgotten at its end."""
        with self.scope(), ir.InsertionPoint(block):
            yield

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forgets at its end what is computed inside."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    # Integers.

    def constant(self, type_: ir.Type, number: int | float) -> ir.Value:
        return self.remembered(("constant", type_, number), lambda: arith.constant(type_, number))

    def scalar(self, position: Position) -> ir.Value:
        """The value, of type index, of a position that is the same for all lanes."""
        own = position.merged()
        return self.remembered(("scalar", own), lambda: self._sum(own))

    def _sum(self, position: Position) -> ir.Value:
        if position.terms and position.offset:
            base = self.scalar(QuasiAffine(position.terms))
            return arith.addi(base, self.constant(self.index, position.offset))
        total = None
        for term in position.terms:
            value = self._term(term)
            if term.scale != 1:
                value = arith.muli(value, self.constant(self.index, term.scale))
            total = value if total is None else arith.addi(total, value)
        return total if total is not None else self.constant(self.index, position.offset)

    def _term(self, term: Term[Flat | Opaque]) -> ir.Value:
        """The value of a term without its scale."""
        variable = term.variable
        if isinstance(variable, Opaque):
            return self.opaques[variable.number]
        return self.remembered(
            ("digit", variable, term.divisor, term.modulus), lambda: self._digit(variable, term)
        )

    def _digit(self, flat: Flat, term: Term[Flat | Opaque]) -> ir.Value:
        value = self.bases[flat.number]
        if flat.lane > 0:
            value = arith.addi(value, self.constant(self.index, flat.lane))
        if term.divisor > 1:
            divisor = self.constant(self.index, term.divisor)
            key = ("quotient", flat, term.divisor)
            value = self.remembered(key, lambda: arith.divui(value, divisor))
        if term.takes_remainder(flat.range):
            value = arith.remui(value, self.constant(self.index, term.modulus))
        return value

    def opaque(
        self, value: ir.Value, low: int, high: int, digits: tuple[Digit, ...], multiple: int = 1
    ) -> Position:
        """A position for an index value within bounds, the same for all lanes."""

        def make() -> Position:
            self.opaques[len(self.opaques)] = value
            return QuasiAffine.of(Opaque(len(self.opaques) - 1, low, high, multiple, digits))

        return QuasiAffine((), low) if low == high else self.remembered(("opaque", value, low, high), make)

    def lane_positions(self, position: Position) -> list[Position]:
        """One position for all lanes where they agree, else one per lane."""
        steps = lane_steps(position, self.lanes)
        if steps is not None and not any(steps):
            return [at_lane(position, 0)]
        return [at_lane(position, lane) for lane in range(self.lanes)]

    def values(self, element: Element, type_: ir.Type) -> list[ir.Value]:
        """The values of an element: one for all lanes, or one per lane."""
        if isinstance(element, list):
            return element
        return [self._integer(own, type_, element) for own in self.lane_positions(element)]

    def _integer(self, position: Position, type_: ir.Type, origin: Position) -> ir.Value:
        if position.is_constant:
            return self.constant(type_, position.offset)
        if type_ == self.index:
            value = self.scalar(position)
        elif bounds(position).low >= -_NARROW and bounds(position).high < _NARROW:
            narrow = self.scalar(position)
            value = self.remembered(("cast", position, type_), lambda: arith.index_cast(type_, narrow))
        else:
            value = self.remembered(("wide", position, type_), lambda: self._wide_sum(position, type_))
        self.depends[value] = digits_of([origin])
        return value

    def _wide_sum(self, position: Position, type_: ir.Type) -> ir.Value:
        """A position beyond 32 bits, which positions in memory have where buffers are small."""
        total = self.constant(type_, position.offset)
        for term in position.merged().terms:
            value = arith.index_cast(type_, self._term(term))
            total = arith.addi(total, arith.muli(value, self.constant(type_, term.scale)))
        return total

    def all_lanes(self, element: Element, type_: ir.Type) -> list[ir.Value]:
        """The values of an element, one per lane."""
        values = self.values(element, type_)
        return values * self.lanes if len(values) == 1 else values

    # Tensors.

    def of(self, value: ir.Value, index: Sequence[Position]) -> Element:
        """The element `value[index]` for every lane; raises Unwritable for what is no such computation."""
        key = ("element", value, tuple(p.merged() for p in index))
        return self.remembered(key, lambda: self._of(value, key[2]))

    def at(self, value: ir.Value, index: Sequence[Element]) -> Element:
        """The element at an index that may have been computed: what leaves the tensor is moved to its edge."""
        shape = static_shape(value.type)
        entries = [self._bounded(entry, extent) for entry, extent in zip(index, shape)]
        if all(isinstance(entry, QuasiAffine) or len(entry) == 1 for entry in entries):
            return self.of(value, [self._clamped(e, n, 0) for e, n in zip(entries, shape)])
        found: list[ir.Value] = []
        element = ir.RankedTensorType(value.type).element_type
        for lane in range(self.lanes):
            own = [at_lane(self._clamped(e, n, lane), lane) for e, n in zip(entries, shape)]
            found.append(self.values(self.of(value, own), element)[0])
        return found

    def _bounded(self, entry: Element, extent: int) -> Element:
        if not isinstance(entry, QuasiAffine):
            return entry
        low, high, _ = bounds(entry)
        return self.values(entry, self.index) if low < 0 or high >= extent else entry

    def _clamped(self, entry: Element, extent: int, lane: int) -> Position:
        if isinstance(entry, QuasiAffine):
            return entry
        value = entry[min(lane, len(entry) - 1)]

        def make() -> ir.Value:
            low, high = self.constant(self.index, 0), self.constant(self.index, extent - 1)
            return arith.maxsi(low, arith.minsi(value, high))

        inside = self.remembered(("clamped", value, extent), make)
        return self.opaque(inside, 0, extent - 1, self.depends.get(value, ()))

    def _of(self, value: ir.Value, index: tuple[Position, ...]) -> Element:
        if value in self.buffers:
            return load_lanes(self, self.buffers[value], index)
        op = producer(value)
        if op is None:
            raise Unwritable("an argument that is no buffer")
        if op.name == "linalg.generic":
            return self._generic(op, value, index)
        reader = _READERS.get(op.name)
        if reader is None:
            raise Unwritable(f"{op.name} where elements are computed")
        return reader(self, op, index)

    def outside(self, value: ir.Value) -> Element:
        """A scalar that is computed outside of all loops."""
        op = producer(value)
        if op is None or len(op.regions):
            raise Unwritable("a scalar that is computed by branches")
        return self.remembered(("outside", value), lambda: self.operation(op, self.outside))

    # Bodies of element-wise operations and reductions.

    def _generic(self, op: ir.Operation, value: ir.Value, index: tuple[Position, ...]) -> Element:
        structured = Structured.read(op)
        if structured is None:
            raise Unwritable("an operation of dynamic shape")
        number = list(op.results).index(value)
        written = structured.maps[structured.num_inputs + number]
        loops: list[Position] = [QuasiAffine()] * written.n_dims
        for expr, position in zip(written.results, index):
            if not isinstance(expr, ir.AffineDimExpr):
                raise Unwritable("a result that is written at computed places")
            loops[expr.position] = position
        if structured.is_elementwise:
            return self.body(structured, loops)[number]
        return self._reduced(structured, loops)[number]

    def body(self, structured: Structured, loops: Sequence[Position]) -> list[Element]:
        """What an element-wise operation yields at these loops; its run-time checks are made."""
        key = ("body", structured.op, tuple(loops))
        return self.remembered(key, lambda: self._body(structured, list(loops), {}))

    def _body(
        self, structured: Structured, loops: list[Position], known: dict[ir.Value, Element]
    ) -> list[Element]:
        """`known` are values of block arguments; operands that are not used are not read."""
        block = structured.body
        operands = dict(zip(block.arguments, zip(structured.op.operands, structured.maps)))

        def of(value: ir.Value) -> Element:
            if value not in known:
                known[value] = compute(value)
            return known[value]

        def compute(value: ir.Value) -> Element:
            if value in operands:
                operand, map_ = operands[value]
                if not isinstance(operand.type, ir.RankedTensorType):
                    return self.outside(operand)
                return self.at(operand, [self.affine(expr, loops) for expr in map_.results])
            op = producer(value)
            if op is None or op.block != block:
                return self.outside(value)
            if op.name == "linalg.index":
                return loops[ir.IntegerAttr(op.attributes["dim"]).value]
            return self.operation(op, of)

        *_, terminator = (view.operation for view in block.operations)
        for view in block.operations:
            if view.operation.name == "cf.assert":
                self._check(view.operation, of(view.operation.operands[0]))
        return [of(value) for value in terminator.operands]

    def operation(self, op: ir.Operation, of: Callable[[ir.Value], Element]) -> Element:
        """One scalar operation, its operands given by `of`."""
        if op.name == "tensor.extract":
            return self.at(op.operands[0], [of(value) for value in list(op.operands)[1:]])
        operands = [of(value) for value in op.operands]
        found = folded(op, operands)
        if found is not None:
            return found
        return apply(self, op, [self.values(e, v.type) for e, v in zip(operands, op.operands)])

    def _check(self, check: ir.Operation, holds: Element) -> None:
        if isinstance(holds, QuasiAffine) and holds.offset:
            return
        message = ir.StringAttr(check.attributes["msg"]).value
        if message not in self.messages:
            self.messages.append(message)
        if self.status is None:
            return
        one, *others = self.values(holds, check.operands[0].type)
        for other in others:
            one = arith.andi(one, other)
        failed = arith.xori(one, self.constant(one.type, 1))
        branch = scf.IfOp(failed)
        with self.region(branch.then_block):
            code = arith.constant(ir.IntegerType.get_signless(32), 1 + self.messages.index(message))
            memref.store(code, self.status, [arith.constant(self.index, 0)])
            scf.yield_([])

    def affine(self, expr: ir.AffineExpr, loops: Sequence[Position]) -> Position:
        """An affine expression of loops."""
        try:
            return composed(expr, loops, self.divided)
        except NotQuasiAffine as error:
            raise Unwritable(str(error)) from None

    def divided(self, position: Position, divisor: int) -> tuple[Position, Position]:
        """Quotient and remainder; computed where they are no quasi-affine indices."""
        self.differs_by_lane = True
        found = divided(position, divisor)
        if found is not None:
            return found
        low, high, _ = bounds(position)
        if low < 0 or len(self.lane_positions(position)) > 1:
            raise Unwritable("a quotient that differs from lane to lane")

        def make() -> Position:
            value = arith.divui(self.scalar(at_lane(position, 0)), self.constant(self.index, divisor))
            return self.opaque(value, low // divisor, high // divisor, digits_of([position]))

        quotient = self.remembered(("divided", position.merged(), divisor), make)
        rest = self.scalar(at_lane(position - quotient.scaled(divisor), 0))
        remainder = self.opaque(rest, 0, divisor - 1, digits_of([position]))
        return quotient, remainder

    def _reduced(self, structured: Structured, loops: list[Position]) -> list[Element]:
        key = ("reduced", structured.op, tuple(loops))
        return self.remembered(key, lambda: self._reduce(structured, loops))

    def _reduce(self, structured: Structured, loops: list[Position]) -> list[Element]:
        """Sums (or maxima) of one point, step after step in the order of the loops."""
        arguments = list(structured.body.arguments)[structured.num_inputs :]
        outs = list(structured.op.operands)[structured.num_inputs :]
        start = [
            self.at(out, [self.affine(expr, loops) for expr in map_.results])
            for out, map_ in zip(outs, structured.maps[structured.num_inputs :])
        ]
        pending = [i for i, kind in enumerate(structured.kinds) if kind == "reduction"]
        types = [argument.type for argument in arguments]

        def rest(depth: int) -> int:
            count = 1
            for loop in pending[depth:]:
                count *= structured.extents[loop]
            return count

        def steps(depth: int, loops: list[Position], carried: list[Element]) -> list[Element]:
            if depth == len(pending):
                return self._body(structured, loops, dict(zip(arguments, carried)))
            loop, extent = pending[depth], structured.extents[pending[depth]]
            if rest(depth) <= _UNROLLED or extent == 1:
                for step in range(extent):
                    carried = steps(
                        depth + 1, [*loops[:loop], QuasiAffine((), step), *loops[loop + 1 :]], carried
                    )
                return carried
            flat = [v for e, t in zip(carried, types) for v in self.all_lanes(e, t)]
            bounds = [self.constant(self.index, n) for n in (0, extent, 1)]
            for_ = scf.ForOp(*bounds, flat)
            with self.region(for_.body):
                inner = list(for_.inner_iter_args)
                own: list[Element] = [inner[i * self.lanes : (i + 1) * self.lanes] for i in range(len(types))]
                at = self.opaque(for_.induction_variable, 0, extent - 1, ())
                following = steps(depth + 1, [*loops[:loop], at, *loops[loop + 1 :]], own)
                scf.yield_([v for e, t in zip(following, types) for v in self.all_lanes(e, t)])
            results = list(for_.results)
            return [results[i * self.lanes : (i + 1) * self.lanes] for i in range(len(types))]

        return steps(0, loops, start)

    # Branches.

    def inside(
        self,
        box: Sequence[tuple[Position, int, int]],
        type_: ir.Type,
        yes: Callable[[], Element],
        no: Callable[[], Element],
    ) -> Element | None:
        """`yes` where every position lies in its [low, high), else `no`; None where lanes differ in that."""
        known = [(bounds(p), low, high) for p, low, high in box]
        if any(own.high < low or own.low >= high for own, low, high in known):
            return no()
        open_ = [entry for entry, (own, low, high) in zip(box, known) if own.low < low or own.high >= high]
        if not open_:
            return yes()
        if any(len(self.lane_positions(p)) > 1 for p, _, _ in open_):
            return None
        condition = None
        for position, low, high in open_:
            # One comparison of unsigned numbers: what lies below wraps around.
            offset = self.scalar(at_lane(position.shifted(-low), 0))
            limit = self.constant(self.index, high - low)
            own = arith.cmpi(arith.CmpIPredicate.ult, offset, limit)
            condition = own if condition is None else arith.andi(condition, own)
        branch = scf.IfOp(condition, [type_] * self.lanes, has_else=True)
        for block, make in ((branch.then_block, yes), (branch.else_block, no)):
            with self.region(block):
                scf.yield_(self.all_lanes(make(), type_))
        results = list(branch.results)
        for result in results:
            self.depends[result] = digits_of(p for p, _, _ in box)
        return results

    def lane_by_lane(self, value: ir.Value, index: Sequence[Position]) -> Element:
        """An element whose lanes are computed in different ways, each on its own."""
        element = ir.RankedTensorType(value.type).element_type
        found: list[ir.Value] = []
        for lane in range(self.lanes):
            (own, *_) = self.values(self.of(value, [at_lane(p, lane) for p in index]), element)
            found.append(own)
        return found


Reader = Callable[[Elements, ir.Operation, tuple[Position, ...]], Element]
_READERS: dict[str, Reader] = {}


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Registers a function as the one that reads elements of the results of these operations."""

    def register(reader: Reader) -> Reader:
        for name in names:
            _READERS[name] = reader
        return reader

    return register
