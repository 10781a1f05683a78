// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4})' | filecheck %s --check-prefixes=CHECK,CPU
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default})' | filecheck %s --check-prefixes=CHECK,DEFAULT
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 candidate=1})' | filecheck %s --check-prefixes=CHECK,SECOND
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=graphcore-ipu})' | filecheck %s --check-prefix=IPU

#q = affine_map<(h, m, n, k, d) -> (h, m, k)>
#k = affine_map<(h, m, n, k, d) -> (h, n, k)>
#v = affine_map<(h, m, n, k, d) -> (h, n, d)>
#out = affine_map<(h, m, n, k, d) -> (h, m, d)>

// No tile cuts an attention: its own sizes are listed by a formula, and the model of complete schedules takes another cut where
// it predicts that to be a tenth faster. Groups of one vector of queries compute the least above a causal mask's diagonal.
// CHECK-LABEL: func.func private @attend
// CPU-SAME: tilewright.predicted = {bound = "compute", us = {{[0-9.e+]+}} : f64}
// CPU-SAME: tilewright.proposer = "modelled"
// CPU-SAME: reductions = [{attention = [16, 1, 16, 18]}], tile = []
// DEFAULT-SAME: tilewright.proposer = "default"
// DEFAULT-SAME: reductions = [{attention = [32, 2, 32, 19]}], tile = []
// SECOND-SAME: tilewright.proposer = "modelled"
// SECOND-SAME: reductions = [{attention = [64, 4, 64, 21]}], tile = []
// IPU-LABEL: func.func private @attend
// IPU-SAME: tilewright.unscheduled = "tilewright.attention is no structured operation on static shapes"
func.func private @attend(%q: tensor<12x64x64xf32>, %k: tensor<12x64x64xf32>, %v: tensor<12x64x64xf32>) -> tensor<12x64x64xf32>
    attributes {tilewright.operator = "attention"} {
  %r = "tilewright.attention"(%q, %k, %v) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {causal = 0 : i64, indexing_maps = [#q, #k, #v, #out], loops = [12, 64, 64, 64, 64], scale = 0.125 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<12x64x64xf32>, tensor<12x64x64xf32>, tensor<12x64x64xf32>) -> tensor<12x64x64xf32>
  return %r : tensor<12x64x64xf32>
}
