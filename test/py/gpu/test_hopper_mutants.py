"""Every barrier, wait, arrival and fence of a wgmma kernel is needed: without it, the emulator finds fault."""

from functools import cache

import numpy as np
import pytest
from hopper_products import Product
from test_hopper_gemm import draw, kernel, stored, tile

from tilewright.compiler.codegen.emulation import EmulationError, execute, load_kernel
from tilewright.compiler.ir import context, ir, parse, walk

SEEDS = (0, 1, 2)
SYNCHRONISING = {
    "gpu.barrier",
    *(
        f"tilewright.{name}"
        for name in (
            "mbarrier_init", "fence_mbarrier_init", "mbarrier_wait", "mbarrier_arrive", "mbarrier_arrive_cluster",
            "mbarrier_expect_tx", "cluster_sync", "named_barrier", "fence_async_shared", "wgmma_wait", "bulk_commit",
            "bulk_wait", "store_release",
        )
    ),
}  # fmt: skip
KERNELS = {
    "persistent": (Product(130, 72, 200, epilogue="bias_relu"), tile(128, 64, cluster=1, stages=2), 1),
    "cluster": (Product(130, 72, 200), tile(64, 64, cluster=2, stages=2), 2),
    "divided": (Product(128, 64, 400, result="f32"), tile(64, 64, stages=2, split_k=3), 4),
}


@cache
def text(name: str) -> str:
    """The kernel as text."""
    return str(kernel(*KERNELS[name]))


@cache
def case(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """(inputs of the kernel, what it computes from them)."""
    problem, _, _ = KERNELS[name]
    random = np.random.default_rng(0)
    arrays = [draw(random, problem.shape(own), problem.dtype) for own in (problem.a, problem.b)]
    if problem.extra_shape() is not None:
        arrays.append(draw(random, *problem.extra_shape()))
    result = np.zeros(problem.shape("mn"), stored(np.zeros(1), problem.result).dtype)
    execute(load_kernel(parse(text(name))), [*arrays, result])
    return arrays, result


def mutants() -> list[tuple[str, int]]:
    """(kernel, number of an operation that synchronises)."""
    return [
        (name, number)
        for name in KERNELS
        for number, _ in enumerate(synchronising(parse(text(name))))
        # Of two stages' barriers one is enough to leave out; in "cluster" and "divided", what "persistent" lacks.
        if name == "persistent" or wanted(name, number)
    ]


def wanted(name: str, number: int) -> bool:
    own = synchronising(parse(text(name)))[number].name.split(".")[1]
    special = {
        "cluster": ("cluster_sync", "mbarrier_arrive_cluster"),
        "divided": ("named_barrier", "store_release"),
    }
    return own in special[name]


def synchronising(module: ir.Module) -> list[ir.Operation]:
    return [op for op in walk(module.operation) if op.name in SYNCHRONISING]


@pytest.mark.parametrize("name", KERNELS)
def test_complete_kernels_are_right(name):
    """With all of them, every seed gives the same and nothing is found."""
    arrays, expected = case(name)
    loaded = load_kernel(parse(text(name)))
    for seed in SEEDS:
        result = np.zeros_like(expected)
        execute(loaded, [*arrays, result], seed=seed)
        assert np.array_equal(result, expected)


@pytest.mark.parametrize(("name", "number"), mutants())
def test_nothing_can_be_left_out(name, number):
    """A kernel without one of them is found out by one of the seeds, or computes something else."""
    arrays, expected = case(name)
    module = parse(text(name))
    op = synchronising(module)[number]
    with context(), ir.Location.unknown():
        for result, operand in zip(op.results, op.operands):
            result.replace_all_uses_with(operand)
        left_out = str(op)
        op.erase()
    loaded = load_kernel(module)
    assert any(is_found(loaded, arrays, expected, seed) for seed in SEEDS), f"nobody misses {left_out}"


def is_found(loaded, arrays: list[np.ndarray], expected: np.ndarray, seed: int) -> bool:
    result = np.zeros_like(expected)
    try:
        execute(loaded, [*arrays, result], seed=seed)
    except EmulationError:
        return True
    return not np.array_equal(result, expected)
