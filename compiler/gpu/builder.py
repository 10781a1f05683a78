"""Writes gpu-level IR from Python: SSA values with operators, loops and branches as functions, memory accesses.

    with kernel("scale", [source_type, result_type], rtasks=4, block=256) as k:
        i = k.rtask() * 256 + thread_id()
        with if_(i < n):
            store(load(k.buffers[0], i) * 2.0, k.buffers[1], i)

A Python number beside a value becomes a constant of its type, and arithmetic on Python numbers alone stays in
Python, so address computations fold where they are written. Integers are unsigned: positions and sizes.

A body asks its kernel for the number of its rTask, or for its share of them, and never for its block's: which block does
which rTask is decided in `Kernel`, and by who puts bodies of several kernels together (`combined_kernels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.gpu.aliases import promises
from tilewright.compiler.gpu.launch import ALONE, LAUNCH, Gang, launch_attribute
from tilewright.compiler.ir import arith, gpu, ir, memref, scf, vector
from tilewright.compiler.nouns.schedule import GpuTile, Schedule

WIDE = "tilewright.wide"
"""Attribute of a `gpu.func` that counts points past 2^31, whatever its buffers' sizes."""
SHARED = "#gpu.address_space<workgroup>"

Number = int | float | bool


class Value:
    """An SSA value with operators by its type: index and integers (unsigned), floats, vectors of either."""

    __slots__ = ("value",)

    def __init__(self, value: ir.Value):
        self.value = value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def element(self) -> ir.Type:
        """The type itself, or a vector's element type."""
        type_ = self.value.type
        return ir.VectorType(type_).element_type if isinstance(type_, ir.VectorType) else type_

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, ir.FloatType)

    def _with(self, other: Operand, integer: Callable, real: Callable, swap: bool = False) -> Value:
        right = raw(other, self.type)
        left, right = (right, self.value) if swap else (self.value, right)
        return Value((real if self.is_float else integer)(left, right))

    def __add__(self, other: Operand) -> Value:
        return self if _is(other, 0) and not self.is_float else self._with(other, arith.addi, arith.addf)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Value:
        return self if _is(other, 0) else self._with(other, arith.subi, arith.subf)

    def __rsub__(self, other: Operand) -> Value:
        return self._with(other, arith.subi, arith.subf, swap=True)

    def __mul__(self, other: Operand) -> Value:
        return self if _is(other, 1) else self._with(other, arith.muli, arith.mulf)

    __rmul__ = __mul__

    def __floordiv__(self, other: Operand) -> Value:
        return self if _is(other, 1) else self._with(other, arith.divui, _no_float)

    def __truediv__(self, other: Operand) -> Value:
        return self._with(other, _no_integer, arith.divf)

    def __mod__(self, other: Operand) -> Value:
        return self._with(other, arith.remui, arith.remf)

    def __and__(self, other: Operand) -> Value:
        return self._with(other, arith.andi, _no_float)

    def __or__(self, other: Operand) -> Value:
        return self._with(other, arith.ori, _no_float)

    def __xor__(self, other: Operand) -> Value:
        return self._with(other, arith.xori, _no_float)

    def __lshift__(self, other: Operand) -> Value:
        return self._with(other, arith.shli, _no_float)

    def __rshift__(self, other: Operand) -> Value:
        return self._with(other, arith.shrui, _no_float)

    def _compare(self, other: Operand, integer: str, real: str) -> Value:
        right = raw(other, self.type)
        if self.is_float:
            return Value(arith.cmpf(getattr(arith.CmpFPredicate, real), self.value, right))
        return Value(arith.cmpi(getattr(arith.CmpIPredicate, integer), self.value, right))

    def __lt__(self, other: Operand) -> Value:
        return self._compare(other, "ult", "OLT")

    def __le__(self, other: Operand) -> Value:
        return self._compare(other, "ule", "OLE")

    def __gt__(self, other: Operand) -> Value:
        return self._compare(other, "ugt", "OGT")

    def __ge__(self, other: Operand) -> Value:
        return self._compare(other, "uge", "OGE")

    def equals(self, other: Operand) -> Value:
        """`==`, which Python keeps for identity here."""
        return self._compare(other, "eq", "OEQ")

    def differs(self, other: Operand) -> Value:
        """`!=`."""
        return self._compare(other, "ne", "UNE")

    def to(self, type_: ir.Type) -> Value:
        """Converts between index and integers (zero-extending, truncating), and between floats."""
        if type_ == self.type:
            return self
        if isinstance(type_, ir.IndexType) or isinstance(self.type, ir.IndexType):
            return Value(arith.index_castui(type_, self.value))
        if self.is_float and isinstance(_element(type_), ir.FloatType):
            narrower = _element(type_).width < self.element.width
            return Value((arith.truncf if narrower else arith.extf)(type_, self.value))
        if self.is_float or isinstance(_element(type_), ir.FloatType):
            raise TypeError(f"no conversion from {self.type} to {type_} here; use arith.fptosi or alike")
        narrower = _element(type_).width < self.element.width
        return Value((arith.trunci if narrower else arith.extui)(type_, self.value))

    def __getitem__(self, lane: int) -> Value:
        """Lane `lane` of a vector, known at compile time."""
        return Value(vector.extract(self.value, [], [lane]))

    def with_lane(self, lane: int, scalar: Value) -> Value:
        """The vector with one lane replaced."""
        return Value(vector.insert(scalar.value, self.value, [], [lane]))


Operand = Value | Number


def raw(operand: Operand | ir.Value, type_: ir.Type | None = None) -> ir.Value:
    """The SSA value of an operand; a Python number becomes a constant of `type_` (index when None)."""
    if isinstance(operand, Value):
        return operand.value
    if isinstance(operand, (bool, int, float)):
        return constant(type_ or ir.IndexType.get(), operand).value
    return operand


def constant(type_: ir.Type, number: Number) -> Value:
    """A constant; a splat when `type_` is a vector."""
    element = _element(type_)
    attribute = (
        ir.FloatAttr.get(element, float(number))
        if isinstance(element, ir.FloatType)
        else ir.IntegerAttr.get(element, int(number))
    )
    if isinstance(type_, ir.VectorType):
        return Value(arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, attribute)))
    return Value(arith.constant(type_, attribute))


def index(number: int) -> Value:
    """A constant of type index."""
    return constant(ir.IndexType.get(), number)


def i32(operand: Operand) -> Value:
    """An i32: a constant from a number, a conversion from a value."""
    type_ = ir.IntegerType.get_signless(32)
    return operand.to(type_) if isinstance(operand, Value) else constant(type_, operand)


def f32_type() -> ir.Type:
    return ir.F32Type.get()


def vector_type(lanes: int, element: ir.Type) -> ir.VectorType:
    return ir.VectorType.get([lanes], element)


def select(condition: Operand, yes: Operand, no: Operand) -> Operand:
    """`yes` where the condition holds; decided here when it is a Python bool."""
    if isinstance(condition, bool):
        return yes if condition else no
    type_ = yes.type if isinstance(yes, Value) else no.type if isinstance(no, Value) else None
    return Value(arith.select(raw(condition), raw(yes, type_), raw(no, type_)))


def minimum(left: Operand, right: Operand) -> Operand:
    """The smaller of two unsigned integers."""
    if not isinstance(left, Value):
        return min(left, right) if not isinstance(right, Value) else minimum(right, left)
    return Value(arith.minui(left.value, raw(right, left.type)))


def both(left: Operand, right: Operand) -> Operand:
    """Logical and; a Python bool on either side is decided here."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return Value(arith.andi(raw(left), raw(right)))


def fma(a: Value, b: Value, c: Value) -> Value:
    """`a * b + c` rounded once, on scalars or vectors of floats."""
    if isinstance(a.type, ir.VectorType):
        return Value(vector.fma(a.value, b.value, c.value))
    from tilewright.compiler.ir import math

    return Value(math.fma(a.value, b.value, c.value))


def broadcast(scalar: Value, lanes: int) -> Value:
    return Value(vector.broadcast(vector_type(lanes, scalar.type), scalar.value))


def from_elements(scalars: Sequence[Value]) -> Value:
    """A vector of the given lanes."""
    return Value(vector.from_elements(vector_type(len(scalars), scalars[0].type), [s.value for s in scalars]))


def thread_id() -> Value:
    return Value(gpu.thread_id(gpu.Dimension.x))


def block_id() -> Value:
    return Value(gpu.block_id(gpu.Dimension.x))


def barrier() -> None:
    """Waits for all threads of the block; their accesses to memory before it are seen after it."""
    gpu.barrier()


def shuffle_xor(value: Value, lanes: int) -> Value:
    """The value of the thread whose lane differs in the bits `lanes`, within the warp."""
    return _shuffle(value, lanes, "xor")


def shuffle_idx(value: Value, lane: Operand) -> Value:
    """The value of thread `lane` of the warp."""
    return _shuffle(value, lane, "idx")


def shuffle_up(value: Value, distance: int) -> Value:
    """The value of the thread `distance` lanes below; its own for the first lanes."""
    return _shuffle(value, distance, "up")


def shuffle_down(value: Value, distance: int) -> Value:
    """The value of the thread `distance` lanes above; its own for the last lanes."""
    return _shuffle(value, distance, "down")


def _shuffle(value: Value, offset: Operand, mode: str) -> Value:
    attribute = ir.Attribute.parse(f"#gpu<shuffle_mode {mode}>")
    found, _valid = gpu.shuffle(value.value, i32(offset).value, i32(32).value, attribute)
    return Value(found)


def load(buffer: ir.Value, *position: Operand) -> Value:
    return Value(memref.load(buffer, [raw(p) for p in position]))


def store(value: Value, buffer: ir.Value, *position: Operand) -> None:
    memref.store(value.value, buffer, [raw(p) for p in position])


def load_vector(buffer: ir.Value, position: Sequence[Operand], lanes: int, alignment: int = 0) -> Value:
    """`lanes` elements along the last dimension; `alignment` in bytes, 0 for the element's own."""
    type_ = vector_type(lanes, ir.MemRefType(buffer.type).element_type)
    return Value(vector.load(type_, buffer, [raw(p) for p in position], alignment=alignment or None))


def store_vector(value: Value, buffer: ir.Value, position: Sequence[Operand], alignment: int = 0) -> None:
    """Stores a vector along the last dimension; `alignment` in bytes, 0 for the element's own."""
    vector.store(value.value, buffer, [raw(p) for p in position], alignment=alignment or None)


def shared(shape: Sequence[int], element: ir.Type, alignment: int = 16) -> ir.Value:
    """Shared memory of the block, `alignment` in bytes; allocate it before branching."""
    type_ = ir.MemRefType.get(list(shape), element, memory_space=ir.Attribute.parse(SHARED))
    return memref.alloc(type_, [], [], alignment=alignment)


def for_(
    first: Operand,
    end: Operand,
    step: Operand,
    start: Sequence[Value],
    body: Callable[..., Sequence[Value] | None],
) -> list[Value]:
    """A loop on index values: `body(i, *carried)` returns what the next trip carries; gives the last."""
    loop = scf.ForOp(raw(first), raw(end), raw(step), [v.value for v in start])
    with ir.InsertionPoint(loop.body):
        carried = [Value(v) for v in loop.inner_iter_args]
        following = body(Value(loop.induction_variable), *carried) or []
        if len(following) != len(start):
            raise ValueError(f"a loop carries {len(start)} values, its body gave {len(following)}")
        scf.yield_([v.value for v in following])
    return [Value(result) for result in loop.results]


@contextmanager
def if_(condition: Operand) -> Iterator[None]:
    """What is written inside runs where the condition holds; always for a Python True."""
    if isinstance(condition, bool) and condition:
        yield
        return
    branch = scf.IfOp(raw(condition, ir.IntegerType.get_signless(1)))
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.yield_([])


def if_else(
    condition: Value,
    yes: Callable[[], Sequence[Value]],
    no: Callable[[], Sequence[Value]],
    types: Sequence[ir.Type],
) -> list[Value]:
    """Values of one branch or the other; both give as many values as there are `types`."""
    branch = scf.IfOp(condition.value, list(types), has_else=True)
    for block, body in ((branch.then_block, yes), (branch.else_block, no)):
        with ir.InsertionPoint(block):
            scf.yield_([v.value for v in body()])
    return [Value(result) for result in branch.results]


@dataclass(frozen=True)
class Share:
    """What a gang has of `count` rTasks: number `first`, and every `step`-th after it."""

    first: Value
    step: int
    count: int

    def each(self, carried: Sequence[Value], body: Callable[..., Sequence[Value] | None]) -> list[Value]:
        """A loop over them: `body(rtask, *carried)` gives what the next one carries; gives the last."""
        return for_(self.first, self.count, self.step, carried, body)


@dataclass
class Kernel:
    """A kernel being written: its module, its function, and the function's arguments by kind.

    It has `rtasks` rTasks for `gangs` gangs of blocks, which take them in turn where there are fewer gangs.
    """

    module: ir.Module
    function: ir.Operation
    rtasks: int
    gang: Gang
    gangs: int
    buffers: list[ir.Value]
    workspace: ir.Value | None = None
    status: ir.Value | None = None
    maps: list[ir.Value] = field(default_factory=list)

    def rtask(self) -> Value:
        """The number of the one rTask that this block does, by itself or with the others of its gang."""
        if self.gangs != self.rtasks:
            raise ValueError(f"{self.gangs} gangs take {self.rtasks} rTasks in turn; ask for their `share`")
        return self.gang_number()

    def share(self) -> Share:
        """The rTasks that this block does, by itself or with the others of its gang."""
        return Share(self.gang_number(), self.gangs, self.rtasks)

    def gang_number(self) -> Value:
        """The number of this block's gang: whose part of the workspace is its own, whatever rTasks it does."""
        return block_id() // self.gang.blocks


@contextmanager
def kernel(
    name: str,
    buffers: Sequence[ir.Type],
    *,
    rtasks: int,
    block: int,
    gang: Gang = ALONE,
    gangs: int = 0,
    workspace_bytes: int = 0,
    zeroed_bytes: int = 0,
    tensor_maps: Sequence[ir.DictAttr] = (),
    asserts: Sequence[str] = (),
    blocks_per_core: int = 0,
    points: int = 0,
    made: GpuTile | None = None,
) -> Iterator[Kernel]:
    """A module with one kernel of blocks of `block` threads; what is written inside is its body, which does its rTasks.

    Each of `rtasks` rTasks is done by a `gang`: a gang for every rTask, or `gangs` of them that take rTasks in turn, where
    that is not 0. `buffers` are the memref types of the step's buffers. `blocks_per_core`, when not 0, asks the register
    allocator to leave room for that many blocks on a multiprocessor. `points` is up to where the kernel counts, when
    that may be further than any buffer reaches. `made` is what the kernel is made of, kept on it as its schedule. Use
    under a context and a location.
    """
    module = ir.Module.parse("module attributes {gpu.container_module} { gpu.module @kernels {} }")
    types = list(buffers)
    if workspace_bytes:
        types.append(ir.MemRefType.get([workspace_bytes], ir.IntegerType.get_signless(8)))
    if asserts:
        types.append(ir.MemRefType.get([1], ir.IntegerType.get_signless(32)))
    types += [ir.Type.parse("!llvm.ptr")] * len(tensor_maps)
    with ir.InsertionPoint(module.body.operations[0].regions[0].blocks[0]):
        function = gpu.GPUFuncOp(
            ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            name,
            kernel=True,
            known_block_size=[block, 1, 1],
        )
    if blocks_per_core:
        function.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(
            ir.IntegerType.get_signless(32), blocks_per_core
        )
    if points >= 1 << 31:
        function.attributes[WIDE] = ir.UnitAttr.get()
    gangs = gangs or rtasks
    if gangs > rtasks:
        raise ValueError(
            f"@{name}: expected a gang for each of its {rtasks} rTasks at most, found {gangs} gangs"
        )
    function.attributes[LAUNCH] = launch_attribute(
        rtasks, gang, gangs * gang.blocks, block, workspace_bytes, zeroed_bytes, tensor_maps, asserts
    )
    if made is not None:
        schedule_attribute.write(function.operation, Schedule(gpu=replace(made, threads=block)))
    region = function.regions[0]
    entry = region.blocks[0] if len(region.blocks) else region.blocks.append(*types)
    arguments = list(entry.arguments)
    count = len(buffers)
    written = Kernel(module, function.operation, rtasks, gang, gangs, arguments[:count])
    if workspace_bytes:
        written.workspace = arguments[count]
        count += 1
    if asserts:
        written.status = arguments[count]
        count += 1
    written.maps = arguments[count:]
    with ir.InsertionPoint(entry):
        yield written
        gpu.return_([])
    function.attributes["arg_attrs"] = promises(function.operation, written.buffers)
    module.operation.verify()


def _element(type_: ir.Type) -> ir.Type:
    return ir.VectorType(type_).element_type if isinstance(type_, ir.VectorType) else type_


def _is(operand: Operand, number: int) -> bool:
    return isinstance(operand, int) and not isinstance(operand, bool) and operand == number


def _no_float(*_: ir.Value) -> ir.Value:
    raise TypeError("this operator is for integers")


def _no_integer(*_: ir.Value) -> ir.Value:
    raise TypeError("use // on integers")
