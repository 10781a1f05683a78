"""In which order a program's steps run, so that what one has read is near when another reads it.

Caches keep what was used last. A program that reads a weight many times, as one written out over time steps does,
reads it from a nearer level when the reads follow one another, as far as the steps between need nothing that is later:

    for step: for layer: read W[layer]      ->      for layer: for step: read W[layer]

An order is judged by how long its reads take from the levels in which they are found (`read_us`), which is known from
sizes alone. One other order is tried, `recent_first`, and taken when it is better by `_LEAST_GAIN` and the arena
stays within bounds; else windows of the given order are reordered, each smaller than the ones before.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from tilewright.compiler.nouns.accesses import Accesses, Memory, Region, dependences
from tilewright.compiler.targets.target import Target

_LEAST_GAIN = 0.1
"""Part of the time of reads that another order must save: less is within what whole tensors tell of caches."""

_ARENA_SHARE = 4
"""The arena may grow by this part of the outermost cache, so that most of it is left to what is kept there."""

_WINDOW_STEP = 4
"""Each window is this much shorter than the one tried before."""


@dataclass(frozen=True)
class Cache:
    """A level of memory that outlives steps: what all cores' instances hold together, and read together."""

    capacity_bytes: int
    gbps: float


@dataclass(frozen=True)
class Decision:
    """The order taken, as numbers of the given one, and what reads take in either; `window` steps moved at most."""

    order: tuple[int, ...]
    read_us: float
    given_us: float
    window: int


def caches(target: Target) -> list[Cache]:
    """Levels of a target whose content one step leaves to the next, outermost first, DRAM being the first.

    Cores share a step's work, so that private caches hold different parts of what it reads. A GPU's shared memory
    and all registers are empty when a step begins.
    """
    kept = ("DRAM", "L3", "L2", "L1") if target.kind == "cpu" else ("DRAM", "L2")
    return [
        Cache(m.capacity_bytes * max(1, target.num_cores // m.shared_by), m.bandwidth_gbps)
        for m in target.memory
        if m.name in kept and m.bandwidth_gbps
    ]


def read_us(
    steps: Sequence[Accesses], memories: Sequence[Memory], levels: Sequence[Cache], order: Sequence[int]
) -> float:
    """Microseconds that all reads take, each from the nearest level that still holds the region.

    A level holds what was used last (LRU, whole regions). What is read for the first time is found where a call
    before left it: in the nearest level that holds everything the program touches.
    """
    regions = {region for step in steps for region in (*step.reads, *step.writes)}
    footprint = sum(nbytes(region, memories) for region in regions)
    cost = [1e-3 / level.gbps for level in levels]
    first = max(i for i, level in enumerate(levels) if i == 0 or level.capacity_bytes >= footprint)
    held: list[OrderedDict[Region, int]] = [OrderedDict() for _ in levels]
    used = [0] * len(levels)
    seen: set[Region] = set()
    total = 0.0
    for number in order:
        step = steps[number]
        for place, region in enumerate((*step.reads, *step.writes)):
            size = nbytes(region, memories)
            found = 0 if region in seen else first
            seen.add(region)
            for i in range(1, len(levels)):
                if region in held[i]:
                    held[i].move_to_end(region)
                    found = max(found, i)
                    continue
                held[i][region] = size
                used[i] += size
                while used[i] > levels[i].capacity_bytes:
                    used[i] -= held[i].popitem(last=False)[1]
            if place < len(step.reads):
                total += size * cost[found]
    return total


def nbytes(region: Region, memories: Sequence[Memory]) -> int:
    """Bytes of a region, gaps not counted."""
    return region.items * memories[region.memory].item_bytes


def recent_first(
    steps: Sequence[Accesses],
    memories: Sequence[Memory],
    before: Sequence[Sequence[int]],
    among: range,
) -> list[int]:
    """The steps of `among` so that always the one follows, of those that can, whose anchor was used last.

    A step's anchor is the largest region that it reads and that is used more than once; of a step that reads none,
    that of the first step which follows it. Ties, and steps of anchors that were not used yet, go in the given order.
    """
    uses = Counter(r for number in among for r in (*steps[number].reads, *steps[number].writes))
    anchors: dict[int, Region | None] = {}
    after: dict[int, list[int]] = defaultdict(list)
    missing: dict[int, int] = {}
    for number in among:
        reused = [region for region in steps[number].reads if uses[region] > 1]
        anchors[number] = max(reused, key=lambda region: nbytes(region, memories), default=None)
        inside = [other for other in before[number] if other >= among.start]
        missing[number] = len(inside)
        for other in inside:
            after[other].append(number)
    for number in reversed(among):
        if anchors[number] is None and after[number]:
            anchors[number] = anchors[after[number][0]]
    last: dict[Region | None, int] = {}
    waiting: dict[Region | None, list[int]] = defaultdict(list)
    candidates: list[tuple[int, int]] = []

    def propose(number: int) -> None:
        """A step may be proposed several times; only the candidate with its anchor's present time counts."""
        heappush(candidates, (-last.get(anchors[number], -1), number))

    for number in among:
        if not missing[number]:
            heappush(waiting[anchors[number]], number)
            propose(number)
    order: list[int] = []
    done: set[int] = set()
    time = 0
    while candidates:
        when, number = heappop(candidates)
        if number in done or when != -last.get(anchors[number], -1):
            continue
        done.add(number)
        order.append(number)
        touched: list[Region | None] = [*steps[number].reads, *steps[number].writes]
        for region in touched:
            time += 1
            last[region] = time
        for region in dict.fromkeys((*touched, anchors[number])):
            # The first that waits for this region speaks for the others.
            while waiting[region] and waiting[region][0] in done:
                heappop(waiting[region])
            if waiting[region]:
                propose(waiting[region][0])
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                heappush(waiting[anchors[other]], other)
                propose(other)
    return order


def decide(
    steps: Sequence[Accesses],
    memories: Sequence[Memory],
    levels: Sequence[Cache],
    arena_bytes: Callable[[Sequence[int]], int],
) -> Decision:
    """The order that reads take least time in, the given one unless another is better by `_LEAST_GAIN`.

    `arena_bytes` tells what an order needs. It may need more than the given order by the `_ARENA_SHARE`-th part of
    the outermost cache; an order that would is made of windows instead: runs of consecutive steps that stay before and
    behind each other, of all steps, a quarter, a sixteenth and so on, until the arena is small enough.
    """
    given = range(len(steps))
    given_us = read_us(steps, memories, levels, given)
    kept = Decision(tuple(given), given_us, given_us, 0)
    if len(levels) < 2:
        return kept
    before = dependences(steps)
    most = arena_bytes(given) + levels[1].capacity_bytes // _ARENA_SHARE
    window = len(steps)
    while window > 1:
        order: list[int] = []
        for start in range(0, len(steps), window):
            order += recent_first(steps, memories, before, range(start, min(start + window, len(steps))))
        if arena_bytes(order) <= most:
            us = read_us(steps, memories, levels, order)
            return Decision(tuple(order), us, given_us, window) if us < (1 - _LEAST_GAIN) * given_us else kept
        window //= _WINDOW_STEP
    return kept
