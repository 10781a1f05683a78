"""Memory plans keep every live tensor: checked on random allocations and by running random programs on bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.package import plan
from tilewright.compiler.package.plan import Arena, Constants, plan_function, tensor_spec
from tilewright.runtime.program import ALIGNMENT_BYTES, BufferRef

requests = st.lists(
    st.one_of(st.integers(0, 5000), st.integers(-20, -1)), max_size=60
)  # n >= 0: take n bytes; n < 0: give back the n-th of those that are live


@settings(max_examples=300)
@given(requests)
def test_live_buffers_never_overlap(steps):
    arena, live, most = Arena(), [], 0
    for step in steps:
        if step >= 0:
            start = arena.take(step)
            end = start + plan.aligned(step)
            assert start % ALIGNMENT_BYTES == 0
            assert end <= arena.peak
            assert all(end <= other or start >= other_end for other, other_end, _ in live)
            live.append((start, end, step))
        elif live:
            start, _, nbytes = live.pop(step % len(live))
            arena.give(start, nbytes)
        most = max(most, sum(end - start for start, end, _ in live))
        assert arena.peak >= most
    free = sum(length for _, length in arena.free)
    assert free + sum(end - start for start, end, _ in live) == arena.peak


@given(requests)
def test_what_is_given_back_becomes_one_piece(steps):
    arena = Arena()
    live = [(arena.take(step), step) for step in steps if step >= 0]
    for start, nbytes in sorted(live, key=lambda entry: hash(entry)):
        arena.give(start, nbytes)
    assert arena.free == ([(0, arena.peak)] if live else [])
    peak = arena.peak
    assert arena.take(peak) == 0
    assert arena.peak == max(peak, ALIGNMENT_BYTES)


def test_the_tightest_gap_is_taken():
    arena = Arena()
    large, wall, small, end = arena.take(640), arena.take(64), arena.take(128), arena.take(64)
    arena.give(large, 640)
    arena.give(small, 128)
    assert arena.take(100) == small
    assert arena.take(640) == large
    assert (wall, end) == (640, 832)


def test_the_last_gap_grows():
    arena = Arena()
    start = arena.take(100)
    arena.give(start, 100)
    assert arena.take(1000) == 0
    assert arena.peak == 1024


class Model:
    """A random module of dispatch calls, as MLIR text."""

    def __init__(self, draw):
        self.lines: list[str] = []
        self.callees: dict[str, str] = {}
        self.values: list[tuple[str, int]] = []  # name and number of f32 elements, all of one dimension
        roles = ("input", "weight")
        arguments = []
        for number in range(draw(st.integers(1, 3))):
            size, role = draw(st.integers(1, 40)), draw(st.sampled_from(roles))
            self.values.append((f"%a{number}", size))
            arguments.append(
                f'%a{number}: tensor<{size}xf32> {{tilewright.role = "{role}", tilewright.name = "a{number}"}}'
            )
        if draw(st.booleans()):
            self.lines.append("%c = arith.constant dense<1.0> : tensor<7xf32>")
            self.values.append(("%c", 7))
        computed = [self.call(draw, 0)]
        for number in range(1, draw(st.integers(1, 12))):
            if draw(st.integers(0, 3)):
                computed.append(self.call(draw, number))
            else:
                self.view(draw, number)
        returned = draw(st.sets(st.sampled_from(computed), min_size=1, max_size=2))
        results = [value for value in computed if value in returned]
        types = ", ".join(f"tensor<{size}xf32>" for _, size in results)
        names = ", ".join(name for name, _ in results)
        body = "\n".join([*self.lines, f"return {names} : {types}"])
        declared = "\n".join(self.callees.values())
        self.text = f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n{body}\n}}\n{declared}"

    def call(self, draw, number: int) -> tuple[str, int]:
        inputs = draw(st.lists(st.sampled_from(self.values), max_size=3))
        size = draw(st.integers(1, 40))
        types = ", ".join(f"tensor<{n}xf32>" for _, n in inputs)
        self.callees[f"d{number}"] = f"func.func private @d{number}({types}) -> tensor<{size}xf32>"
        names = ", ".join(name for name, _ in inputs)
        self.lines.append(f"%v{number} = call @d{number}({names}) : ({types}) -> tensor<{size}xf32>")
        self.values.append((f"%v{number}", size))
        return self.values[-1]

    def view(self, draw, number: int) -> None:
        name, size = draw(st.sampled_from(self.values))
        offset = draw(st.integers(0, size - 1))
        length = draw(st.integers(1, size - offset))
        self.lines.append(
            f"%v{number} = tensor.extract_slice {name}[{offset}] [{length}] [1] "
            f": tensor<{size}xf32> to tensor<{length}xf32>"
        )
        self.values.append((f"%v{number}", length))


@st.composite
def models(draw):
    return Model(draw).text


class Memory:
    """Every space as an array of elements; kernels write numbers that no other write has."""

    def __init__(self, arena_bytes: int):
        self.spaces: dict[tuple[str, int], np.ndarray] = {
            ("arena", 0): np.zeros(arena_bytes // 4 + 1, np.int64)
        }
        self.next = 1

    def window(self, ref: BufferRef, count: int) -> np.ndarray:
        assert ref.offset % 4 == 0
        space = self.spaces.setdefault((ref.space, ref.index), np.zeros(64, np.int64))
        start = ref.offset // 4
        assert start + count <= len(space), f"{ref} reaches outside of its space"
        return space[start : start + count]

    def write(self, ref: BufferRef, count: int) -> np.ndarray:
        numbers = np.arange(self.next, self.next + count)
        self.next += count
        self.window(ref, count)[:] = numbers
        return numbers


@settings(max_examples=150, deadline=None)
@given(models())
def test_every_call_reads_what_was_written_for_it(text):
    """Run the plan on memory and the function on values: what a buffer holds at each read must agree."""
    module = parse(text)
    (function, *_) = functions(module)
    steps, arena_bytes = plan_function(function, Constants())
    memory, values, calls = Memory(arena_bytes), {}, iter(steps)
    block = function.regions[0].blocks[0]
    counters = {"input": 0, "weight": 0}

    def count(value: ir.Value) -> int:
        return ir.RankedTensorType(value.type).shape[0]

    for argument, attributes in zip(block.arguments, function.attributes["arg_attrs"]):
        role = ir.StringAttr(attributes["tilewright.role"]).value
        values[argument] = memory.write(BufferRef(role, counters[role]), count(argument))
        counters[role] += 1
    for view in block.operations:
        op = view.operation
        if op.name == "arith.constant":
            values[op.results[0]] = memory.write(BufferRef("constant", 0), count(op.results[0]))
        elif op.name == "tensor.extract_slice":
            start = op.attributes["static_offsets"][0]
            result = op.results[0]
            values[result] = values[op.operands[0]][start : start + count(result)]
        elif op.name == "func.call":
            step = next(calls)
            *inputs, output = step.buffers
            for ref, operand in zip(inputs, op.operands, strict=True):
                assert (memory.window(ref, count(operand)) == values[operand]).all()
            result = op.results[0]
            before = [memory.window(ref, count(operand)).copy() for ref, operand in zip(inputs, op.operands)]
            values[result] = memory.write(output, count(result))
            for ref, operand, old in zip(inputs, op.operands, before):
                assert (memory.window(ref, count(operand)) == old).all(), "a call writes what it reads"
        elif op.name == "func.return":
            for number, operand in enumerate(op.operands):
                held = memory.window(BufferRef("output", number), count(operand))
                assert (held == values[operand]).all()
    assert next(calls, None) is None


def planned(text: str, outputs=None):
    module = parse(text)
    return plan_function(next(functions(module)), Constants(), outputs)


CHAIN = """
  func.func @main(%x: tensor<1024xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<1024xf32> {
    %0 = call @d(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
    %1 = call @d(%0) : (tensor<1024xf32>) -> tensor<1024xf32>
    %2 = call @d(%1) : (tensor<1024xf32>) -> tensor<1024xf32>
    %3 = call @d(%2) : (tensor<1024xf32>) -> tensor<1024xf32>
    return %3 : tensor<1024xf32>
  }
  func.func private @d(tensor<1024xf32>) -> tensor<1024xf32>"""


def test_a_chain_alternates_between_two_buffers():
    steps, arena_bytes = planned(CHAIN)
    assert arena_bytes == 2 * 4096
    assert [step.buffers[1] for step in steps] == [
        BufferRef("arena", 0, 0),
        BufferRef("arena", 0, 4096),
        BufferRef("arena", 0, 0),
        BufferRef("output", 0),
    ]
    assert [step.inputs for step in steps] == [("x",), (0,), (1,), (2,)]


def test_results_go_where_they_are_asked_to():
    steps, _ = planned(CHAIN, {0: BufferRef("packed", 0, 128)})
    assert steps[-1].buffers[1] == BufferRef("packed", 0, 128)


def test_computation_outside_of_dispatches_is_refused():
    text = """
      func.func @main(%x: tensor<4xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<4xf32> {
        %0 = arith.negf %x : tensor<4xf32>
        return %0 : tensor<4xf32>
      }"""
    with pytest.raises(PassError, match=r"`arith\.negf` is left outside of all dispatches"):
        planned(text)


@pytest.mark.parametrize(
    "element, name, nbytes",
    [
        ("f32", "f32", 24),
        ("i1", "i1", 6),
        ("complex<f64>", "c128", 96),
        ("bf16", "bf16", 12),
        ("ui8", "u8", 6),
    ],
)
def test_tensors_of_every_kind(element, name, nbytes):
    with parse("").context:
        spec = tensor_spec(ir.Type.parse(f"tensor<2x3x{element}>"), "x")
    assert (spec.dtype, spec.shape, spec.nbytes) == (name, (2, 3), nbytes)


@pytest.mark.parametrize("type_", ["tensor<2xi7>", "tensor<2xf80>", "tensor<?xf32>"])
def test_tensors_without_a_place_are_refused(type_):
    with parse("").context, pytest.raises(PassError):
        tensor_spec(ir.Type.parse(type_), "x")


def test_equal_constants_are_stored_once():
    text = """
      func.func @main() -> tensor<2xf32> {
        %a = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
        %b = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
        %c = arith.constant dense<[1.0, 3.0]> : tensor<2xf32>
        %r = call @d(%a, %b, %c) : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        return %r : tensor<2xf32>
      }
      func.func private @d(tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"""
    module, constants = parse(text), Constants()
    steps, _ = plan_function(next(functions(module)), constants)
    assert [ref.index for ref in steps[0].buffers[:3]] == [0, 0, 1]
    assert len(constants.entries) == 2
