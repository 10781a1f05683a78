"""A layered drawing of a dispatch graph: layers, few crossings, coordinates; after Sugiyama et al., 1981."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Node = Hashable

_SWEEPS = 8
_MANY_LINKS = 20_000
"""Links, bends included, beyond which a drawing is a texture anyway and gets two sweeps only."""


@dataclass(frozen=True)
class Drawing:
    """Centres of nodes and bends of edges, in the units of the given sizes; y grows along the edges."""

    width: float
    height: float
    centres: Mapping[Node, tuple[float, float]]
    edges: Mapping[tuple[Node, Node], tuple[tuple[float, float], ...]]


def layers_of(nodes: Sequence[Node], predecessors: Mapping[Node, Sequence[Node]]) -> dict[Node, int]:
    """Longest-path layers: 0 where nothing precedes; sources then move down next to their first reader.

    `nodes` come in topological order; raises ValueError where a predecessor comes later.
    """
    layer: dict[Node, int] = {}
    for node in nodes:
        for before in predecessors.get(node, ()):
            if before not in layer:
                raise ValueError(f"{node!r} reads {before!r}, which does not come before it")
        layer[node] = max((layer[before] + 1 for before in predecessors.get(node, ())), default=0)
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for before in predecessors.get(node, ()):
            readers.setdefault(before, []).append(node)
    for node in nodes:
        if not predecessors.get(node) and node in readers:
            layer[node] = min(layer[reader] for reader in readers[node]) - 1
    return layer


def draw(
    nodes: Sequence[Node],
    predecessors: Mapping[Node, Sequence[Node]],
    size: tuple[float, float],
    gap: tuple[float, float],
) -> Drawing:
    """Places `nodes` (in topological order), each of `size` (width, height), `gap` apart (across, along)."""
    layer = layers_of(nodes, predecessors)
    rows: list[list[Node]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    paths: dict[tuple[Node, Node], list[Node]] = {}
    links: list[tuple[Node, Node]] = []
    for node in nodes:
        for before in dict.fromkeys(predecessors.get(node, ())):
            # A long edge passes through one invisible node per layer, so that it keeps clear of boxes.
            bends = [("bend", before, node, at) for at in range(layer[before] + 1, layer[node])]
            for bend in bends:
                rows[bend[3]].append(bend)
            path = [before, *bends, node]
            paths[before, node] = path
            links += pairwise(path)
    rows = _order(rows, links)
    across = _place(rows, links, size[0], gap[0])
    along = {node: index * (size[1] + gap[1]) + size[1] / 2 for index, row in enumerate(rows) for node in row}
    centres = {node: (across[node], along[node]) for row in rows for node in row}
    right = max((across[node] for node in nodes), default=0.0) + size[0] / 2
    bottom = len(rows) * (size[1] + gap[1]) - gap[1] if rows else 0.0
    edges = {ends: tuple(centres[point] for point in path) for ends, path in paths.items()}
    return Drawing(right, bottom, {node: centres[node] for node in nodes}, edges)


def crossings(rows: Sequence[Sequence[Node]], links: Sequence[tuple[Node, Node]]) -> int:
    """How many pairs of links between neighbouring rows cross."""
    place = {node: index for row in rows for index, node in enumerate(row)}
    at = {node: index for index, row in enumerate(rows) for node in row}
    by_row: dict[int, list[tuple[int, int]]] = {}
    for before, after in links:
        by_row.setdefault(at[before], []).append((place[before], place[after]))
    count = 0
    for pairs in by_row.values():
        seen: list[int] = []
        for _, end in sorted(pairs):
            at_most = bisect_right(seen, end)
            count += len(seen) - at_most
            seen.insert(at_most, end)
    return count


def _sweeps(links: Sequence[tuple[Node, Node]]) -> int:
    return _SWEEPS if len(links) <= _MANY_LINKS else 2


def _order(rows: list[list[Node]], links: Sequence[tuple[Node, Node]]) -> list[list[Node]]:
    """Barycentre sweeps down and up; keeps the order with the fewest crossings."""
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for before, after in links:
        above.setdefault(after, []).append(before)
        below.setdefault(before, []).append(after)
    best, fewest = [list(row) for row in rows], crossings(rows, links)
    current = [list(row) for row in rows]
    for sweep in range(_sweeps(links)):
        if not fewest:
            break
        neighbours = above if sweep % 2 == 0 else below
        indices = range(len(current)) if sweep % 2 == 0 else range(len(current) - 1, -1, -1)
        place = {node: index for row in current for index, node in enumerate(row)}
        for index in indices:
            row = current[index]
            weight = {
                node: sum(place[n] for n in neighbours[node]) / len(neighbours[node])
                if node in neighbours
                else float(place[node])
                for node in row
            }
            row.sort(key=lambda node: weight[node])
            for position, node in enumerate(row):
                place[node] = position
        count = crossings(current, links)
        if count < fewest:
            best, fewest = [list(row) for row in current], count
    return best


def _place(
    rows: Sequence[Sequence[Node]], links: Sequence[tuple[Node, Node]], width: float, gap: float
) -> dict[Node, float]:
    """Coordinates across: each row is pulled towards its neighbours' mean, its order and distances kept."""
    near: dict[Node, list[Node]] = {}
    for before, after in links:
        near.setdefault(after, []).append(before)
        near.setdefault(before, []).append(after)

    def extent(node: Node) -> float:
        return gap if isinstance(node, tuple) and node[:1] == ("bend",) else width

    across: dict[Node, float] = {}
    for row in rows:
        x = 0.0
        for node in row:
            across[node] = x + extent(node) / 2
            x += extent(node) + gap
    for sweep in range(2 * _sweeps(links)):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [
                sum(across[n] for n in near[node]) / len(near[node]) if node in near else across[node]
                for node in row
            ]
            _settle(row, wanted, [extent(node) for node in row], gap, across)
    left = min((across[node] - extent(node) / 2 for row in rows for node in row), default=0.0)
    return {node: x - left for node, x in across.items()}


def _settle(
    row: Sequence[Node],
    wanted: Sequence[float],
    extents: Sequence[float],
    gap: float,
    across: dict[Node, float],
) -> None:
    """Places a row at its wanted coordinates where it may, groups that would overlap around their mean."""
    # Each group: members, the left end of its first member, and the mean shift its members want.
    groups: list[tuple[list[int], float]] = []
    offsets: list[float] = []
    x = 0.0
    for extent in extents:
        offsets.append(x + extent / 2)
        x += extent + gap
    for index in range(len(row)):
        members, shift = [index], wanted[index] - offsets[index]
        # Offsets already hold the least distances, so groups stay apart while their shifts do not fall.
        while groups and groups[-1][1] > shift:
            before, before_shift = groups.pop()
            total = len(before) + len(members)
            shift = (before_shift * len(before) + shift * len(members)) / total
            members = before + members
        groups.append((members, shift))
    for members, shift in groups:
        for index in members:
            across[row[index]] = offsets[index] + shift
