// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(expand-attention))' | filecheck %s

// CHECK-LABEL: func.func @heads
// CHECK: %[[SCORES:.+]] = linalg.generic {{.+}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]{{.+}} outs({{.+}} : tensor<3x17x19xf32>)
// CHECK:   arith.extf
// CHECK: %[[MASKED:.+]] = linalg.generic {{.+}} ins(%[[SCORES]]
// CHECK:   arith.mulf
// CHECK:   arith.select
// CHECK: %[[TOP:.+]] = linalg.generic {{.+}} outs({{.+}} : tensor<3x17xf32>)
// CHECK:   arith.maximumf
// CHECK: %[[WEIGHTS:.+]] = linalg.generic {{.+}} ins(%[[MASKED]], %[[TOP]]
// CHECK:   math.exp
// CHECK: %[[TOTAL:.+]] = linalg.generic {{.+}} ins(%[[WEIGHTS]]
// CHECK:   arith.addf
// CHECK: %[[SUMS:.+]] = linalg.generic {{.+}} ins(%[[WEIGHTS]], %arg2
// CHECK: linalg.generic {{.+}} ins(%[[SUMS]], %[[TOTAL]]
// CHECK:   arith.divf
// CHECK:   arith.truncf
// CHECK-NOT: tilewright.attention
func.func @heads(%q: tensor<3x17x8xf16>, %k: tensor<3x19x8xf16>, %v: tensor<3x19x5xf16>) -> tensor<3x17x5xf16> {
  %r = "tilewright.attention"(%q, %k, %v) ({
  ^bb0(%s: f16, %row: index, %column: index):
    "tilewright.yield"(%s) : (f16) -> ()
  }) {causal = 2 : i64, indexing_maps = [affine_map<(h, m, n, k, d) -> (h, m, k)>, affine_map<(h, m, n, k, d) -> (h, n, k)>, affine_map<(h, m, n, k, d) -> (h, n, d)>, affine_map<(h, m, n, k, d) -> (h, m, d)>], loops = [3, 17, 19, 8, 5], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 0.25 : f64} : (tensor<3x17x8xf16>, tensor<3x19x8xf16>, tensor<3x19x5xf16>) -> tensor<3x17x5xf16>
  return %r : tensor<3x17x5xf16>
}
