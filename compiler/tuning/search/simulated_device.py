"""A device that runs nothing: a function says how long candidates take, noise and faults are drawn for each of them.

    device = SimulatedDevice(us_of, noise=0.02, crashes=0.05)      // us_of(task, points [n, knobs]) -> us [n]

What becomes of a candidate is decided by the seed and the candidate alone, in whatever order candidates come.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask

FAULTS = {
    "crashes": "the process that measured it died of SIGSEGV",
    "hangs": "it was stopped after its time limit",
    "is_wrong": "its results differ from those of the first schedule",
    "is_lost": "the measuring process was lost",
}
"""What is said of a fault; all but the last are final."""


class Us(Protocol):
    def __call__(self, task: SearchTask, points: np.ndarray) -> np.ndarray: ...


class SimulatedDevice:
    """Rounds of the times that `us_of` says, each longer by a share drawn from |N(0, `noise`)|.

    `crashes`, `hangs` and `is_wrong` are shares of all candidates, `is_lost` of all first tries of a candidate. `is_shuffled`
    lets candidates come back in another order than they were asked for.
    """

    name = "simulated"

    def __init__(
        self,
        us_of: Us | Callable[[SearchTask, np.ndarray], np.ndarray],
        *,
        noise: float = 0.0,
        rounds: int = 3,
        crashes: float = 0.0,
        hangs: float = 0.0,
        is_wrong: float = 0.0,
        is_lost: float = 0.0,
        is_shuffled: bool = False,
        seed: int = 0,
    ):
        shares = {
            "noise": noise,
            "crashes": crashes,
            "hangs": hangs,
            "is_wrong": is_wrong,
            "is_lost": is_lost,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise TilewrightError(f"expected {name} to be a share from 0 to 1, found {share}")
        if seed < 0:
            raise TilewrightError(f"expected seed >= 0, found {seed}")
        self._us_of, self._noise, self._rounds, self._seed = us_of, noise, rounds, seed
        self._final = {"crashes": crashes, "hangs": hangs, "is_wrong": is_wrong}
        self._lost, self._is_shuffled = is_lost, is_shuffled
        self._queue: deque[tuple[SearchTask, np.ndarray]] = deque()
        self._tries: dict[tuple[str, tuple[int, ...]], int] = {}
        self.measured = 0

    def submit(self, task: SearchTask, points: Sequence[np.ndarray]) -> None:
        self._queue.extend((task, np.asarray(point, dtype=np.int64)) for point in points)

    def outcomes(self) -> Iterator[Outcome]:
        while self._queue:
            if self._is_shuffled:
                self._queue.rotate(len(self._queue) // 2 + 1)
            yield self._outcome(*self._queue.popleft())

    def race(self, task: SearchTask, points: Sequence[np.ndarray], rounds: int = 9) -> list[Outcome]:
        """Times of candidates in turns: [len(points)]."""
        return [self._run(task, point, rounds, "race") for point in points]

    def close(self) -> None:
        self._queue.clear()

    def _outcome(self, task: SearchTask, point: np.ndarray) -> Outcome:
        key = (task.key, tuple(map(int, point)))
        self._tries[key] = self._tries.get(key, 0) + 1
        draw = self._rng(task, point, f"lost {self._tries[key]}").random()
        if draw < self._lost:
            return Outcome(*key, error=FAULTS["is_lost"], is_final=False)
        self.measured += 1
        return self._run(task, point, self._rounds, "rounds")

    def _run(self, task: SearchTask, point: np.ndarray, rounds: int, purpose: str) -> Outcome:
        key = (task.key, tuple(map(int, point)))
        draw = self._rng(task, point, "fault").random()
        for fault, share in self._final.items():
            if draw < share:
                return Outcome(*key, error=FAULTS[fault])
            draw -= share
        (us,) = self._us_of(task, np.asarray(point)[None])
        longer = 1.0 + np.abs(self._rng(task, point, purpose).normal(0.0, self._noise, rounds))
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return Outcome(*key, rounds_us=tuple(float(us * share) for share in longer), object=digest)

    def _rng(self, task: SearchTask, point: np.ndarray, purpose: str) -> np.random.Generator:
        text = repr((self._seed, task.key, tuple(map(int, point)), purpose))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))
