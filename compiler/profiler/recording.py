"""Records as the profiler reads and writes them: in the cache folder, or in memory where that cannot be used."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tilewright.compiler.codegen.lower_cpu import compiler_version
from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.record_store import RecordStore

_T = TypeVar("_T")


def record_path() -> Path:
    """Where records are kept."""
    return settings().cache_dir / "records.sqlite"


def now() -> str:
    """The time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Recording:
    """The records of one compilation, on one target by one device: a store that fails is warned of once, and left.

    What was read of it stays, what is measured from then on is kept in memory, and the compilation goes on. The store is
    the one given, or that at `path`, or that of the cache folder.
    """

    def __init__(
        self,
        target: Target,
        device: str,
        threads: int,
        store: RecordStore | None = None,
        path: Path | None = None,
    ):
        self._target_text = target_text(target)
        self.target, self.device, self.threads = key_of(self._target_text), device, threads
        self._owned = store is None
        self._store = store or self._opened(path or record_path())

    def close(self) -> None:
        if self._owned:
            self._store.close()

    def find(self, workload: str, residence: Sequence[str], objects: Collection[str]) -> list[Record]:
        """What is recorded of objects of a workload whose arguments come from there; malformed rows are warned of."""
        return self._with_store(
            lambda store: store.find(
                *(workload, self.target, self.device, self.threads),
                objects=objects,
                residence=residence,
                malformed=_warn,
            )
        )

    def refusals(self, workload: str, compiler: str) -> list[Record]:
        """The schedules of a workload that this version of the compiler did not compile."""
        return self._with_store(
            lambda store: store.find(
                *(workload, self.target, self.device, self.threads),
                objects=[""],
                compiler=compiler,
                malformed=_warn,
            )
        )

    def objects(self, code: str, compiler: str, schedules: Sequence[Schedule]) -> list[str]:
        """The objects that a compiler makes of schedules, "" where that is not known."""
        return self._with_store(lambda store: store.objects(code, compiler, schedules))

    def keep_objects(self, code: str, compiler: str, objects: Sequence[tuple[Schedule, str]]) -> None:
        self._with_store(lambda store: store.keep_objects(code, compiler, objects))

    def record(
        self,
        facts: DispatchFacts,
        schedule: Schedule,
        digest: str,
        rounds_us: Sequence[float] = (),
        error: str = "",
        at: str = "",
    ) -> Record:
        """What became of a schedule of a dispatch whose object has this digest; without a time it was now."""
        return Record(
            workload=facts.workload,
            target=self.target,
            device=self.device,
            threads=self.threads,
            residence=facts.residence,
            schedule=schedule_text(schedule),
            object=digest,
            rounds_us=tuple(rounds_us),
            error=error,
            compiler=compiler_version(),
            host=platform.node(),
            at=at or now(),
        )

    def append(self, facts: DispatchFacts, records: Sequence[Record]) -> None:
        """Adds records of a dispatch, with the texts that their keys stand for."""
        texts = (facts.workload_text, self._target_text)
        self._with_store(lambda store: store.append(records, texts))

    def _with_store(self, act: Callable[[RecordStore], _T]) -> _T:
        try:
            return act(self._store)
        except RecordError as error:
            self._store.close()
            self._store = self._in_memory(error)
            self._owned = True
            return act(self._store)

    def _opened(self, path: Path) -> RecordStore:
        try:
            return RecordStore(path)
        except RecordError as error:
            return self._in_memory(error)

    @staticmethod
    def _in_memory(error: RecordError) -> RecordStore:
        warnings.warn(f"{error}; what this compilation measures is not kept", stacklevel=2)
        return RecordStore(None)


def _warn(error: RecordError) -> None:
    warnings.warn(str(error), stacklevel=2)
