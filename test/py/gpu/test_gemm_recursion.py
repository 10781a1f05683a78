"""Roller's recursion over the tiles of contractions on GPUs: few of them, and among these one as fast as the best of all."""

from __future__ import annotations

import pytest

from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.gpu.gemm_candidates import conforming, gemm_choices
from tilewright.compiler.tuning.gpu.gemm_recursion import constructed
from tilewright.compiler.tuning.gpu.gemm_tiles import aligned_tiles, kinds
from tilewright.compiler.tuning.model.gemm_shape import plain_gemm
from tilewright.compiler.tuning.roller.options import DEFAULT, ConstructOptions

TARGETS = ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a")
SHAPES = (
    (1, 512, 512, 512),
    (1, 4096, 4096, 4096),
    (1, 256, 256, 65536),
    (384, 128, 64, 128),
    (1, 65536, 64, 2),
    (1, 1000, 77, 30),
)


@pytest.mark.parametrize("dtype", ("f32", "f16"))
@pytest.mark.parametrize("target", TARGETS)
def test_the_first_is_predicted_as_fast_as_the_best_of_all_tiles(target: str, dtype: str) -> None:
    machine = resolve(target)
    for shape in SHAPES:
        gemm = plain_gemm(*shape, dtype)
        (every, *_) = gemm_choices(gemm, machine)
        found = gemm_choices(gemm, machine, proposer="roller")
        assert found[0].us <= 1.05 * every.us, shape
        assert len({choice.tile for choice in found}) == len(found) >= 2
        assert found == gemm_choices(gemm, machine, proposer="roller")


@pytest.mark.parametrize("target", TARGETS)
def test_the_recursion_leaves_few_tiles(target: str) -> None:
    machine, gemm = resolve(target), plain_gemm(1, 4096, 4096, 4096, "f16")
    for kind in kinds(machine, "f16"):
        tiles = aligned_tiles(kind, "f16", machine, "k", "n")
        tiles = tiles.take(conforming(gemm, kind, tiles, machine))
        keep = constructed(gemm, kind, "f16", tiles, machine, DEFAULT)
        assert 0 < keep.sum() < len(tiles)
        assert not constructed(gemm, kind, "f16", tiles.take(~keep & False), machine, DEFAULT).size


def test_small_products_are_shrunk() -> None:
    """Without shrinking, blocks are too few for all multiprocessors."""
    machine, gemm = resolve("cuda:sm_80"), plain_gemm(1, 512, 512, 512, "f16")
    whole = gemm_choices(gemm, machine, ConstructOptions(shrink=False), proposer="roller")[0]
    shrunk = gemm_choices(gemm, machine, proposer="roller")[0]
    assert shrunk.us < whole.us
