"""Register tiles: as many independent accumulators as the vector registers hold, in extents that divide."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisterTile:
    """`unroll` x `vector` accumulator elements kept in registers over a reduction."""

    unroll: int
    vector: int


def choose_register_tile(
    unroll_extent: int, vector_extent: int, lanes: int, registers: int, packed: int | None = None
) -> RegisterTile:
    """The tile with the most multiply-adds per loaded element that leaves no spills.

    `lanes` elements fill a vector register, of which there are `registers`; `packed`, when given, is the block
    that an operand is stored in along the vector extent, which the tile must divide. A tile of u x (v lanes)
    needs u*v accumulators, v registers for the vector operand and one for broadcasts; per step of the
    reduction it loads u + v registers for u*v multiply-adds.
    """
    candidates = []
    for vectors in (1, 2, 3, 4, 6, 8):
        width = vectors * lanes
        if packed is not None and packed % width and packed != vector_extent:
            continue
        if vectors > 1 and width - lanes >= vector_extent:
            break
        for unroll in range(1, min(unroll_extent, registers) + 1):
            if unroll * vectors + vectors + 1 > registers:
                break
            passes_u, passes_v = -(-unroll_extent // unroll), -(-vector_extent // width)
            computed = passes_u * unroll * passes_v * width
            used = unroll_extent * vector_extent / computed
            # Fewer accumulators than latency x throughput (4 x 2) leave the multiply-add units idle.
            busy = min(1.0, unroll * vectors / 8)
            loads = (unroll + vectors) / (unroll * vectors)
            candidates.append((used * busy / (1 + loads), -unroll * vectors, unroll, width))
    if not candidates:
        return RegisterTile(min(unroll_extent, 4), min(vector_extent, packed or vector_extent))
    _, _, unroll, width = max(candidates)
    return RegisterTile(unroll, min(width, vector_extent) if packed is None else min(width, packed))
