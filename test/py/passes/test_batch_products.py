"""Batched products compute what single ones do, whatever depends on what, and batch what is independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.ir import functions, ir, parse, walk
from tilewright.compiler.passes.dispatch.batch_products import BatchProducts
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

WIDTH, ROWS = 3, 2
ROW, WEIGHT = f"tensor<{ROWS}x{WIDTH}xf32>", f"tensor<{WIDTH}x{WIDTH}xf32>"
Step = tuple[str, int, int]


def module_of(steps: list[Step], weights: int, inputs: int = 2) -> ir.Module:
    """@main of products `("product", row, weight)` and sums `("sum", row, row)`; rows count inputs, then steps."""
    arguments = [f'%r{i}: {ROW} {{tilewright.role = "input"}}' for i in range(inputs)]
    arguments += [f'%w{i}: {WEIGHT} {{tilewright.role = "weight"}}' for i in range(weights)]
    lines = []
    for number, (kind, a, b) in enumerate(steps, inputs):
        right = f"%w{b} : {ROW}, {WEIGHT}" if kind == "product" else f"%r{b} : {ROW}, {ROW}"
        operation, start = ("matmul", "%f") if kind == "product" else ("add", "%e")
        lines.append(f"%r{number} = linalg.{operation} ins(%r{a}, {right}) outs({start} : {ROW}) -> {ROW}")
    results = [f"%r{number}" for number in range(inputs, inputs + len(steps))]
    types = ", ".join([ROW] * len(results))
    return parse(
        f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n"
        f"%z = arith.constant 0.0 : f32\n%e = tensor.empty() : {ROW}\n"
        f"%f = linalg.fill ins(%z : f32) outs(%e : {ROW}) -> {ROW}\n"
        + "\n".join(lines)
        + f"\nreturn {', '.join(results)} : {types}\n}}"
    )


def products(module: ir.Module) -> list[int]:
    """The rows of every product."""
    return [
        ir.RankedTensorType(op.results[0].type).shape[0] for op in walk(module.operation, "linalg.matmul")
    ]


def batched(steps: list[Step], weights: int, options: BatchProducts | None = None) -> ir.Module:
    module = module_of(steps, weights)
    run_pipeline(module.operation, f"builtin.module({(options or BatchProducts()).spec()},canonicalize,cse)")
    module.operation.verify()
    return module


def results_of(module: ir.Module) -> list[np.ndarray]:
    """Runs @main on small integers, which sums in any order are exact for."""
    (main,) = functions(module)
    block = main.regions[0].blocks[0]
    draw = np.random.default_rng(0)
    held: dict[ir.Value, Any] = {
        a: draw.integers(-1, 2, tuple(ir.RankedTensorType(a.type).shape)) for a in block.arguments
    }
    for view in block.operations:
        op = view.operation
        if op.name == "func.return":
            return [held[value] for value in op.operands]
        found: list[Any] = [held.get(value) for value in op.operands]
        if op.name == "linalg.matmul":
            held[op.results[0]] = found[0] @ found[1]
        elif op.name == "linalg.add":
            held[op.results[0]] = found[0] + found[1]
        elif op.name == "tensor.concat":
            held[op.results[0]] = np.concatenate(found)
        elif op.name == "tensor.extract_slice":
            first = op.attributes["static_offsets"][0]
            held[op.results[0]] = found[0][first : first + op.attributes["static_sizes"][0]]
        else:
            assert op.name in ("arith.constant", "tensor.empty", "linalg.fill"), op.name
    raise AssertionError("@main returns")


@st.composite
def programs(draw) -> list[Step]:
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 12))):
        rows = st.integers(0, 1 + len(steps))
        if draw(st.integers(0, 2)):
            steps.append(("product", draw(rows), draw(st.integers(0, 2))))
        else:
            steps.append(("sum", draw(rows), draw(rows)))
    return steps


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([4, 48, 1 << 20]))
def test_results_stay_whatever_needs_what(steps, most_bytes):
    expected = results_of(module_of(steps, 3))
    module = batched(steps, 3, BatchProducts(most_bytes=most_bytes))
    for found, wanted in zip(results_of(module), expected, strict=True):
        assert (found == wanted).all()


def recurrence(layers: int, length: int) -> list[Step]:
    """`h[l, t] = h[l - 1, t] W[l] + h[l, t - 1] U[l]`, time by time; W are the even weights, U the odd ones."""
    steps: list[Step] = []
    states: dict[tuple[int, int], int] = {}
    for time in range(length):
        for layer in range(layers):
            below = states.get((layer - 1, time), 0)
            before = states.get((layer, time - 1), 1)
            steps.append(("product", below, 2 * layer))
            steps.append(("product", before, 2 * layer + 1))
            steps.append(("sum", len(steps), len(steps) + 1))
            states[layer, time] = len(steps) + 1
    return steps


@pytest.mark.parametrize("layers, length", [(1, 2), (2, 5), (4, 3)])
def test_a_recurrence_has_one_product_of_inputs_per_layer(layers, length):
    steps = recurrence(layers, length)
    # The first layer reads one input again and again, which CSE makes one product of.
    found = products(batched(steps, 2 * layers))
    assert sorted(found)[: layers * length] == [ROWS] * (layers * length)
    assert sorted(found)[layers * length + 1 :] == [ROWS * length] * (layers - 1)


def test_products_that_need_each_other_in_turns_stay_single():
    """a0 -> b0 and b1 -> a1: both pairs at once would be a circle."""
    steps = [("product", 0, 0), ("product", 2, 1), ("product", 1, 1), ("product", 4, 0)]
    assert products(batched(steps, 2)) == [ROWS] * 4


def test_products_of_another_depth_stay_single():
    assert products(batched([("product", 0, 0), ("product", 2, 0)], 1)) == [ROWS] * 2


@pytest.mark.parametrize("rows, expected", [(ROWS, [2 * ROWS]), (ROWS - 1, [ROWS, ROWS])])
def test_only_products_of_few_rows_are_batched(rows, expected):
    steps: list[Step] = [("product", 0, 0), ("product", 1, 0)]
    assert products(batched(steps, 1, BatchProducts(most_rows=rows))) == expected


def test_batches_are_as_large_as_they_may_be():
    """Each product takes 2 x 3 items of 4 bytes twice: 48 of 100 bytes."""
    steps: list[Step] = [("sum", 0, 0), ("sum", 2, 1), ("sum", 3, 1), *(("product", n, 0) for n in range(5))]
    assert sorted(products(batched(steps, 1, BatchProducts(most_bytes=100)))) == [ROWS, 2 * ROWS, 2 * ROWS]


@pytest.mark.parametrize("target", ["x86-64-v3", "sapphire-rapids", "h100"])
def test_rows_follow_from_the_target(target):
    described = resolve(target)
    options = BatchProducts.for_target(described)
    us_of_reading = 4 / described.memory[0].bandwidth_gbps
    us_of_products = 2 * options.most_rows / described.peak_gflops["f32"]
    assert us_of_products <= us_of_reading < us_of_products * (1 + 2 / options.most_rows)
    assert options.most_bytes == described.memory[1].capacity_bytes // 4
