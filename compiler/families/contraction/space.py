"""The spaces of schedules of contractions' kernels: simt, mma with either instruction, skinny."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.compiler.families.contraction.operand_copies import widest
from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.families.contraction.rules import instruction_tile, rules, threads_of
from tilewright.compiler.families.contraction.skinny_gemm import MOST_SUMS
from tilewright.compiler.families.contraction.tiles import described, padding_unit
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.families.tile_space import Said, tile_space, up_to
from tilewright.compiler.nouns.schedule import BLOCK_THREADS, GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, Value
from tilewright.compiler.targets.target import Target

_BLOCK = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_STAGES = (2, 3, 4, 5, 6, 8)
_DEPTHS = (4, 8, 16, 32, 64, 128)
_MOST_PARTS = 64
_RASTERS = (*range(1, 65), 96, 128, 192, 256)
_RESIDENT = range(1, 9)
_POWERS = tuple(1 << n for n in range(11))


def space(problem: Contraction, constructed: Schedule, target: Target) -> Space:
    """The schedules of the kernel that `constructed` is one of."""
    said = constructed.gpu or GpuTile()
    m, n, k = (problem.extent(name) for name in "mnk")
    own = rules(problem, said, target)
    if said.kernel == "skinny":
        columns = [c for c in _POWERS if c * m <= MOST_SUMS]
        domains: dict[str, tuple[int, ...] | list[int] | range] = {
            "block[1]": up_to(n, (w * c for w in (4, 8, 16, 32, 64, 128) for c in columns)),
            "block[2]": up_to(k, (d * s for d in _POWERS for s in range(1, 1 + widest(problem, 1)))),
            "thread[1]": columns,
            "threads": [t for t in _POWERS if 32 <= t <= BLOCK_THREADS],
            "split_k": _parts(k, _DEPTHS),
        }
        return tile_space(domains, own, constructed, lambda values: {})
    made = described(problem, said, target)
    part, rows, columns, depth = "thread", 1, 1, 4
    if said.kernel == "mma":
        part, (rows, columns, depth) = "warp", instruction_tile(made)
    domains = {
        "block[0]": up_to(m, (n for n in _BLOCK if n % rows == 0)),
        "block[1]": up_to(n, (n for n in _BLOCK if n % columns == 0)),
        "block[2]": up_to(k, (n for n in _DEPTHS if n % depth == 0)),
    }
    sides = (8, 16, 32, 64, 128) if said.kernel == "mma" else (1, 2, 4, 8, 16)
    domains |= {
        f"{part}[0]": [n for n in sides if n % rows == 0],
        f"{part}[1]": [n for n in sides if n % columns == 0],
        "stages": _STAGES,
        "split_k": _parts(k, _DEPTHS),
        "raster": sorted({*up_to(-(-m // _BLOCK[0]), _RASTERS), *(-(-m // size) for size in _BLOCK)}),
        "resident": _RESIDENT,
    }
    if not isinstance(made, VoltaTile):
        piece = padding_unit(problem, made)
        domains["padding"] = (0, piece, 2 * piece)
    threads = threads_of(said.kernel)

    def complete(sizes: Said) -> dict[str, Value]:
        return {"threads": int(threads(sizes))}  # type: ignore[arg-type]

    return tile_space(domains, own, constructed, complete)


def _parts(extent: int, depths: Iterable[int]) -> list[int]:
    """Into how many parts steps of these depths can be divided, none of which is empty."""
    found = set()
    for depth in depths:
        steps = -(-extent // depth)
        found |= {-(-steps // -(-steps // parts)) for parts in range(1, 1 + min(steps, _MOST_PARTS))}
    return sorted(found)
