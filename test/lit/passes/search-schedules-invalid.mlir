// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(search-schedules)' 2>&1 | filecheck %s --check-prefix=BEFORE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{target=abacus})' 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{strategy=oracle})' 2>&1 | filecheck %s --check-prefix=STRATEGY
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{model=trees})' 2>&1 | filecheck %s --check-prefix=MODEL
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{strategy=pruner model=oracle})' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{trials=0})' 2>&1 | filecheck %s --check-prefix=TRIALS
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{patience=-1})' 2>&1 | filecheck %s --check-prefix=PATIENCE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{device=replay})' 2>&1 | filecheck %s --check-prefix=STORE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{device=replay records=missing.sqlite})' 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{noise=-1.0})' 2>&1 | filecheck %s --check-prefix=NOISE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{seed=-1})' 2>&1 | filecheck %s --check-prefix=SEED
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules,search-schedules{device=gpu})' 2>&1 | filecheck %s --check-prefix=DEVICE

// BEFORE: `search-schedules`: expected a schedule, found none; run `construct-schedules` before
// TARGET: `search-schedules`: unknown target `abacus`; the presets are: cpu,
// STRATEGY: `search-schedules`: no strategy is named `oracle`; there are pruner, autotvm, genetic, random, roller, exhaustive
// MODEL: `search-schedules`: the strategy `random` asks no cost model, `trees` was given; leave it out
// UNKNOWN: `search-schedules`: no cost model is named `oracle`; there are
// TRIALS: `search-schedules`: expected trials > 0, found 0
// PATIENCE: `search-schedules`: expected patience > 0, found -1
// STORE: `search-schedules`: expected a store of records to replay, found ``; write records=FILE
// MISSING: `search-schedules`: expected a store of records to replay, found `missing.sqlite`; write records=FILE
// NOISE: `search-schedules`: expected noise to be a share from 0 to 1, found -1.0
// SEED: `search-schedules`: expected seed >= 0, found -1
// DEVICE: device
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = call @d(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func private @d(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tilewright.operator = "slice"} {
  return %x : tensor<4xf32>
}
