// RUN: tilewright-opt %s --pass-pipeline='builtin.module(generalize-named)' | filecheck %s

// CHECK-DAG: #[[LEFT:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[RIGHT:.+]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[SWAPPED:.+]] = affine_map<(d0, d1) -> (d1, d0)>

// Fills stay: every dispatch clones its own.
// CHECK-LABEL: func.func @matmul
// CHECK: %[[INIT:.+]] = linalg.fill
// CHECK: linalg.generic {indexing_maps = [#[[LEFT]], #[[RIGHT]], #[[OUT]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: outs(%[[INIT]]
// CHECK: arith.mulf
// CHECK: arith.addf
func.func @matmul(%x: tensor<8x4xf32>, %w: tensor<4x2xf32>) -> tensor<8x2xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x2xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<8x2xf32>) -> tensor<8x2xf32>
  %m = linalg.matmul ins(%x, %w : tensor<8x4xf32>, tensor<4x2xf32>) outs(%i : tensor<8x2xf32>) -> tensor<8x2xf32>
  return %m : tensor<8x2xf32>
}

// CHECK-LABEL: func.func @transpose
// CHECK: linalg.generic {indexing_maps = [#[[SWAPPED]]
func.func @transpose(%x: tensor<8x4xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%x : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
  return %t : tensor<4x8xf32>
}

// Nothing named, nothing done; packs and softmax keep their meaning.
// CHECK-LABEL: func.func @nothing_to_do
// CHECK-NOT: linalg.generic
// CHECK: linalg.softmax
// CHECK: linalg.pack
func.func @nothing_to_do(%x: tensor<8x32xf32>, %e: tensor<8x32xf32>, %p: tensor<1x32x8x1xf32>) -> tensor<1x32x8x1xf32> {
  %s = linalg.softmax dimension(1) ins(%x : tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %r = linalg.pack %s inner_dims_pos = [0, 1] inner_tiles = [8, 1] into %p : tensor<8x32xf32> -> tensor<1x32x8x1xf32>
  return %r : tensor<1x32x8x1xf32>
}
