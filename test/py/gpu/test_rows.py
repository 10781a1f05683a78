"""Reductions by rows, scans and sorts as GPU kernels: results under emulation, layouts, generated code, needed barriers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from dispatch_runs import agree, dispatches, kernel_of, run
from family_kernels import emitter
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_mutants import survivors
from torch.utils import _pytree as pytree

from tilewright.compiler.codegen import nvvm, ptxas
from tilewright.compiler.codegen.emulation import EmulationError, run_kernel
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.rows.choice import choose_layout
from tilewright.compiler.families.rows.layout import RowShape
from tilewright.compiler.families.rows.problem import NotRows, read_rows
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import Target, resolve

torch.manual_seed(0)
r = torch.randn
TIES = torch.randint(0, 3, (9, 257)).float()
WITH_NAN = torch.randint(0, 9, (3, 70)).float().index_fill(1, torch.tensor([5, 60]), float("nan"))


def own(function: ir.Operation, schedule: Schedule | None, target: Target) -> ir.Module:
    """The family's kernel for what it is there for; other dispatches may be the fallback's."""
    operator = ir.StringAttr(function.attributes["tilewright.operator"]).value
    if operator in ("reduction", "sort", "topk", "scan"):
        try:
            return emitter("rows")(function, schedule, target)
        except Declined as reason:
            raise AssertionError(f"left to the fallback: {function}") from reason
    return emitter("fallback")(function, schedule, target)


CASES = {
    "softmax": (lambda x: torch.softmax(x, -1), (r(37, 129),)),
    "softmax_vectors": (lambda x: torch.softmax(x, -1), (r(5, 1024),)),
    "softmax_first": (lambda x: torch.softmax(x, 0), (r(37, 130),)),
    "softmax_middle": (lambda x: torch.softmax(x, 1), (r(3, 37, 6),)),
    "softmax_masked": (
        lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1),
        (r(4, 8, 17), torch.rand(4, 1, 17) > 0.7),
    ),
    "softmax_f16": (lambda x: torch.softmax(x, -1), (r(9, 40).half(),)),
    "softmax_bf16": (lambda x: torch.softmax(x, -1), (r(9, 41).bfloat16(),)),
    "softmax_f64": (lambda x: torch.softmax(x, -1), (r(9, 40).double(),)),
    "softmax_looped": (lambda x: torch.softmax(x, 1), (r(1, 33001),)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), (r(5, 512),)),
    "layer_norm": (
        lambda x, w, b: F.gelu(F.layer_norm(x + 1, (96,), w, b)) * 2,
        (r(33, 96), r(96), r(96)),
    ),
    "layer_norm_odd": (lambda x, w, b: F.layer_norm(x, (129,), w, b), (r(7, 129), r(129), r(129))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (64,), w), (r(3, 5, 64), r(64))),
    "group_norm": (lambda x: F.group_norm(x, 2), (r(3, 8, 5, 6),)),
    "batch_statistics": (lambda x: F.batch_norm(x, None, None, training=True), (r(3, 4, 5, 6),)),
    "channels_last": (lambda x: (x.mean((0, 1)), x.var((0, 1))), (r(20, 21, 8),)),
    "pooled": (lambda x: F.adaptive_avg_pool2d(x, 1), (r(2, 8, 7, 7),)),
    "columns": (lambda x: x.sum(0), (r(300, 64),)),
    "columns_divided": (lambda x: x.sum(0), (r(20000, 3),)),
    "all": (lambda x: x.sum(), (r(50, 16),)),
    "all_divided": (lambda x: x.square().mean(), (r(300, 301),)),
    "deviation": (lambda x: x.std(), (r(9, 257),)),
    "argmax": (lambda x: torch.argmax(x, 1), (TIES,)),
    "argmax_divided": (lambda x: torch.argmax(x, 1), (TIES.repeat(1, 80)[:2],)),
    "argmax_nan": (lambda x: x.max(1), (WITH_NAN,)),
    "argmin_nan_divided": (lambda x: torch.argmin(x, 1), (WITH_NAN.repeat(1, 80)[:2],)),
    "argmin_first": (lambda x: torch.argmin(x, 0), (TIES,)),
    "max_integers": (lambda x: x.max(1), (torch.randint(-99, 99, (5, 64)),)),
    "min_bytes": (lambda x: x.amin((0, 2)), (torch.randint(-99, 99, (5, 6, 64)).to(torch.int8),)),
    "unit_dimensions": (lambda x: (x.sum(1, keepdim=True), torch.softmax(x, 1)), (r(20, 64, 1),)),
    "scan_unit": (lambda x: torch.cumsum(x, 1), (r(5, 64, 1),)),
    "booleans": (lambda x: ((x > 1).any(1), (x > -3).all()), (r(9, 33),)),
    "counts": (lambda x: (x > 0).sum(1), (r(7, 100),)),
    "products": (lambda x: x.prod(1), (r(9, 33),)),
    "log_sum_exp": (lambda x: torch.logsumexp(x, 1), (r(9, 33),)),
    "cosine": (F.cosine_similarity, (r(9, 40), r(9, 40))),
    "cross_entropy": (F.cross_entropy, (r(9, 40), torch.randint(0, 40, (9,)))),
    "scan": (lambda x: torch.cumsum(x, 1), (r(70, 8),)),
    "scan_long": (lambda x: torch.cumsum(x, 1), (r(2, 3000),)),
    "scan_odd": (lambda x: torch.cumsum(x, 1), (r(3, 1025),)),
    "scan_columns": (lambda x: torch.cumsum(x, 0), (r(65, 33),)),
    "scan_integers": (lambda x: torch.cumsum(x, 1), (torch.randint(-9, 9, (3, 77)),)),
    "scan_f16": (lambda x: torch.cumsum(x, 1), (r(3, 64).half() / 8,)),
    "scan_products": (lambda x: torch.cumprod(x, 1), (r(3, 33),)),
    "sort": (lambda x: torch.sort(x, stable=True, dim=1), (TIES,)),
    "sort_columns": (lambda x: torch.sort(x, stable=True, dim=0, descending=True), (TIES[:, :40],)),
    "sort_short": (lambda x: torch.sort(x, stable=True, dim=1), (torch.randint(0, 9, (37, 6)),)),
    "sort_nan": (lambda x: torch.sort(x, stable=True, dim=1).indices, (WITH_NAN,)),
    "sort_in_place": (lambda x: torch.sort(x, stable=True, dim=1), (torch.randint(0, 99, (1, 3100)),)),
    "top": (lambda x: torch.topk(x, 5, 1), (r(5, 129),)),
    "top_of_many": (lambda x: torch.topk(x, 7, 1), (r(1, 3100),)),
    "kth": (lambda x: torch.kthvalue(x, 4, 1), (r(5, 33),)),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_pytorchs_in_every_order_of_threads(name: str) -> None:
    function, args = CASES[name]
    agree(run(function, args, own), pytree.tree_leaves(function(*args)))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    count=st.integers(2, 24),
    length=st.integers(2, 150),
    dim=st.sampled_from([0, 1]),
    form=st.sampled_from(["softmax", "norm", "argmax", "mean", "scan", "sort"]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64]),
)
def test_any_shape(count: int, length: int, dim: int, form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(count * 1000 + length)
    x = r(count, length).to(dtype)
    function = {
        "softmax": lambda x: torch.softmax(x, dim),
        "norm": lambda x: F.layer_norm(x, (length,)),
        "argmax": lambda x: torch.argmax(x, dim),
        "mean": lambda x: x.float().mean(dim),
        "scan": lambda x: torch.cumsum(x.float(), dim),
        "sort": lambda x: torch.sort(x, dim=dim, stable=True),
    }[form]
    agree(run(function, (x,), own), pytree.tree_leaves(function(x)))


def reduction(function, args: tuple, target: str = "v100") -> tuple[ir.Module, ir.Operation]:
    """The dispatch of a function that reduces, and the module that holds it."""
    module, found = dispatches(function, args, target)
    dispatch = next(d for n, d in found.items() if n.startswith(("reduction", "sort", "scan", "topk")))
    return module, dispatch


def launch_of(module: ir.Module) -> dict:
    (kernel,) = walk(module.operation, "gpu.func")
    entries = ir.DictAttr(kernel.attributes["tilewright.launch"])
    return {e.name: e.attr.value for e in entries if isinstance(e.attr, ir.IntegerAttr)}


# Generated code.


@pytest.mark.parametrize(
    "name",
    ["softmax_vectors", "layer_norm", "batch_statistics", "columns_divided", "argmax", "scan_long", "sort"],
)
@pytest.mark.parametrize(("arch", "target"), [("sm_70", "v100"), ("sm_80", "a100"), ("sm_90a", "h100")])
def test_kernels_assemble_without_spills(name: str, arch: str, target: str) -> None:
    function, args = CASES[name]
    if name == "softmax_vectors":
        args = (r(512, 1024),)
    _module, dispatch = reduction(function, args, target)
    kernel = kernel_of(dispatch, [own], resolve(target))
    run_pipeline(kernel.operation, "builtin.module(gpu.module(gpu.func(place-shared)))")
    text = compile_ptx(kernel, arch).text
    assembled = ptxas.assemble(text, arch)
    assert assembled is not None, "the development extra brings an assembler"
    assert (assembled.resources.spill_bytes, assembled.resources.warnings) == (0, ())
    assert assembled.resources.registers <= 64
    if name in ("softmax_vectors", "layer_norm", "scan_long"):
        assert re.search(r"ld\.global(\.nc)?\.v4", text)
        assert "st.global.v4" in text
        assert "shfl.sync" in text


def test_a_row_is_read_once() -> None:
    """The loads of a softmax are as many vectors as a thread has of its row, and nothing else is read of it."""
    _module, dispatch = reduction(lambda x: torch.softmax(x, -1), (r(4096, 1024),))
    kernel = kernel_of(dispatch, [own], resolve("v100"))
    launch = launch_of(kernel)
    assert len(walk(kernel.operation, "vector.load")) * 4 * launch["block"] * launch["grid"] == 4096 * 1024
    scalar = walk(kernel.operation, "memref.load")
    assert all("workgroup" in str(op.operands[0].type) for op in scalar)


# Choices.


@pytest.mark.parametrize(("rows_", "bits"), [(1 << 13, 32), (1 << 18, 64)])
def test_points_are_counted_in_64_bits_where_there_are_more_than_32_hold(rows_: int, bits: int) -> None:
    """The reduction of a product of two short vectors goes over far more points than either has elements."""
    vectors = torch.zeros(rows_), torch.zeros(1 << 15)
    module, dispatch = reduction(lambda a, b: (a[:, None] * b).amax(), vectors)
    written = own(dispatch, None, resolve("v100"))
    kernel = nvvm.kernel_of(written)
    assert nvvm.index_bits(kernel, nvvm.operation_names(kernel)) == bits
    del module


def test_short_rows_share_a_block_and_long_ones_have_several_warps() -> None:
    target = resolve("v100")
    short = choose_layout(RowShape(10000, 64, True, 4, 4, False), Schedule(), target)
    assert (short.looped, short.threads >= 128, short.beside >= 8) == (False, True, True)
    long = choose_layout(RowShape(100, 8192, True, 4, 4, False), Schedule(), target)
    assert (long.looped, long.across >= 512, long.beside) == (False, True, 1)


def test_long_rows_are_divided_among_blocks() -> None:
    """At the end, where nothing waits for the reduction; else blocks wait for each other, and half the device must hold them all."""
    target = resolve("v100")
    at_end = choose_layout(RowShape(1, 1 << 24, True, 4, 4, True), Schedule(), target)
    assert (at_end.waits, at_end.split >= 2 * target.num_cores) == (False, True)
    waiting = choose_layout(RowShape(1, 1 << 24, True, 4, 4, False), Schedule(), target)
    assert waiting.waits
    assert 2 <= waiting.split * waiting.threads <= target.num_cores * 1024 // 2
    many = choose_layout(RowShape(200, 1 << 20, True, 4, 4, False), Schedule(), target)
    assert (many.split, many.waits) == (1, False)
    strided = choose_layout(RowShape(64, 100000, False, 4, 4, True), Schedule(), target)
    assert strided.split > 1


@pytest.mark.parametrize("threads", [32, 128, 512])
def test_a_schedule_says_how_many_threads(threads: int) -> None:
    x = r(5, 300)
    _module, dispatch = reduction(lambda x: torch.softmax(x, -1), (x,))
    with dispatch.context, ir.Location.unknown():
        kernel = emitter("rows")(dispatch, Schedule(gpu=GpuTile(threads=threads, vector=2)), resolve("v100"))
    assert launch_of(kernel)["block"] == threads
    result = torch.zeros(5, 300)
    run_kernel(kernel, [x.numpy(), result.numpy()])
    agree([result], [torch.softmax(x, -1)])


def test_a_number_of_threads_that_rows_cannot_share_is_refused() -> None:
    _module, dispatch = reduction(lambda x: torch.softmax(x, -1), (r(5, 300),))
    with pytest.raises(ScheduleError, match="96 threads asked for; use a power of two"):
        emitter("rows")(dispatch, Schedule(gpu=GpuTile(threads=96)), resolve("v100"))


def test_products_of_matrices_are_no_rows() -> None:
    _module, found = dispatches(lambda x, y: x @ y, (r(7, 9), r(9, 5)), "v100")
    (dispatch,) = found.values()
    with pytest.raises(NotRows, match="a contraction"):
        read_rows(dispatch)


# What can go wrong.


def test_an_index_outside_is_reported() -> None:
    labels = torch.full((9,), 41)
    with pytest.raises(EmulationError, match="run-time check"):
        run(F.cross_entropy, (r(9, 40), labels), own)


@pytest.mark.parametrize(
    ("name", "shape", "outputs"),
    [
        ("softmax", (3, 700), [(3, 700)]),
        ("softmax_first", (200, 6), [(200, 6)]),
        ("scan", (2, 600), [(2, 600), (2,)]),
        ("all_divided", (96, 101), [()]),
    ],
)
def test_no_barrier_can_be_left_out(name: str, shape: tuple, outputs: list[tuple]) -> None:
    """Neither those between warps, nor those between the blocks that share a row."""
    x = r(*shape)
    function = CASES[name][0]
    _module, dispatch = reduction(function, (x,))
    kernel = kernel_of(dispatch, [own], resolve("v100"))
    expected = function(x)
    argument = dispatch.attributes["function_type"].value.inputs[0]
    flat = x.numpy().reshape(tuple(ir.ShapedType(argument).shape))

    def is_right(mutant: ir.Module, seed: int) -> bool:
        results = [torch.zeros(extents).numpy() for extents in outputs]
        run_kernel(mutant, [flat, *results], seed)
        return torch.allclose(torch.from_numpy(results[0]), expected, atol=1e-4)

    assert launch_of(kernel)["grid"] > 1 or "divided" not in name
    assert survivors(kernel, is_right) == []


def test_blocks_of_a_long_row_wait_for_each_other() -> None:
    """A variance needs the mean of all blocks first: a cooperative grid, in which every wait is needed."""
    x = r(8200, 4)
    _module, dispatch = reduction(lambda x: x.var(0), (x,))
    target = replace(resolve("v100"), num_cores=3)
    with dispatch.context, ir.Location.unknown():
        kernel = emitter("rows")(dispatch, Schedule(gpu=GpuTile(threads=64)), target)
    assert launch_of(kernel)["grid"] == 3
    assert "cooperative = true" in str(kernel)

    def is_right(mutant: ir.Module, seed: int) -> bool:
        result = torch.zeros(4)
        run_kernel(mutant, [x.numpy(), result.numpy()], seed)
        return torch.allclose(result, x.var(0), rtol=1e-4)

    assert survivors(kernel, is_right, seeds=(0, 1)) == []
