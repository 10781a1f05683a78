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

// One head in a wider projection is cut out first; scores are f32 where the operands are not.
// CHECK-LABEL: func.func @one_head
// CHECK-DAG: tensor.extract_slice %arg0[0, 0] [10, 8] [1, 1]
// CHECK: arith.extf
// CHECK: math.exp
// CHECK: arith.truncf
func.func @one_head(%x: tensor<10x24xf16>) -> tensor<10x8xf16> {
  %r = "tilewright.attention"(%x, %x, %x) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [affine_map<(m, n, k, d) -> (m, k)>, affine_map<(m, n, k, d) -> (n, k + 8)>, affine_map<(m, n, k, d) -> (n, d + 16)>, affine_map<(m, n, k, d) -> (m, d)>], loops = [10, 10, 8, 8], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 0.25 : f64} : (tensor<10x24xf16>, tensor<10x24xf16>, tensor<10x24xf16>) -> tensor<10x8xf16>
  return %r : tensor<10x8xf16>
}
