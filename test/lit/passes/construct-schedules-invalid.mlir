// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=abacus})' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 candidate=-1})' 2>&1 | filecheck %s --check-prefix=NEGATIVE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 top-k=0})' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=oracle})' 2>&1 | filecheck %s --check-prefix=ORACLE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=oracle})' 2>&1 | filecheck %s --check-prefix=DELPHI
// RUN: sed 's/"slice"/"slice", tilewright.schedule = {gpu = {kernel = "simt"}}/' %s | not tilewright-opt --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4})' 2>&1 | filecheck %s --check-prefix=GPU

// GPU: dispatch @d: illegal schedule: gpu says how a kernel of a GPU is built, the target `x86-64-v4` is a CPU; leave gpu out
// UNKNOWN: `construct-schedules`: unknown target `abacus`; the presets are: cpu,
// NEGATIVE: `construct-schedules`: expected candidate >= 0 and top-k >= 1, found -1 and 10
// NONE: `construct-schedules`: expected candidate >= 0 and top-k >= 1, found 0 and 0
// ORACLE: `construct-schedules`: unknown proposer `oracle`; the proposers for x86-64-v4 are: roller, aligned, modelled, default, random
// DELPHI: `construct-schedules`: unknown proposer `oracle`; the proposers for cuda:sm_80 are: aligned, roller, modelled, default, random
func.func private @d(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tilewright.operator = "slice"} {
  return %x : tensor<4xf32>
}
