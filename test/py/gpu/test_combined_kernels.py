"""Kernels put into one compute what they compute by themselves, to the bit; those that cannot be are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dispatch_runs import dispatches, dtype_of, memory_of, strides_of
from family_kernels import emitter
from small_kernels import write

from tilewright.compiler.codegen import ptxas
from tilewright.compiler.codegen.emulation import EmulationError, execute, load_kernel, run_kernel
from tilewright.compiler.codegen.limits import check_limits
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.gpu.builder import WIDE, load, store
from tilewright.compiler.gpu.combined_kernels import combined
from tilewright.compiler.gpu.launch import asserts_of, launch_of
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.passes.lower_gpu.overlap_launches import OverlapLaunches
from tilewright.compiler.passes.lower_gpu.place_shared import PlaceShared
from tilewright.compiler.targets.target import resolve

torch.manual_seed(0)
r = torch.randn
SEEDS = (0, 1, 2)


@dataclass
class Part:
    """One dispatch's kernel, its shared memory placed, and the memory of its operands and results."""

    kernel: ir.Module
    operands: list[np.ndarray]
    results: list[np.ndarray]

    @property
    def memory(self) -> list[np.ndarray]:
        return [*self.operands, *self.results]


def part(
    family: str,
    function: Callable,
    *args: torch.Tensor,
    target: str = "a100",
    gpu: GpuTile | None = None,
    whole: int = 3,
) -> Part:
    """The last dispatch of a function, on numbers of its own and on the whole number `whole`."""
    _module, found = dispatches(function, args, target)
    *_, dispatch = found.values()
    described = replace(resolve(target), num_cores=4)
    with dispatch.context, ir.Location.unknown():
        kernel = emitter(family)(dispatch, Schedule(gpu=gpu), described)
        PlaceShared().run(kernel_of(kernel))
    numbers, type_ = np.random.default_rng(0), dispatch.attributes["function_type"].value
    arrays = []
    for own, name in ((type_.inputs, "arg_attrs"), (type_.results, "res_attrs")):
        for shaped, strides in zip(map(ir.ShapedType, own), strides_of(dispatch, name)):
            shape, dtype = tuple(shaped.shape), dtype_of(shaped.element_type)
            is_real = np.issubdtype(dtype, np.floating)
            drawn = numbers.standard_normal(shape) if is_real else np.full(shape, whole)
            arrays.append(memory_of(drawn.astype(dtype), strides)[0])
    count = len(type_.inputs)
    return Part(kernel, arrays[:count], arrays[count:])


def put_together(parts: list[Part], blocks: int = 0) -> ir.Module:
    with parts[0].kernel.context, ir.Location.unknown():
        return combined("together", [own.kernel for own in parts], blocks)


def softmax() -> Part:
    return part("rows", lambda x: torch.softmax(x, -1), r(128, 1000))


def product(split_k: int = 1, gpu: GpuTile | None = None) -> Part:
    tile = GpuTile("simt", block=(32, 32, 8), split_k=split_k)
    return part("contraction", torch.matmul, r(64, 72), r(72, 96), gpu=gpu or tile)


def half(*shape: int) -> torch.Tensor:
    return r(*shape).half()


def wgmma(cluster: int = 1) -> Part:
    tile = GpuTile("wgmma", block=(64, 64), cluster=cluster)
    return part("wgmma", torch.matmul, half(200, 136), half(136, 200), target="h100", gpu=tile)


def embedding(rows: int, found: int) -> Part:
    index = torch.zeros((5, 7), dtype=torch.int64)
    return part("elementwise", lambda w, i: F.embedding(i, w), r(rows, 16), index, whole=found)


CASES: dict[str, Callable[[], list[Part]]] = {
    "product and softmax": lambda: [product(), softmax()],
    "two divided products, counters of both": lambda: [product(3), product(2), product(1)],
    "sums of other threads, by a counter": lambda: [
        part("rows", lambda x: x.sum(-1), r(2, 9000), gpu=GpuTile(threads=64, split_k=4)),
        part("elementwise", torch.relu, r(33, 100)),
    ],
    "temporaries in a workspace": lambda: [
        part("elementwise", torch.tanh, r(3000)),
        part("fallback", lambda x: torch.cumsum(x, 1), r(2, 13000)),
        product(2),
    ],
    "matrix instructions and boxes": lambda: [
        part("contraction", torch.matmul, half(64, 48), half(48, 72)),
        part("elementwise", lambda x: x.permute(1, 0).contiguous() * 2, r(130, 70)),
    ],
    "scan and sort": lambda: [
        part("rows", lambda x: x.cumsum(-1), r(5, 300)),
        part("rows", lambda x: x.sort(-1).values, r(6, 100)),
    ],
    "attention and scatter": lambda: [
        part("attention", F.scaled_dot_product_attention, *(half(1, 2, 48, 32) for _ in range(3))),
        part("elementwise", lambda x, i, s: x.index_add(0, i, s), r(40, 16), torch.arange(6).int(), r(6, 16)),
    ],
    "checks of both": lambda: [embedding(9, 3), embedding(8, 7), softmax()],
}


def agree(parts: list[Part], module: ir.Module, seeds: tuple[int, ...] = SEEDS) -> None:
    """The kernels one by one, and the one of all, leave the same bytes."""
    for own in parts:
        run_kernel(own.kernel, own.memory)
    expected = [result.copy() for own in parts for result in own.results]
    kernel = load_kernel(module)
    for seed in seeds:
        for own in parts:
            for result in own.results:
                result[...] = 0
        execute(kernel, [array for own in parts for array in own.memory], seed)
        found = [result for own in parts for result in own.results]
        assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("blocks", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_kernels_together_compute_what_they_compute_alone(case: str, blocks: int) -> None:
    parts = CASES[case]()
    module = put_together(parts, blocks)
    needs, own = launch_of(kernel_of(module)), [launch_of(kernel_of(p.kernel)) for p in parts]
    assert needs.tasks == sum(launch.grid for launch in own)
    assert needs.grid == (blocks or needs.tasks)
    assert needs.block == max(launch.block for launch in own)
    assert needs.shared_bytes == max(launch.shared_bytes for launch in own)
    assert needs.gang == "alone"
    agree(parts, module)


def test_counters_lie_before_all_that_is_not_zero() -> None:
    """Every launch finds and leaves them zero: so do two launches on one workspace, which `execute` checks of one."""
    parts = [product(3), product(2)]
    needs, own = launch_of(kernel_of(put_together(parts))), [launch_of(kernel_of(p.kernel)) for p in parts]
    assert all(launch.zeroed_bytes for launch in own)
    assert needs.zeroed_bytes == sum(-(-launch.zeroed_bytes // 256) * 256 for launch in own)
    rest = [launch.workspace_bytes - launch.zeroed_bytes for launch in own]
    assert needs.workspace_bytes >= needs.zeroed_bytes + sum(rest)


def test_a_failed_check_is_the_one_of_its_kernel() -> None:
    parts = [embedding(9, 3), embedding(8, 8)]
    module = put_together(parts)
    first, second = (len(asserts_of(kernel_of(own.kernel))) for own in parts)
    assert len(asserts_of(kernel_of(module))) == first + second
    with pytest.raises(EmulationError, match=f"run-time check {first} failed"):
        run_kernel(module, [array for own in parts for array in own.memory])


def test_turns_are_apart() -> None:
    """Bodies lie over each other in shared memory: without the barrier between them, a run finds the race."""
    parts = [product(), softmax()]
    module = put_together(parts, 2)
    (loop,) = [op for op in walk(module.operation, "scf.for") if op.parent.operation.name == "gpu.func"]
    *_, last, _ = (view.operation for view in loop.regions[0].blocks[0].operations)
    assert last.name == "gpu.barrier"
    last.erase()
    with pytest.raises(EmulationError, match="race"):
        for seed in SEEDS:
            run_kernel(module, [array for own in parts for array in own.memory], seed)


def test_tensor_maps_are_those_of_their_buffers() -> None:
    """A kernel of warpgroups beside others, one rTask per block: its maps count buffers from its own first one on."""
    parts = [part("rows", lambda x: torch.softmax(x, -1), r(37, 129), target="h100"), wgmma()]
    module = put_together(parts)
    given = [map_.buffer for map_ in launch_of(kernel_of(parts[1].kernel)).tensor_maps]
    assert [map_.buffer for map_ in launch_of(kernel_of(module)).tensor_maps] == [n + 2 for n in given]
    with module.context, ir.Location.unknown():
        # Its own wait for the kernel before stood in a branch of this one: it is placed anew, for all threads.
        OverlapLaunches().run(kernel_of(module))
    agree(parts, module, (0, 1))


def bare(**needs) -> ir.Module:
    module = write(["4xf32"], lambda k: store(load(k.buffers[0], 0), k.buffers[0], 1), **needs)
    with module.context, ir.Location.unknown():
        PlaceShared().run(kernel_of(module))
    return module


@pytest.mark.parametrize(("asked", "given"), [((2, 3), 2), ((2, 0), None)])
def test_room_for_several_blocks_is_what_all_of_them_ask_for(
    asked: tuple[int, int], given: int | None
) -> None:
    modules = [bare(blocks_per_core=n) for n in asked]
    with modules[0].context, ir.Location.unknown():
        found = kernel_of(combined("together", modules)).attributes
    assert ("nvvm.minctasm" in found) == (given is not None)
    assert given is None or ir.IntegerAttr(found["nvvm.minctasm"]).value == given


def test_one_that_counts_far_makes_all_count_far() -> None:
    modules = [bare(), bare(points=1 << 31)]
    with modules[0].context, ir.Location.unknown():
        assert WIDE in kernel_of(combined("together", modules)).attributes
        assert WIDE not in kernel_of(combined("together", modules[:1])).attributes


@pytest.mark.parametrize(("target", "blocks"), [("v100", 0), ("a100", 5), ("h100", 0), ("h100", 7)])
def test_they_are_kernels_like_others(target: str, blocks: int) -> None:
    """From sm_90 on they overlap with the kernel before; limits hold, and an assembler takes the PTX."""
    described = resolve(target)
    parts = [
        part("contraction", torch.matmul, half(64, 48), half(48, 72), target=target),
        part("rows", lambda x: torch.softmax(x, -1), r(37, 129), target=target),
        part("rows", lambda x: x.sum(-1), r(2, 9000), target=target, gpu=GpuTile(threads=64, split_k=4)),
    ]
    module = put_together(parts, blocks)
    with module.context, ir.Location.unknown():
        if described.can_overlap_launches:
            OverlapLaunches().run(kernel_of(module))
        check_limits(kernel_of(module), described)
    assert launch_of(kernel_of(module)).overlaps == (target == "h100")
    agree(parts, module, (0,))
    made = ptxas.assemble(compile_ptx(module, described.arch).text, described.arch)
    assert made is not None and not made.resources.spill_bytes


def unplaced() -> Part:
    own = softmax()
    kernel = kernel_of(own.kernel)
    with own.kernel.context:
        fields = {entry.name: entry.attr for entry in ir.DictAttr(kernel.attributes["tilewright.launch"])}
        del fields["shared_bytes"]
        kernel.attributes["tilewright.launch"] = ir.DictAttr.get(fields)
    return own


REFUSED: dict[str, tuple[Callable[[], Part], int, str]] = {
    "a cluster": (
        lambda: wgmma(2),
        0,
        "@.* beside other kernels: its rTasks are done by gangs of 2 blocks of a cluster, expected gangs of one block",
    ),
    "a grid": (
        lambda: part("rows", lambda x: x.var(0), r(8200, 4), gpu=GpuTile(threads=64)),
        0,
        r"@.* beside other kernels: its \d+ blocks wait for each other, gang `grid`, expected gangs of one block",
    ),
    "barriers in shared memory": (
        wgmma,
        2,
        "it has barriers in shared memory, which are made once in the life of a block; give every rTask a block",
    ),
    "named barriers": (
        wgmma,
        0,
        "it has 256 threads and named barriers, expected 512 threads as in the largest kernel",
    ),
    "allocations": (unplaced, 0, "expected placed shared memory, found none; run `place-shared` first"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_stand_beside_others_is_refused(case: str) -> None:
    make, blocks, message = REFUSED[case]
    parts = [part("elementwise", torch.relu, r(5000), gpu=GpuTile("elementwise", threads=512)), make()]
    with pytest.raises(ScheduleError, match=message):
        put_together(parts, blocks)
