"""A model of one dispatch for the profiler to decide about, and what is on record of it afterwards."""

from __future__ import annotations

from failing_candidates import DEEDS

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.decisions import Decision
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.profiler.selection import (
    ProfilerOptions,
    profile,
)
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.record_store import RecordStore

UNROLL = {deed: unroll for unroll, deed in DEEDS.items()}
MODEL = """
func.func @main(%x: tensor<64xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<64xf32> {
  %r = call @double(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}
func.func private @double(%x: tensor<64xf32>) -> tensor<64xf32>
    attributes {tilewright.operator = "elementwise", tilewright.schedule = {tile = []}} {
  %e = tensor.empty() : tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
"""


def options(**changed) -> ProfilerOptions:
    given = {
        "threads": 1,
        "seconds": 0.05,
        "run_timeout_s": 3.0,
        "compile_timeout_s": 20,
        "compiling": "failing_candidates:compile_candidate",
    }
    return ProfilerOptions(**{**given, **changed})


def recorded() -> list[Record]:
    with RecordStore(record_path()) as store:
        return store.find()


def sittings(records: list[Record]) -> list[set[int]]:
    """What took turns, oldest first, by the numbers that `DEEDS` has; 0 is the first candidate."""
    moments = sorted({record.at for record in records if record.rounds_us})
    return [{r.read_schedule().unroll for r in records if r.rounds_us and r.at == at} for at in moments]


def decide(
    deeds: list[str],
    target: Target | None = None,
    text: str = MODEL,
    store: RecordStore | None = None,
    **changed,
) -> tuple[Decision, list[str], ir.Module]:
    """The decision about a first candidate and one per deed, with what progress was told."""
    module = parse(text)
    candidates = [Candidate(Schedule(), 1.0, "compute")]
    candidates += [
        Candidate(Schedule((n,), UNROLL.get(deed, 1000)), 1.0, "L1") for n, deed in enumerate(deeds)
    ]
    said: list[str] = []
    with module.context, ir.Location.unknown(module.context):
        decisions = profile(
            module,
            target or resolve("cpu"),
            lambda function: candidates,
            options(**changed),
            lambda done, total, text: said.append(text),
            store,
        )
    return decisions["double"], said, module


def schedule_of(module: ir.Module) -> Schedule | None:
    return next(
        schedule_attribute.read(f) for f in functions(module) if "tilewright.operator" in f.attributes
    )
