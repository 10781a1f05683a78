// RUN: tilewright-opt %s --pass-pipeline='builtin.module(assign-schedules{tasks=4 minimum-work=10})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(assign-schedules{tasks=4 minimum-work=100000})' | filecheck %s --check-prefix=WHOLE
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(assign-schedules{tasks=4 minimum-work=10},apply-schedule)' | filecheck %s --check-prefix=APPLIED

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 48, d2, d1 mod 48)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Four tasks of sixteen rows each; with too little work for one task, the dispatch stays whole.
// CHECK-LABEL: func.func private @elementwise
// CHECK-SAME: tilewright.schedule = {tile = [16, 0], unroll = 0 : i64, vector = 0 : i64}
// WHOLE-LABEL: func.func private @elementwise
// WHOLE-SAME: tile = [0, 0]
// APPLIED-LABEL: func.func private @elementwise
// APPLIED: scf.forall (%{{.+}}) = (0) to (64) step (16)
func.func private @elementwise(%x: tensor<64x32xf32>) -> tensor<64x32xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// A reduction loop is never cut, and what accumulates is cut into divisors.
// CHECK-LABEL: func.func private @reduction
// CHECK-SAME: tile = [{{[0-9]+}}, 0]
// APPLIED-LABEL: func.func private @reduction
// APPLIED: scf.forall
// APPLIED-NOT: affine.min
// APPLIED: return
func.func private @reduction(%x: tensor<60x32xf32>, %s: tensor<60xf32>) -> tensor<60xf32> attributes {tilewright.operator = "reduction"} {
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<60x32xf32>) outs(%s : tensor<60xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %o : f32
    linalg.yield %a : f32
  } -> tensor<60xf32>
  return %r : tensor<60xf32>
}

// What somebody has written stays.
// CHECK-LABEL: func.func private @by_hand
// CHECK-SAME: tilewright.schedule = {tile = [2, 0], unroll = 3 : i64, vector = 8 : i64}
func.func private @by_hand(%x: tensor<64x32xf32>) -> tensor<64x32xf32>
    attributes {tilewright.operator = "elementwise", tilewright.schedule = {tile = [2, 0], unroll = 3, vector = 8}} {
  %e = tensor.empty() : tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// Only dispatches get one, and one without a sink that can be cut gets an empty one.
// CHECK-LABEL: func.func private @no_sink
// CHECK-SAME: tilewright.schedule = {tile = [], unroll = 0 : i64, vector = 0 : i64}
func.func private @no_sink(%x: tensor<64x32xf32>) -> tensor<64x32xf32> attributes {tilewright.operator = "slice"} {
  return %x : tensor<64x32xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: tilewright.schedule
// CHECK: return
func.func @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  return %x : tensor<64x32xf32>
}

// A contraction is cut between the blocks of its packed weights, the epilogue with it.
// CHECK-LABEL: func.func private @matmul
// CHECK-SAME: tilewright.schedule = {tile = [{{[0-9]+}}, {{(0|48|96|240)}}], unroll = 0 : i64, vector = 0 : i64}
// WHOLE-LABEL: func.func private @matmul
// WHOLE-SAME: tile = [{{[0-9]+}}, {{(0|48|96|240)}}]
// APPLIED-LABEL: func.func private @matmul
// APPLIED: scf.forall
// APPLIED: linalg.generic {{.*}} "reduction"]
// APPLIED: arith.maximumf
// APPLIED: scf.forall.in_parallel
func.func private @matmul(%x: tensor<512x256xf32>, %w: tensor<10x256x48xf32>) -> tensor<512x480xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x480xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<512x480xf32>) -> tensor<512x480xf32>
  %m = linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<512x256xf32>, tensor<10x256x48xf32>) outs(%i : tensor<512x480xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x480xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<512x480xf32>) outs(%e : tensor<512x480xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.maximumf %in, %z : f32
    linalg.yield %a : f32
  } -> tensor<512x480xf32>
  return %r : tensor<512x480xf32>
}
