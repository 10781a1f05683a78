"""A `Schedule` says how one dispatch is cut: rTask tile, register tile, tiles of memory levels; it applies nothing itself.

In the IR it is the attribute `tilewright.schedule` on the dispatch's function, a dictionary that prints as

    tilewright.schedule = {levels = {L1 = [14, 64, 64], L2 = [112, 64, 256]}, reductions = [{products = [14, 32]}],
                           tile = [1, 4, 0, 64]}

and for a GPU with what its kernel is built from

    tilewright.schedule = {gpu = {block = [128, 128, 32], instruction = "mma.m16n8k16", kernel = "mma", stages = 4,
                                  threads = 128, warp = [64, 64]}, tile = [], unroll = 0, vector = 0}
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tilewright.compiler.nouns.reduction_blocks import ORDERS

ATTRIBUTE = "tilewright.schedule"
PREDICTED = "tilewright.predicted"
"""Beside the schedule: what the micro-performance model says of it, `{bound = "L2", us = 12.5}`."""
UNSCHEDULED = "tilewright.unscheduled"
"""Why a dispatch was given an empty schedule."""
PROPOSER = "tilewright.proposer"
"""The name of the proposer that the schedule came first of."""

KERNELS = (
    *("simt", "mma", "wgmma", "skinny", "attention"),
    *("elementwise", "windows", "transpose", "scatter", "rows", "sort", "scan", "fallback"),
)
"""Families of GPU kernels: four ways to contract, fused attention, what is computed element by element, what goes along
rows, and the one that takes every dispatch."""

WARP = 32
BLOCK_THREADS = 1024
"""Threads of a warp, and the most that one block has, on every NVIDIA GPU. Source: CUDA C Programming Guide,
"Compute Capabilities"."""

LOOPS: dict[str, tuple[str, ...]] = {
    "products": ("unroll", "vector"),
    "dots": ("unroll", "vector"),
    "winograd": ("unroll", "vector"),
    "windows": ("rows", "columns", "vectors"),
    "along": ("rows", "columns", "chains"),
    "groups": ("unroll",),
    "attention": ("queries", "vectors", "keys", "registers"),
    "tiles": (),
    "scalar": (),
}
"""Kinds of loops that compute a reduction on a CPU, and the sizes that each has."""
FETCHING = ("products", "dots", "winograd")
"""Those of `LOOPS` that can fetch the panels of an operand into the core's own cache ahead of their use."""
BLOCKED = ("products", "dots", "tiles", "winograd")
"""Those of `LOOPS` whose register tiles may sum in blocks of their reduction."""
ORDERED = ("products",)
"""Those of `LOOPS` whose register tiles may follow each other in another order."""
THROUGH_MEMORY = ("along", "scalar")
"""Those of `LOOPS` whose results may be streamed: the others store theirs from registers."""

ONE_ORDER = ("products", "dots", "windows", "tiles", "scalar")
"""Those of `LOOPS` that sum in one order, whatever their sizes and the tile of an rTask are. Attention's is that of its
blocks of keys. What is left over of a tile is summed in another order by the others."""

Value = int | str | bool | list["Value"] | list[int] | dict[str, "Value"]


@dataclass(frozen=True)
class Reduction:
    """How one reduction of a dispatch is computed on a CPU.

    `loops` is one of `LOOPS`, `sizes` are its sizes, all of them:

    | loops | computes | sizes |
    | --- | --- | --- |
    | products | any reduction whose vectors run along its result | steps of the unrolled loop, elements of the vector loop |
    | dots | products of pairs of bf16 and quads of bytes | the same |
    | tiles | the same on AMX, whose tiles are one size | |
    | winograd | a convolution stored with its filter's transforms | the same two of the products of transforms |
    | windows | depthwise convolutions and poolings | rows, columns, and vectors of the results in registers |
    | along | reductions whose vectors run along themselves | rows and columns of results, accumulators for each |
    | groups | convolutions of few channels per group | steps of the unrolled loop |
    | attention | attention with online softmax | queries of an rTask, vectors of them in flight, keys of a block, \
      registers that its sums take |
    | scalar | any | |

    Of those in `BLOCKED`, `depth` is how many steps of the reduction, channels of `winograd`, all register tiles take before
    they go on, 0 for all at once; of those in `ORDERED`, `order`, one of `ORDERS`, along what register tiles go first.
    """

    loops: str
    sizes: tuple[int, ...] = ()
    depth: int = 0
    order: str = ORDERS[0]

    def as_dict(self) -> dict[str, Value]:
        """One entry: the sizes by the kind of loops, blocks and another order where there are any."""
        found: dict[str, Value] = {self.loops: list(self.sizes)}
        if self.depth:
            found["depth"] = self.depth
        if self.order != ORDERS[0]:
            found["order"] = self.order
        return found

    def text(self) -> str:
        """`windows 2x5x1`, `products 4x32 in depths of 256, columns first`."""
        found = f"{self.loops} {'x'.join(map(str, self.sizes))}".rstrip()
        found += f" in depths of {self.depth}" if self.depth else ""
        return found + (f", {self.order} first" if self.order != ORDERS[0] else "")

    @classmethod
    def from_dict(cls, value: object) -> Reduction:
        """The inverse of `as_dict`; raises ValueError that names what is wrong."""
        named = value if isinstance(value, dict) else {}
        depth, order = named.get("depth", 0), named.get("order", ORDERS[0])
        given = {name: sizes for name, sizes in named.items() if name not in ("depth", "order")}
        if len(given) != 1:
            raise ValueError(f"an entry of reductions is one kind of loops with its sizes, found {value}")
        ((loops, sizes),) = given.items()
        if loops not in LOOPS:
            raise ValueError(f"reductions are computed by {_listing(list(LOOPS))}, found `{loops}`")
        names = LOOPS[loops]
        if not isinstance(sizes, list) or not all(_is_size(size) and size for size in sizes):
            raise ValueError(f"the sizes of {loops} are integers >= 1, found {sizes}")
        if len(sizes) != len(names):
            raise ValueError(f"{loops} has the sizes [{', '.join(names)}], found {sizes}")
        if not _is_size(depth):
            raise ValueError(f"depth is an integer >= 0, found {depth}")
        if order not in ORDERS:
            raise ValueError(f"order is {', '.join(ORDERS[:-1])} or {ORDERS[-1]}, found {order}")
        for field, differs, kinds in (("depth", depth != 0, BLOCKED), ("order", order != ORDERS[0], ORDERED)):
            if differs and loops not in kinds:
                raise ValueError(f"{field} is a field of {', '.join(kinds)}; leave it out of {loops}")
        return cls(loops, tuple(sizes), depth, order)


@dataclass(frozen=True)
class GpuTile:
    """How one dispatch becomes one GPU kernel.

    `kernel` names the family. Whatever else is given is what the kernel has, or compiling it is an error; a field that
    a family does not have is 0, "" or (). `construct-schedules` fills in all that a family has.

    | kernel | `block` | other fields |
    | --- | --- | --- |
    | simt | (m, n, k) | `thread` (m, n): results of one thread; `stages`, `split_k`, `raster`, `padding`, `resident` |
    | mma | (m, n, k) | `warp` (m, n), `instruction`, `stages`, `split_k`, `raster`, `padding`, `resident` |
    | wgmma | (m, n, k) | `warp` (m, n) of a warpgroup, `instruction`, `stages`, `split_k`, `cluster`, `raster`, `swizzle` |
    | skinny | (m, n, k) | `thread` (m, n): all rows, and columns of one thread; `split_k` |
    | attention, wgmma of one | (queries, keys) | `instruction`, `stages` |
    | elementwise, windows | (results,) | `vector`: elements of one access; `parts`: both of these for each smaller part; \
      windows: `thread` (neighbours, channels) |
    | transpose | (results along every axis) | |
    | scatter | (keys,) | |
    | rows | (rows, columns) | `vector`, `split_k`: among how many blocks a row is divided |
    | sort | (rows, elements of each in shared memory), or (1,): a row where it lies | |
    | scan | (rows, elements of each at a time) | `vector`; (rows,) where each thread has one |
    | fallback | | |

    A contraction is a matrix product `[M, K] x [K, N]`: M are the axes of A and the result, N those of B and the result,
    K the reductions, and axes that all three have are a batch. `threads` is the size of a block of threads, `stages`
    how many parts of K, or of the keys, lie in shared memory at once, `split_k` among how many blocks K is divided,
    `cluster` how many blocks load together, `raster` how many rows of blocks are walked column by column. Rows of shared
    memory are `padding` elements longer than they hold, or swizzled in `swizzle` bytes; those of mma are swizzled where
    `padding` is 0. `resident` is for how many blocks of a multiprocessor the assembler leaves registers.
    """

    kernel: str = ""
    threads: int = 0
    block: tuple[int, ...] = ()
    warp: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    instruction: str = ""
    stages: int = 0
    split_k: int = 0
    cluster: int = 0
    raster: int = 0
    swizzle: int = 0
    padding: int = 0
    vector: int = 0
    resident: int = 0
    parts: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Value]:
        """The fields that say something, as integers, strings and lists."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items() if v}

    @classmethod
    def from_dict(cls, values: object) -> GpuTile:
        """The inverse of `as_dict`; raises ValueError that names an unknown, ill-typed or impossible field."""
        if not isinstance(values, dict):
            raise ValueError(f"gpu is a dictionary, found {values}")
        known = {field.name: field.default for field in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"unknown field `{name}` of gpu; it has {_listing(list(known))}")
            if isinstance(known[name], str):
                if not isinstance(value, str):
                    raise ValueError(f"gpu.{name} is a string, found {value}")
            elif isinstance(known[name], tuple):
                if not isinstance(value, list) or not all(_is_size(size) and size for size in value):
                    raise ValueError(f"gpu.{name} is a list of integers >= 1, found {value}")
            elif not _is_size(value):
                raise ValueError(f"gpu.{name} is an integer >= 0, found {value}")
        found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        tile = cls(**found)
        if tile.kernel and tile.kernel not in KERNELS:
            raise ValueError(f'gpu.kernel is "{tile.kernel}"; the kernels are {_listing(list(KERNELS))}')
        if tile.threads % WARP or tile.threads > BLOCK_THREADS:
            raise ValueError(
                f"gpu.threads is a multiple of {WARP} and at most {BLOCK_THREADS}, found {tile.threads}"
            )
        any_number = range(1, 1 + len(tile.block)) if tile.kernel == "transpose" else (1, 2, 3)
        for name, lengths in (("block", any_number), ("warp", (2,)), ("thread", (2,))):
            found = getattr(tile, name)
            if found and len(found) not in lengths:
                raise ValueError(
                    f"gpu.{name} has {' or '.join(map(str, lengths))} sizes, found {list(found)}"
                )
        return tile

    def text(self) -> str:
        """One line: `mma.m16n8k16 128x128x32, warps 64x64, 4 stages, split K by 2, 128 threads`."""
        sizes = lambda values: "x".join(map(str, values))  # noqa: E731
        parts = [" ".join(filter(None, (self.instruction or self.kernel, sizes(self.block))))]
        parts += [
            f"{name} {sizes(v)}" for name, v in (("warps", self.warp), ("threads of", self.thread)) if v
        ]
        parts += [f"{self.stages} stages"] if self.stages > 1 else []
        parts += [f"split K by {self.split_k}"] if self.split_k > 1 else []
        parts += [f"clusters of {self.cluster}"] if self.cluster > 1 else []
        parts += [f"{self.vector} per access"] if self.vector > 1 else []
        parts += [f"{self.threads} threads"] if self.threads else []
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Schedule:
    """Tile sizes of one dispatch.

    `tile[i]` is the extent that one rTask takes of loop `i` of the dispatch's sink, the operation whose result
    is returned; 0 leaves the loop whole. On CPUs `reductions` say how each of the dispatch's reductions is computed, in
    their order, `prefetch` how many bytes ahead of their use the panels of packed operands, or rows that are walked again, are
    fetched, 0 for not at all,
    and `stream` whether the result is stored past the caches; `unroll` x `vector`, where not 0, is short for those of products, and `complete` writes it out. `levels` are (memory level, tile over the axes of the dispatch's workload) by name: what
    each level of memory holds of the iteration space while it is worked on. Targets that code is generated for
    read the other fields, which follow from the levels. `gpu` is there for GPUs only.
    """

    tile: tuple[int, ...] = ()
    unroll: int = 0
    vector: int = 0
    levels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    gpu: GpuTile | None = None
    reductions: tuple[Reduction, ...] = ()
    stream: bool = False
    prefetch: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(sorted(self.levels)))

    def num_tasks(self, extents: tuple[int, ...]) -> int:
        """The number of rTasks for a sink with loop `extents`."""
        count = 1
        for size, extent in zip(self.tile, extents):
            if size:
                count *= -(-extent // size)
        return count

    def as_dict(self) -> dict[str, Value]:
        """Lists, integers and dictionaries of them; `levels` and `gpu` only where there are any."""
        values: dict[str, Value] = {"tile": list(self.tile)}
        if not self.reductions:
            values |= {"unroll": self.unroll, "vector": self.vector}
        else:
            values["reductions"] = [reduction.as_dict() for reduction in self.reductions]
        if self.stream:
            values["stream"] = True
        if self.prefetch:
            values["prefetch"] = self.prefetch
        if self.levels:
            values["levels"] = {name: list(tile) for name, tile in self.levels}
        if self.gpu is not None:
            values["gpu"] = self.gpu.as_dict()
        return values

    def text(self) -> str:
        """The fields that code generation reads, in one line: `tile [0, 7, 0, 64], products 4x64`."""
        parts = [f"tile {list(self.tile)}"] if any(self.tile) else [] if self.gpu else ["whole"]
        parts += [
            f"{name} {size}" for name, size in (("unroll", self.unroll), ("vector", self.vector)) if size
        ]
        parts += [reduction.text() for reduction in self.reductions]
        parts += [f"prefetch {self.prefetch}"] if self.prefetch else []
        parts += ["streamed"] if self.stream else []
        parts += [self.gpu.text()] if self.gpu else []
        return ", ".join(parts)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        """The inverse of `as_dict`; raises ValueError that names an unknown or ill-typed field."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown field `{unknown[0]}`; a schedule has {_listing(known)}")
        tile, unroll, vector = (values.get("tile", []), values.get("unroll", 0), values.get("vector", 0))
        if not isinstance(tile, list) or not all(map(_is_size, tile)):
            raise ValueError(f"tile is a list of integers >= 0, found {tile}")
        prefetch = values.get("prefetch", 0)
        for name, size in (("unroll", unroll), ("vector", vector), ("prefetch", prefetch)):
            if not _is_size(size):
                raise ValueError(f"{name} is an integer >= 0, found {size}")
        gpu = GpuTile.from_dict(values["gpu"]) if "gpu" in values else None
        reductions = values.get("reductions", [])
        if not isinstance(reductions, list):
            raise ValueError(f"reductions is a list, found {reductions}")
        if reductions and (unroll or vector):
            raise ValueError("unroll and vector are short for what reductions say; use one of the two")
        stream = values.get("stream", False)
        if not isinstance(stream, bool):
            raise ValueError(f"stream is true or false, found {stream}")
        found = tuple(Reduction.from_dict(entry) for entry in reductions)
        return cls(
            tuple(tile), unroll, vector, _levels(values.get("levels", {})), gpu, found, stream, prefetch
        )


def _levels(value: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not isinstance(value, dict):
        raise ValueError(f"levels is a dictionary of tiles by memory level, found {value}")
    for name, tile in value.items():
        if not isinstance(tile, list) or not all(_is_size(size) and size for size in tile):
            raise ValueError(f"the tile of level {name} is a list of integers >= 1, found {tile}")
    if len({len(tile) for tile in value.values()}) > 1:
        raise ValueError(f"tiles of levels have one size per axis of the dispatch, found {value}")
    return tuple((str(name), tuple(tile)) for name, tile in value.items())


def _listing(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
