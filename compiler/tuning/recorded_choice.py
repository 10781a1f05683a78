"""Which of a dispatch's candidates is used, as a function of what is recorded of their objects and of nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tilewright.compiler.nouns.record import Record


def fastest(objects: Sequence[str], records: Iterable[Record], gain: float) -> int:
    """The number of the candidate with the fastest object; 0, the first, where that is not faster by `gain`.

    `objects` are the candidates', "" for those that have none. An object with a failure on record is not used. The
    fastest one has the best round of all; it must beat the first one's by its best round and by its median, in the last
    sitting in which the two took turns, and over all rounds where they never did.
    """
    known = list(records)
    failed = {record.object for record in known if record.error}
    sittings: dict[tuple[str, str], dict[str, list[float]]] = {}
    rounds: dict[str, list[float]] = {}
    for record in known:
        if record.object in objects and record.object not in failed:
            rounds.setdefault(record.object, []).extend(record.rounds_us)
            sittings.setdefault((record.at, record.host), {})[record.object] = list(record.rounds_us)
    if not objects or objects[0] not in rounds:
        return 0
    first = objects[0]
    best = min(rounds, key=lambda digest: (min(rounds[digest]), objects.index(digest)))
    shared = [sitting for _, sitting in sorted(sittings.items()) if first in sitting and best in sitting]
    duel = shared[-1] if shared else rounds
    beaten = all(of(duel[best]) * gain <= of(duel[first]) for of in (min, statistics.median))
    return objects.index(best) if beaten else 0
