"""Operands that are stored in panels, as packing leaves weights, and how far ahead of their use they are fetched.

    for k { prefetch B[n0, k + 64]; %b = load B[n0, k]; %acc_t += broadcast(A[m0 + t, k]) * %b }

Weights of a model come from memory, or from a cache that all cores share, each time that they are read, and whoever
multiplies by a panel waits for what the hardware does not guess: it follows a stream page by page, and loses it among the
rows that are broadcast meanwhile. Few rows do not hide that. Many rows read the panel out of the core's own cache, and
a single one is bound by memory whatever it asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, map_dims, packing
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects.reduction_attribute import reductions_of
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import FETCHING, Reduction
from tilewright.compiler.targets.target import Target

DISTANCES = (4096, 8192, 16384, 32768, 65536)
"""Bytes of a panel ahead of its use that are worth trying."""

_LATENCY_NS = 100.0
"""Of memory, where nobody measured it."""
_MOST_WAITING, _LEAST_WAITING = 8.0, 1 / 16
"""How long a panel comes from memory over how long its products take, between which both matter: at 20, a single row,
fetching ahead changes nothing, at 1.2 sixteen rows take 0.85 of the time, at 0.4 7x7 images 0.8, at 0.15 128 rows 0.98."""


@dataclass(frozen=True)
class Panels:
    """The operand of a reduction that lies in panels: its number, its bytes, and how often each element is multiplied."""

    operand: int
    nbytes: int
    uses: int

    @classmethod
    def read(cls, op: ir.Operation) -> Panels | None:
        """Those of an operation on static tensors or memrefs; None where no operand is stored in blocks of its result's
        last dimension."""
        if op.name != "linalg.generic":
            return None
        *maps, output = (ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"])
        if not output.results or not isinstance(output.results[-1], ir.AffineDimExpr):
            return None
        vector = output.results[-1].position
        operand = next((i for i, map_ in enumerate(maps) if packing(map_, vector) is not None), None)
        if operand is None:
            return None
        stored, result = ir.ShapedType(op.operands[operand].type), ir.ShapedType(op.operands[len(maps)].type)
        if not stored.has_static_shape or not result.has_static_shape:
            return None
        elements, width = math.prod(stored.shape), _bits(stored.element_type) // 8
        convolution = Convolution2d.read(op)
        matrices = convolution.transforms if convolution is not None else None
        if convolution is None or matrices is None:
            moved = map_dims(maps[operand])
            others = (size for expr, size in zip(output.results, result.shape) if not dims(expr) & moved)
            return cls(operand, elements * width, math.prod(others))
        images, rows, columns, filters, *_, channels = convolution.extents
        tiles = images * -(-rows // matrices.outputs) * -(-columns // matrices.outputs)
        return cls(operand, matrices.points**2 * channels * filters * width, tiles)


def fetched_panels(function: ir.Operation, reductions: Sequence[Reduction]) -> dict[int, Panels]:
    """By number, the reductions of a dispatch whose panels can be fetched ahead in the loops that compute them."""
    found = {}
    for number, (op, said) in enumerate(zip(reductions_of(function), reductions)):
        panels = Panels.read(op) if said.loops in FETCHING else None
        if panels is not None:
            found[number] = panels
    return found


def chosen_prefetch(function: ir.Operation, reductions: Sequence[Reduction], target: Target) -> int:
    """The bytes ahead at which a dispatch's panels are to be fetched, 0 where that is of no use."""
    found = fetched_panels(function, reductions).values()
    return prefetch_distance(target) if any(_waited_for(panels, target) for panels in found) else 0


def prefetch_distance(target: Target) -> int:
    """The bytes that a core could take out of its own cache while memory answers, as a power of two."""
    taken = (target.memory[0].latency_ns or _LATENCY_NS) * target.own_cache.bandwidth_gbps / target.num_cores
    return min(max(DISTANCES[0], 1 << round(math.log2(taken))), DISTANCES[-1])


def _waited_for(panels: Panels, target: Target) -> bool:
    """Whether both matter, fetching panels from memory and multiplying by them, and no near cache holds them anyway."""
    if panels.nbytes <= target.level("L1").capacity_bytes:
        return False
    fetched = panels.nbytes / target.memory[0].bandwidth_gbps
    elements = panels.nbytes / 4
    multiplied = 2 * elements * panels.uses / target.peak_gflops["f32"]
    return _LEAST_WAITING * multiplied <= fetched <= _MOST_WAITING * multiplied


def _bits(type_: ir.Type) -> int:
    return type_.width if isinstance(type_, (ir.FloatType, ir.IntegerType)) else 64
