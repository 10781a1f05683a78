"""The spaces of schedules of element-wise kernels: of windows, of boxes of transpositions, and of scatters too."""

from __future__ import annotations

from tilewright.compiler.families.elementwise.cover import LANES
from tilewright.compiler.families.elementwise.family import Elementwise, rules
from tilewright.compiler.families.tile_space import Said, tile_space, up_to
from tilewright.compiler.nouns.register_tiles import divisors
from tilewright.compiler.nouns.schedule import BLOCK_THREADS, WARP, GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, Value
from tilewright.compiler.targets.target import Target

_POWERS = tuple(1 << n for n in range(16))
_THREADS = tuple(WARP * n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
_BLOCKS = tuple(sorted({a * b for a in _POWERS for b in (1, 3) if WARP <= a * b <= BLOCK_THREADS * 128}))
_MOST_NEIGHBOURS = 16


def space(problem: Elementwise, constructed: Schedule, target: Target) -> Space:
    """The schedules of the kernel that `constructed` is one of."""
    said = constructed.gpu or GpuTile()
    own = rules(problem, said, target)
    if problem.scatter is not None:
        keys = problem.scatter.keys
        most = BLOCK_THREADS.bit_length()
        domains = {"block[0]": up_to(keys, _POWERS), "threads": _POWERS[5:most]}
        domains["block[0]"] = sorted({min(n, keys) for n in domains["block[0]"]})
        return tile_space(domains, own, constructed, lambda sizes: {})
    if said.kernel == "transpose" and problem.crossing is not None:
        domains = {f"block[{i}]": _runs(extent) for i, extent in enumerate(problem.crossing.axes)}
        return tile_space({**domains, "threads": _THREADS}, own, constructed, lambda sizes: {})
    parts = problem.dispatch.parts
    others = [part for number, part in enumerate(parts) if number != problem.main]
    main, is_window = parts[problem.main], said.kernel == "windows"
    domains = {
        "thread[0]" if is_window else "block[0]": range(1, 1 + _MOST_NEIGHBOURS)
        if is_window
        else _blocks(main.points),
        "vector": sorted(LANES),
        "threads": _THREADS,
    }
    for number, part in enumerate(others):
        domains[f"parts[{2 * number}]"] = _blocks(part.points)
        domains[f"parts[{2 * number + 1}]"] = sorted(LANES)

    def of_windows(sizes: Said) -> dict[str, Value]:
        threads, each, lanes = (int(sizes[name]) for name in ("threads", "thread[0]", "vector"))
        return {"block[0]": threads * each * lanes, "thread[1]": lanes}

    return tile_space(domains, own, constructed, of_windows if is_window else lambda sizes: {})


def _blocks(points: int) -> list[int]:
    """Results of a block: as many as there are, and no fewer than a warp has with the longest vector of them."""
    longest = max(lanes for lanes in LANES if lanes <= max(1, points))
    return up_to(max(points, WARP * longest), _BLOCKS)


def _runs(extent: int) -> list[int]:
    """Sizes of a box along an axis: powers of two, divisors near them, and all of it where that is short."""
    whole = [n for n in divisors(extent) if n <= 256]
    return sorted({*(n for n in _POWERS if n <= min(extent, 256)), *whole})
