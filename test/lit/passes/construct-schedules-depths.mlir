// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 candidate=1})' | filecheck %s --check-prefix=SECOND
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default})' | filecheck %s --check-prefix=DEFAULT

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 64, d2, d1 mod 64)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// A panel of 64 columns takes 2 MiB, L2 has one: register tiles sum blocks of which half of it holds all. O1 measures what
// that is worth.
// CHECK-LABEL: func.func private @long
// CHECK-SAME: predicted = {bound = "compute"
// CHECK-SAME: L2 = [48, 64, 1024]
// CHECK-SAME: reductions = [{depth = 1024 : i64, products = [6, 64]}]
// SECOND-LABEL: func.func private @long
// SECOND-SAME: L2 = [6, 64, 1]
// SECOND-SAME: reductions = [{products = [6, 64]}]
// DEFAULT-LABEL: func.func private @long
// DEFAULT-SAME: reductions = [{products = [6, 64]}]
func.func private @long(%a: tensor<96x8192xf32>, %w: tensor<4x8192x64xf32>) -> tensor<96x256xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<96x256xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<96x256xf32>) -> tensor<96x256xf32>
  %m = linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<96x8192xf32>, tensor<4x8192x64xf32>) outs(%f : tensor<96x256xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<96x256xf32>
  return %m : tensor<96x256xf32>
}

// L2 keeps a panel of 1,024 steps.
// CHECK-LABEL: func.func private @short
// CHECK-NOT: depth
// CHECK: return
func.func private @short(%a: tensor<96x1024xf32>, %w: tensor<4x1024x64xf32>) -> tensor<96x256xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<96x256xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<96x256xf32>) -> tensor<96x256xf32>
  %m = linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<96x1024xf32>, tensor<4x1024x64xf32>) outs(%f : tensor<96x256xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<96x256xf32>
  return %m : tensor<96x256xf32>
}
