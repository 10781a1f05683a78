"""Records as the profiler reads and writes them: in the cache folder, or in memory where that cannot be used."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tilewright.compiler import debug
from tilewright.compiler.codegen.lower_cpu import compiler_version
from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.record_store import RecordStore

_T = TypeVar("_T")
_AGAIN_S = 1.0
"""After so long it is tried again to write to a store that failed."""


def record_path() -> Path:
    """Where records are kept."""
    return settings().cache_dir / "records.sqlite"


def now() -> str:
    """The time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Recording:
    """The records of one compilation, on one target by one device: a store that fails is warned of once, and left.

    What was read of it stays, what is measured from then on is kept in memory, and the compilation goes on. The store is
    the one given, or that at `path`, or that of the cache folder. One that `is_patient` tries again to write what it has
    in memory, as a search lasts long enough for somebody to make room on a disk.
    """

    def __init__(
        self,
        target: Target,
        device: str,
        threads: int,
        store: RecordStore | None = None,
        path: Path | None = None,
        is_patient: bool = False,
    ):
        self._is_patient = is_patient
        self._unwritten: Path | None = None
        self._tried_at = 0.0
        self._target_text = target_text(target)
        self.target, self.device, self.threads = key_of(self._target_text), device, threads
        self._owned = store is None
        self._store = store or self._opened(path or record_path())

    def close(self) -> None:
        """Lets go of the store; warns of what could not be written."""
        self._write_back()
        if self._unwritten is not None and (lost := len(self._store.find())):
            warnings.warn(f"records in `{self._unwritten}`: {lost} could not be written", stacklevel=2)
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
        host: str = "",
    ) -> Record:
        """What became of a schedule of a dispatch whose object has this digest; here and now where nobody says."""
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
            host=host or platform.node(),
            at=at or now(),
        )

    def append(self, facts: DispatchFacts, records: Sequence[Record]) -> None:
        """Adds records of a dispatch, with the texts that their keys stand for."""
        texts = (facts.workload_text, self._target_text)
        self._with_store(lambda store: store.append(records, texts))
        if time.monotonic() - self._tried_at > _AGAIN_S:
            self._write_back()

    def _write_back(self) -> None:
        """Writes what is in memory to where it belongs, if it can be written again."""
        if self._unwritten is None:
            return
        self._tried_at = time.monotonic()
        try:
            store = RecordStore(self._unwritten)
        except RecordError as error:
            debug.log(2, f"not yet: {error}")
            return
        try:
            store.add_lines(self._store.lines(), "memory")
        except RecordError as error:
            debug.log(2, f"not yet: {error}")
            store.close()
            return
        self._store.close()
        self._store, self._unwritten = store, None

    def _with_store(self, act: Callable[[RecordStore], _T]) -> _T:
        try:
            return act(self._store)
        except RecordError as error:
            path = self._store.path
            self._store.close()
            self._store = self._in_memory(error, path)
            self._owned = True
            return act(self._store)

    def _opened(self, path: Path) -> RecordStore:
        try:
            return RecordStore(path)
        except RecordError as error:
            return self._in_memory(error, path)

    def _in_memory(self, error: RecordError, path: Path | None) -> RecordStore:
        if self._is_patient:
            self._unwritten, self._tried_at = path, time.monotonic()
            meanwhile = "what is measured meanwhile is in memory, and written as soon as it can be"
        else:
            meanwhile = "what this compilation measures is not kept"
        warnings.warn(f"{error}; {meanwhile}", stacklevel=2)
        return RecordStore(None)


def _warn(error: RecordError) -> None:
    warnings.warn(str(error), stacklevel=2)
