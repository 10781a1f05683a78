"""The fallback: any dispatch as a kernel, checked by the emulator, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from dispatch_runs import agree, dispatches, kernel_of, run
from family_kernels import emitter
from kernel_mutants import survivors
from torch.utils import _pytree as pytree

from tilewright.compiler.codegen import ptxas
from tilewright.compiler.codegen.emulation import EmulationError, run_kernel
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.gpu.launch import launch_of
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.program import Launch

torch.manual_seed(0)
r = torch.randn
TIES = torch.randint(0, 9, (5, 129)).float()
INDICES = torch.randint(0, 9, (5, 7))

CASES = {
    "softmax": (lambda x: torch.softmax(x, -1), (r(37, 129),)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (33,), w), (r(7, 33), r(33))),
    "statistics": (lambda x: F.batch_norm(x, None, None, training=True), (r(3, 4, 5, 6),)),
    "bf16": (lambda x: torch.softmax(x, 0) + x, (r(9, 40).bfloat16(),)),
    "f16": (lambda x: torch.tanh(x).sum(1), (r(9, 41).half(),)),
    "f64": (lambda x: torch.erf(x).mean(), (r(9, 41).double(),)),
    "argmax": (lambda x: torch.max(x, 1), (TIES,)),
    "argmax_alone": (lambda x: torch.argmax(x), (TIES,)),
    "few_sums": (lambda x: (x * 2).sum(1).log(), (r(3, 700).abs(),)),
    "booleans": (lambda x: (x > 1).any(1), (r(9, 33),)),
    "cross_entropy": (F.cross_entropy, (r(9, 40), torch.randint(0, 40, (9,)))),
    "matmul": (lambda x, y: torch.relu(x @ y), (r(19, 23), r(23, 29))),
    "convolution": (lambda x, w: F.conv2d(x, w, stride=2), (r(1, 3, 9, 9), r(4, 3, 3, 3))),
    "pooling": (lambda x: F.max_pool2d(x, 2, return_indices=True), (r(1, 2, 6, 6),)),
    "attention": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (r(2, 3, 17, 8), r(17, 17)),
    ),
    "causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (r(1, 2, 9, 4),)),
    "cumsum": (lambda x: torch.cumsum(x, 1), (r(5, 129),)),
    "sort": (lambda x: torch.sort(x, stable=True, dim=1), (TIES,)),
    "sort_columns": (lambda x: torch.sort(x, stable=True, dim=0, descending=True), (TIES,)),
    "topk": (lambda x: torch.topk(x, 5, 1), (r(5, 129),)),
    "median": (lambda x: torch.median(x, 1).values, (r(5, 33),)),
    "gather": (lambda w, i: F.embedding(i, w), (r(9, 16), INDICES)),
    "scatter": (lambda x, i: torch.zeros(5, 9).scatter_add(1, i, x), (r(5, 7), INDICES)),
    "rows_scattered": (
        lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True),
        (r(9, 6), INDICES[0], r(7, 6)),
    ),
    "padding": (lambda x: F.pad(x, (1, 2, 3, 4)) + 1, (r(5, 7),)),
    "concatenation": (lambda x, y: torch.cat([x, y]) * 2, (r(5, 7), r(3, 7))),
}


@pytest.mark.parametrize("name", CASES)
def test_any_dispatch_gives_what_pytorch_gives(name: str) -> None:
    function, args = CASES[name]
    agree(run(function, args, emitter("fallback")), pytree.tree_leaves(function(*args)))


def only(function, *args: torch.Tensor, target: str = "v100") -> tuple[ir.Module, ir.Operation]:
    """The one dispatch of a function, and the module that holds it."""
    module, found = dispatches(function, args, target)
    (dispatch,) = found.values()
    return module, dispatch


def needs(module: ir.Module) -> Launch:
    (kernel,) = walk(module.operation, "gpu.func")
    return launch_of(kernel)


def test_rows_fill_the_device() -> None:
    """80 multiprocessors, a few blocks each, with temporaries in shared memory."""
    _, dispatch = only(lambda x: torch.softmax(x, 1), r(1000, 64))
    with dispatch.context, ir.Location.unknown():
        launch = needs(emitter("fallback")(dispatch, None, resolve("v100")))
    assert launch.grid == launch.tasks >= 320
    assert launch.workspace_bytes == 0


def test_large_temporaries_lie_in_a_part_of_the_workspace_per_block() -> None:
    x = torch.randint(-9, 10, (2, 13000)).float()  # whole numbers: sums are exact in any order
    _module, dispatch = only(lambda x: torch.cumsum(x, 1), x)
    launch = needs(kernel_of(dispatch, [emitter("fallback")], resolve("v100")))
    assert launch.workspace_bytes >= 2 * 13000 * 4
    agree(run(lambda x: torch.cumsum(x, 1), (x,), emitter("fallback")), [torch.cumsum(x, 1)], 0.0)


def test_a_schedule_of_another_family_is_no_error() -> None:
    _, dispatch = only(lambda x: torch.softmax(x, 1), r(10, 12))
    with dispatch.context, ir.Location.unknown():
        schedule_attribute.write(dispatch, Schedule(tile=(5, 0, 7), gpu=GpuTile(threads=64)))
    launch = needs(kernel_of(dispatch, [emitter("fallback")], resolve("v100")))
    assert (launch.grid, launch.block) == (5, 64)


def test_a_failed_check_is_reported_and_reads_nothing_outside() -> None:
    table, indices = r(9, 16), torch.full((5, 7), 9)
    with pytest.raises(EmulationError, match="run-time check 0 failed"):
        run(lambda w, i: F.embedding(i, w), (table, indices), emitter("fallback"))


@pytest.mark.parametrize("name", ["softmax", "sort", "scatter", "cumsum"])
@pytest.mark.parametrize(("arch", "target"), [("sm_70", "v100"), ("sm_80", "a100"), ("sm_90a", "h100")])
def test_kernels_assemble_without_spills(name: str, arch: str, target: str) -> None:
    function, args = CASES[name]
    _module, found = dispatches(function, args, target)
    for dispatch in found.values():
        module = kernel_of(dispatch, [emitter("fallback")], resolve(target))
        run_pipeline(module.operation, "builtin.module(gpu.module(gpu.func(place-shared)))")
        assembled = ptxas.assemble(compile_ptx(module, arch).text, arch)
        assert assembled is not None, "the development extra brings an assembler"
        assert (assembled.resources.spill_bytes, assembled.resources.warnings) == (0, ())


def test_a_sum_of_everything_is_shared_by_all_threads() -> None:
    x = r(60, 41)
    _module, dispatch = only(lambda x: x.sum(), x)
    module = kernel_of(dispatch, [emitter("fallback")], resolve("v100"))
    assert walk(module.operation, "gpu.shuffle")

    def is_right(mutant: ir.Module, seed: int) -> bool:
        result = torch.zeros(())
        run_kernel(mutant, [x.reshape(-1).numpy(), result.numpy()], seed)
        return torch.allclose(result, x.sum(), atol=1e-3)

    assert survivors(module, is_right) == []


@pytest.mark.parametrize("name", ["softmax", "topk"])
def test_no_barrier_can_be_left_out(name: str) -> None:
    x = r(3, 70)
    function = CASES[name][0]
    _module, found = dispatches(function, (x,), "v100")
    dispatch = next(d for n, d in found.items() if n.startswith(("reduction", "sort")))
    types = dispatch.attributes["function_type"].value
    assert len(types.inputs) in (1, 2)
    inputs = [x.numpy(), torch.arange(70).expand(3, 70).contiguous().numpy()][: len(types.inputs)]
    module = kernel_of(dispatch, [emitter("fallback")], resolve("v100"))
    expected = torch.softmax(x, 1) if name == "softmax" else torch.topk(x, 5, 1).values

    def is_right(mutant: ir.Module, seed: int) -> bool:
        results = [torch.zeros(3, 70).numpy(), torch.zeros(3, 70, dtype=torch.int64).numpy()][
            : len(types.results)
        ]
        run_kernel(mutant, [*inputs, *results], seed)
        own = torch.from_numpy(results[0])[:, : expected.shape[1]]
        return torch.allclose(own, expected, atol=1e-5)

    assert survivors(module, is_right) == []
