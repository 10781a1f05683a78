"""What kernels are generated for: the matrix product that a dispatch is, and which tiles its emitters take for it.

Schedules are constructed from plain data (`compiler/tuning`); this reads that data off a dispatch with the emitters' own
reader, so that both mean the same rows, columns and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.errors import ScheduleError, TilewrightError
from tilewright.compiler.families.attention import choice as attention_choice
from tilewright.compiler.families.attention.family import takes_matrices
from tilewright.compiler.families.attention.problem import NotAttention, read_attention
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.contraction import choice as contraction_choice
from tilewright.compiler.families.contraction.operand_copies import k_contiguous
from tilewright.compiler.families.contraction.problem import Contraction, NotContraction, read_contraction
from tilewright.compiler.families.wgmma import choice as wgmma_choice
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import majors, staged_alone
from tilewright.compiler.families.wgmma.tile import ITEM_BYTES
from tilewright.compiler.gpu.alignment import FULL_BYTES, buffer_alignments
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES, Gemm


@dataclass(frozen=True)
class Product:
    """A dispatch as a matrix product: `gemm` for schedules, `contraction` for emitters."""

    gemm: Gemm
    contraction: Contraction
    alignments: tuple[int, ...]


def read_product(function: ir.Operation) -> Product | None:
    """The product that a dispatch is; None for one that kernels of contractions are not generated for."""
    try:
        contraction = read_contraction(function)
    except NotContraction:
        return None
    if contraction.a_dtype not in BITS or contraction.b_dtype not in BITS:
        return None
    aligned = tuple(buffer_alignments(function))
    return Product(_gemm(contraction, aligned), contraction, aligned)


def _gemm(contraction: Contraction, aligned: tuple[int, ...]) -> Gemm:
    a, b, out = (
        contraction.buffers[contraction.accesses[i].buffer] for i in (0, 1, contraction.stores[0].access)
    )
    item = {name: BITS[name] // 8 for name in (a.dtype, b.dtype, out.dtype)}
    others = {x.buffer for x in contraction.accesses[2:] if x.buffer >= 0}
    read = others - {contraction.accesses[store.access].buffer for store in contraction.stores}
    stored = sum(
        BITS.get(contraction.buffers[contraction.accesses[s.access].buffer].dtype, 32) // 8
        for s in contraction.stores
    )
    whole = all(aligned[contraction.accesses[i].buffer] >= FULL_BYTES for i in (0, 1))
    vectors, aligned_16 = [], whole
    for factor, buffer in ((0, a), (1, b)):
        inner = _inner(contraction, factor)
        vectors.append(contraction.vector(factor, inner, ACCESS_BYTES // item[buffer.dtype]) if whole else 1)
        strides = [s * item[buffer.dtype] for s in contraction.accesses[factor].strides if s > 1]
        aligned_16 = aligned_16 and inner is not None and all(s % ACCESS_BYTES == 0 for s in strides)
    rest = sum(
        BITS.get(contraction.buffers[i].dtype, 32) // 8 * contraction.buffers[i].span for i in sorted(read)
    )
    return Gemm(
        contraction.extent("batch"), contraction.extent("m"), contraction.extent("n"), contraction.extent("k"), a.dtype,
        "k" if k_contiguous(contraction, 0) else "m", "k" if k_contiguous(contraction, 1) else "n", *vectors,
        a.span * item[a.dtype], b.span * item[b.dtype], stored, rest, aligned_16, contraction.compute_dtype,
        a.dtype == b.dtype and contraction.convert_a is None and contraction.convert_b is None, _run(contraction),
    )  # fmt: skip


def _run(contraction: Contraction) -> int:
    """How far boxes of tensor maps go along k; 0 where that is all of it, or there are none."""
    type_ = "tf32" if contraction.a_dtype == "f32" else contraction.a_dtype
    if type_ not in ITEM_BYTES:
        return 0
    try:
        alone = staged_alone(contraction, type_)
        extent = alone.loops[majors(alone, type_)[2]].extent
    except NotHopper:
        return 0
    return extent if extent < contraction.extent("k") else 0


def _inner(contraction: Contraction, access: int) -> int | None:
    """The loop that an access is contiguous along."""
    strides = contraction.accesses[access].strides
    return next((i for i, stride in enumerate(strides) if stride == 1), None)


def takes(product: Product, target: Target) -> Callable[[GpuTile], bool]:
    """Whether an emitter takes a tile for this product: the last of the alignment rules."""

    def fits(tile: GpuTile) -> bool:
        if tile.kernel == "skinny":
            return contraction_choice.suits_skinny(product.contraction)
        chooser = wgmma_choice if tile.kernel == "wgmma" else contraction_choice
        try:
            chooser.complete(product.contraction, Schedule(gpu=tile), target)
        except (NotHopper, TilewrightError):
            return False
        return True

    return fits


def takes_attention(function: ir.Operation, target: Target) -> tuple[Callable[[GpuTile], bool], bool, bool]:
    """Whether the emitter takes blocks for this attention, and whether it multiplies with matrix instructions, of warps
    and of warpgroups.

    An attention that it does not know takes none.
    """
    with function.context, function.location:
        try:
            problem = read_attention(function)
        except NotAttention:
            return (lambda tile: False), False, False
        matrices = takes_matrices(problem, target)
        warpgroups = attention_choice.takes_warpgroups(problem, target)

    def fits(tile: GpuTile) -> bool:
        with function.context, function.location:
            try:
                attention_choice.complete(problem, Schedule(gpu=tile), target)
            except (Declined, ScheduleError):
                return False
            return True

    return fits, matrices, warpgroups
