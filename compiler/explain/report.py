"""Where a compiled model's time goes, per dispatch: operator, source line, schedule, time, roofline bound."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from tilewright.compiler.explain.schedules import ScheduleReport
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True)
class Bound:
    """The least time a dispatch can take on a target, in us, and what sets it: compute or a memory level."""

    us: float
    by: str


@dataclass(frozen=True)
class DispatchReport:
    """One step of the main program; `inputs` are numbers of earlier steps or names of the model's inputs.

    `gang` says which blocks of a GPU wait for each other while they do rTasks, as in `Launch`.
    """

    number: int
    operator: str
    location: str
    schedule: str
    kernel: str
    tasks: int
    flops: int
    bytes: int
    inputs: tuple[int | str, ...]
    measured_us: float
    share: float
    bound: Bound
    predicted_us: float
    plan: ScheduleReport = field(default_factory=lambda: ScheduleReport({}))
    gang: str = "alone"

    @property
    def work(self) -> str:
        """The rTasks, and who does them together or waits for the others: `48 rTasks of clusters`."""
        many = f"{self.tasks} rTask{'s' if self.tasks != 1 else ''}"
        return many + {"cluster": " of clusters", "grid": " at once"}.get(self.gang, "")

    @property
    def of_bound(self) -> float:
        """Bound over measured: 1 is as fast as the machine allows."""
        return self.bound.us / self.measured_us if self.measured_us else 0.0

    @property
    def gflops(self) -> float:
        return self.flops / self.measured_us / 1e3 if self.measured_us else 0.0


@dataclass(frozen=True)
class Report:
    """A model explained: its dispatches in program order, compile time by phase, and memory."""

    model: str
    target: str
    threads: int
    dispatches: tuple[DispatchReport, ...]
    phases_s: dict[str, float] = field(default_factory=dict)
    arena_bytes: int = 0
    packed_bytes: int = 0

    @property
    def total_us(self) -> float:
        return sum(d.measured_us for d in self.dispatches)

    @property
    def flops(self) -> int:
        return sum(d.flops for d in self.dispatches)

    @property
    def bound_us(self) -> float:
        return sum(d.bound.us for d in self.dispatches)

    def slowest(self, count: int | None = None) -> list[DispatchReport]:
        """Dispatches by falling time, ties by number."""
        return sorted(self.dispatches, key=lambda d: (-d.measured_us, d.number))[:count]

    def to_json(self) -> dict:
        return {**asdict(self), "total_us": self.total_us}


def roofline(flops: int, bytes_: int, target: Target, threads: int, dtype: str = "f32") -> Bound:
    """The roofline bound of `flops` and `bytes_` on `threads` cores of `target`.

    Bytes move at the speed of the fastest cache that holds them all: a dispatch's tensors may still be there
    from the one before it. Source: Williams et al., "Roofline", CACM 2009, with the ceiling per memory level.
    """
    cores = max(1, min(threads, target.num_cores))
    peak = target.peak_gflops.get(dtype, target.peak_gflops["f32"]) * cores / target.num_cores
    compute_us = flops / peak / 1e3
    # Registers hold no tensor; a core's own caches count once per core.
    levels = target.memory[:-1]
    level = levels[0]
    for candidate in levels[1:]:
        private = candidate.name in ("L1", "L2", "shared", "local")
        if bytes_ <= candidate.capacity_bytes * (cores if private else 1):
            level = candidate
    gbps = level.bandwidth_of(cores, target.num_cores)
    if level is levels[0] and target.kind == "cpu" and not level.core_gbps:
        # Nobody says what one core gets of memory: it may be all.
        gbps = level.bandwidth_gbps
    memory_us = bytes_ / gbps / 1e3
    return Bound(compute_us, "compute") if compute_us >= memory_us else Bound(memory_us, level.name)


def predict(flops: int, bytes_: int, tasks: int, target: Target, threads: int, dtype: str = "f32") -> float:
    """Microseconds that a dispatch's cut into `tasks` rTasks should take, for schedules that carry no prediction.

    The bound of the threads that the rTasks can occupy, stretched by the last round in which some of them
    are idle: rTasks are alike, and run in rounds of one per thread.
    """
    tasks = max(1, tasks)
    used = max(1, min(threads, target.num_cores, tasks))
    rounds = -(-tasks // used)
    return roofline(flops, bytes_, target, used, dtype).us * rounds * used / tasks


def explain(
    model: str,
    notes: dict,
    step_times_us: Sequence[float],
    target: Target,
    threads: int,
    input_names: Collection[str] = (),
    packed_bytes: int = 0,
) -> Report:
    """Joins what the compiler noted of each dispatch with the measured time of each step.

    `notes` is `Package.notes`; of what a dispatch reads, earlier steps and `input_names` are kept, weights are
    not. Raises ValueError when the notes have no dispatches, or not one per step.
    """
    rows = notes.get("dispatches")
    if rows is None:
        raise ValueError("the package holds no notes on its dispatches; compile the model again")
    if len(rows) != len(step_times_us):
        raise ValueError(
            f"the package notes {len(rows)} dispatches, its program has {len(step_times_us)} steps"
        )
    total = sum(step_times_us) or 1.0
    reports = []
    for number, (row, us) in enumerate(zip(rows, step_times_us, strict=True)):
        flops, bytes_ = int(row.get("flops") or 0), int(row.get("bytes") or 0)
        tasks, dtype = int(row.get("tasks") or 1), row.get("dtype") or "f32"
        predicted = row.get("predicted_us")
        reports.append(
            DispatchReport(
                number=number,
                operator=row.get("operator") or row.get("name") or "unknown",
                location=row.get("location") or "",
                schedule=row.get("schedule") or "",
                kernel=str(row.get("kernel", "")),
                tasks=tasks,
                flops=flops,
                bytes=bytes_,
                inputs=tuple(
                    source
                    for source in row.get("inputs") or ()
                    if not isinstance(source, str) or source in input_names
                ),
                measured_us=float(us),
                share=float(us) / total,
                bound=roofline(flops, bytes_, target, threads, dtype),
                predicted_us=predict(flops, bytes_, tasks, target, threads, dtype)
                if predicted is None
                else float(predicted),
                plan=ScheduleReport.of(row),
                gang=row.get("gang") or "alone",
            )
        )
    return Report(
        model=model,
        target=target.name,
        threads=threads,
        dispatches=tuple(reports),
        phases_s=dict(notes.get("phases_s") or {}),
        arena_bytes=int(notes.get("arena_bytes") or 0),
        packed_bytes=packed_bytes,
    )


def duration(us: float | None) -> str:
    """A time in us as short text: `0.8 us`, `12.3 us`, `4.56 ms`, `1.20 s`."""
    if us is None:
        return "-"
    if us < 1000:
        return f"{us:.1f} us"
    return f"{us / 1e3:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def quantity(value: float, unit: str) -> str:
    """A count with a decimal prefix: `1.2 G` + unit."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def short_location(location: str, parts: int = 2) -> str:
    """The last folders of a source place: `/a/b/models/net.py:12:3` -> `models/net.py:12`."""
    path, _, rest = location.partition(":")
    line = rest.partition(":")[0]
    tail = "/".join(path.split("/")[-parts:])
    return f"{tail}:{line}" if line else tail
