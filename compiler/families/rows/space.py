"""The spaces of schedules of kernels along rows: of reductions, sorts and scans."""

from __future__ import annotations

from tilewright.compiler.families.rows import scans, sorts
from tilewright.compiler.families.rows.family import RowDispatch
from tilewright.compiler.families.rows.layout import KEPT_BYTES, layout_rules
from tilewright.compiler.families.rows.scans import ScanProblem
from tilewright.compiler.families.rows.sorts import SortProblem
from tilewright.compiler.families.tile_space import Said, tile_space, up_to
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, Value
from tilewright.compiler.targets.target import Target

_POWERS = tuple(1 << n for n in range(15))
_THREADS = (32, 64, 128, 256, 512, 1024)
_WAVES = 4
"""Blocks of a divided row for every multiprocessor, at most."""


def space(problem: RowDispatch, constructed: Schedule, target: Target) -> Space:
    """The schedules of the kernel that `constructed` is one of."""
    said, shape, rows = constructed.gpu or GpuTile(), problem.shape, problem.problem
    if isinstance(rows, SortProblem):
        own = sorts.rules(rows, problem.types, said, target)
        domains: dict[str, tuple[int, ...] | list[int] | range] = {"threads": _THREADS}
        if len(said.block) == 2:
            widths = [n for n in _POWERS if rows.kept < n < rows.length]
            domains |= {"block[0]": up_to(rows.rows, _POWERS[:9]), "block[1]": [*widths, rows.length]}
        return tile_space(domains, own, constructed, lambda sizes: {})
    if isinstance(rows, ScanProblem):
        own = scans.rules(problem.vector)
        if not problem.vector:
            return tile_space(
                {"threads": _THREADS}, own, constructed, lambda sizes: {"block[0]": sizes["threads"]}
            )

        def of_rows(sizes: Said) -> dict[str, Value]:
            rows_, columns, lanes = (int(sizes[name]) for name in ("block[0]", "block[1]", "vector"))
            return {"threads": rows_ * (columns // lanes)}

        domains = {
            "block[0]": up_to(rows.rows, _POWERS[:9]),
            "block[1]": up_to(rows.length, _POWERS[1:]),
            "vector": [n for n in _POWERS if n <= problem.vector],
        }
        return tile_space(domains, own, constructed, of_rows)
    assert shape is not None
    # A thread keeps up to `KEPT_BYTES` of any number of vectors.
    columns = sorted({power * odd for power in _POWERS for odd in range(1, KEPT_BYTES // shape.bytes, 2)})
    domains = {
        "block[0]": up_to(shape.rows, _POWERS[:11]),
        "block[1]": up_to(shape.columns, columns),
        "threads": _THREADS,
        "vector": [n for n in _POWERS if n <= shape.vector],
        "split_k": range(1, 1 + min(shape.columns, _WAVES * target.num_cores)),
    }
    return tile_space(domains, layout_rules(shape, target.num_cores), constructed, lambda sizes: {})
