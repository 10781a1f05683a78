"""Candidate schedules of a dispatch for an NVIDIA GPU: what is read off its IR, and who decides about it.

| the dispatch | its schedule | decided in |
| --- | --- | --- |
| `tilewright.attention` | blocks of queries and keys | `tuning/gpu/attention_tiles.py` |
| a matrix product, a convolution | block, warp and thread tiles, instruction, stages, parts of K | `tuning/gpu/gemm_candidates.py` |
| anything else with a workload | rTask tile, threads, vector width | `tuning/gpu/block_tiles.py` |
"""

from __future__ import annotations

import math

from tilewright.compiler.analysis.cut_space import read_cut_space
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.dialects.precision import ATTRIBUTE
from tilewright.compiler.families.gpu.emitted_tiles import Product, read_product, takes, takes_attention
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.gpu.attention_tiles import attention_candidates
from tilewright.compiler.tuning.gpu.block_tiles import block_candidates
from tilewright.compiler.tuning.gpu.gpu_candidates import WINDOWS, block_space, product_candidates
from tilewright.compiler.tuning.roller.options import ConstructOptions


def gpu_candidates(
    function: ir.Operation, target: Target, options: ConstructOptions, proposer: str = "aligned"
) -> list[Candidate]:
    """At most `options.top_k` schedules of a dispatch, the one to use unmeasured first; raises NoWorkload.

    The `proposer` of a product's tiles is "aligned" or "roller"; what is no product is enumerated by either. What they
    leave open a family completes.
    """
    attentions = walk(function, ATTENTION)
    if attentions:
        return _attention(function, Attention.read(attentions[0]), target, options)
    dispatch = read_workload(function)
    product = product_of(function, dispatch)
    if product is not None:
        found = product_candidates(
            product.gemm, target, options, precision_of(function), takes(product, target), proposer
        )
        if found:
            return found
    space = _cut_space(dispatch, target)
    return block_candidates(
        dispatch.workload, block_space(dispatch.workload, space, _row(dispatch, space)), target, options
    )


def product_of(function: ir.Operation, dispatch: DispatchWorkload) -> Product | None:
    """The matrix product that a dispatch is, where its tiles are those of a contraction."""
    if dispatch.main is None or not dispatch.main.is_contraction or dispatch.workload.op in WINDOWS:
        return None
    return read_product(function)


def precision_of(function: ir.Operation) -> str:
    """What the module of a dispatch asks contractions to compute in; f32 where it says nothing."""
    module = function.parent
    if module is None or ATTRIBUTE not in module.attributes:
        return "f32"
    return ir.StringAttr(module.attributes[ATTRIBUTE]).value


def _attention(
    function: ir.Operation, attention: Attention, target: Target, options: ConstructOptions
) -> list[Candidate]:
    dtype = str(attention.element)
    if dtype not in BITS:
        raise NoWorkload(f"attention on {dtype}")
    shape = AttentionShape(
        math.prod(attention.extents), attention.rows, attention.columns, attention.inner, attention.width,
        attention.causal is not None,
    )  # fmt: skip
    fits, matrices, warpgroups = takes_attention(function, target)
    found = attention_candidates(shape, dtype, target, options.top_k, fits, matrices, warpgroups)
    if not found:
        raise NoWorkload("no block of queries and keys fits into registers and shared memory")
    return found


def _cut_space(dispatch: DispatchWorkload, target: Target) -> CutSpace:
    if dispatch.main is not None:
        return read_cut_space(dispatch, target.vector_bits)
    # Pads, concatenations and fills: every loop of the result is one.
    extents = dispatch.workload.extents
    loops = tuple(range(len(extents)))
    return CutSpace(extents, loops, loops, (1,) * len(extents), False)


def _row(dispatch: DispatchWorkload, space: CutSpace) -> int:
    """Points of the largest operation for every point of the loops that can be cut."""
    points = max((s.points for s in dispatch.group), default=math.prod(space.extents))
    return max(1, points // max(1, math.prod(space.extents[loop] for loop in space.loops)))
