// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fold-transposes)' --split-input-file | filecheck %s

#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// Heads that were split off by a view and a transpose: the batch loop becomes two.
// CHECK-DAG: #[[L:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d1, d4)>
// CHECK-DAG: #[[R:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
// CHECK-DAG: #[[O:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
// CHECK-LABEL: func.func @heads
// CHECK: %[[K:.+]] = tensor.expand_shape %arg1 {{\[\[}}0, 1], [2], [3]] output_shape [2, 4, 8, 16]
// CHECK: %[[S:.+]] = linalg.generic {indexing_maps = [#[[L]], #[[R]], #[[O]]]
// CHECK-SAME: ins(%arg0, %[[K]] : tensor<2x16x4x8xf32>, tensor<2x4x8x16xf32>)
// CHECK: %[[C:.+]] = tensor.collapse_shape %[[S]] {{\[\[}}0, 1], [2], [3]]
// CHECK: return %[[C]]
func.func @heads(%x: tensor<2x16x4x8xf32>, %k: tensor<8x8x16xf32>) -> tensor<8x16x16xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x16x8xf32>
  %t = linalg.transpose ins(%x : tensor<2x16x4x8xf32>) outs(%e : tensor<2x4x16x8xf32>) permutation = [0, 2, 1, 3]
  %c = tensor.collapse_shape %t [[0, 1], [2], [3]] : tensor<2x4x16x8xf32> into tensor<8x16x8xf32>
  %o = tensor.empty() : tensor<8x16x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<8x16x16xf32>) -> tensor<8x16x16xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%c, %k : tensor<8x16x8xf32>, tensor<8x8x16xf32>) outs(%f : tensor<8x16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<8x16x16xf32>
  return %r : tensor<8x16x16xf32>
}

// -----

#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// The result is written where the transpose behind it would have moved it.
// CHECK-DAG: #[[O:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d1, d3)>
// CHECK-LABEL: func.func @result
// CHECK-NOT: linalg.transpose
// CHECK: linalg.fill {{.*}} outs(%{{.+}} : tensor<2x16x4x8xf32>)
// CHECK: %[[R:.+]] = linalg.generic {indexing_maps = [#{{.+}}, #{{.+}}, #[[O]]]
// CHECK-NOT: linalg.transpose
// CHECK: return %[[R]] : tensor<2x16x4x8xf32>
func.func @result(%p: tensor<8x16x16xf32>, %v: tensor<8x16x8xf32>) -> tensor<2x16x4x8xf32> {
  %z = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<8x16x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<8x16x8xf32>) -> tensor<8x16x8xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<8x16x16xf32>, tensor<8x16x8xf32>) outs(%f : tensor<8x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %q = arith.addf %s, %m : f32
    linalg.yield %q : f32
  } -> tensor<8x16x8xf32>
  %x = tensor.expand_shape %r [[0, 1], [2], [3]] output_shape [2, 4, 16, 8] : tensor<8x16x8xf32> into tensor<2x4x16x8xf32>
  %e = tensor.empty() : tensor<2x16x4x8xf32>
  %t = linalg.transpose ins(%x : tensor<2x4x16x8xf32>) outs(%e : tensor<2x16x4x8xf32>) permutation = [0, 2, 1, 3]
  return %t : tensor<2x16x4x8xf32>
}

// -----

#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>
#id = affine_map<(b, m, k) -> (b, m, k)>
#row = affine_map<(b, m, k) -> (k)>

// A scale between transpose and contraction is computed before the transpose, which then folds.
// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[ROW:.+]] = affine_map<(d0, d1, d2) -> (d2)>
// CHECK-DAG: #[[L:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>
// CHECK-LABEL: func.func @scaled
// CHECK: %[[S:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]]
// CHECK-SAME: ins(%arg0, %arg2 : tensor<16x4x8xf32>, tensor<8xf32>) outs(%{{.+}} : tensor<16x4x8xf32>)
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic {indexing_maps = [#[[L]],
// CHECK-SAME: ins(%[[S]], %arg1
func.func @scaled(%x: tensor<16x4x8xf32>, %k: tensor<4x8x16xf32>, %g: tensor<8xf32>) -> tensor<4x16x16xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16x8xf32>
  %t = linalg.transpose ins(%x : tensor<16x4x8xf32>) outs(%e : tensor<4x16x8xf32>) permutation = [1, 0, 2]
  %u = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t, %g : tensor<4x16x8xf32>, tensor<8xf32>) outs(%e : tensor<4x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<4x16x8xf32>
  %o = tensor.empty() : tensor<4x16x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%u, %k : tensor<4x16x8xf32>, tensor<4x8x16xf32>) outs(%f : tensor<4x16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<4x16x16xf32>
  return %r : tensor<4x16x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// A transpose that changes the innermost dimension is a copy worth its price.
// CHECK-LABEL: func.func @innermost_changes
// CHECK: %[[T:.+]] = linalg.transpose ins(%arg1
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[T]]
func.func @innermost_changes(%x: tensor<16x8xf32>, %y: tensor<32x8xf32>) -> tensor<16x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x32xf32>
  %t = linalg.transpose ins(%y : tensor<32x8xf32>) outs(%e : tensor<8x32xf32>) permutation = [1, 0]
  %o = tensor.empty() : tensor<16x32xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<16x32xf32>) -> tensor<16x32xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %t : tensor<16x8xf32>, tensor<8x32xf32>) outs(%f : tensor<16x32xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<16x32xf32>
  return %r : tensor<16x32xf32>
}

// -----

#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// Weights keep their transpose for @prepack; a result that others read too keeps its order.
// CHECK-LABEL: func.func @weight_and_shared_result
// CHECK: linalg.transpose ins(%arg0
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<4x16x16xf32>)
// CHECK: linalg.transpose
func.func @weight_and_shared_result(%x: tensor<16x4x8xf32> {tilewright.role = "weight"}, %k: tensor<4x8x16xf32> {tilewright.role = "input"}) -> (tensor<4x16x16xf32>, tensor<16x4x16xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16x8xf32>
  %t = linalg.transpose ins(%x : tensor<16x4x8xf32>) outs(%e : tensor<4x16x8xf32>) permutation = [1, 0, 2]
  %o = tensor.empty() : tensor<4x16x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%t, %k : tensor<4x16x8xf32>, tensor<4x8x16xf32>) outs(%f : tensor<4x16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<4x16x16xf32>
  %d = tensor.empty() : tensor<16x4x16xf32>
  %u = linalg.transpose ins(%r : tensor<4x16x16xf32>) outs(%d : tensor<16x4x16xf32>) permutation = [1, 0, 2]
  return %r, %u : tensor<4x16x16xf32>, tensor<16x4x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// Two rows read a matrix that lies along a long reduction, as they do themselves: it is read in place.
// CHECK-DAG: #[[L:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[R:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic {indexing_maps = [#[[L]], #[[R]], #{{.+}}]
// CHECK-SAME: ins(%arg0, %arg1 : tensor<2x64xf32>, tensor<16x64xf32>)
func.func @few_rows(%x: tensor<2x64xf32>, %w: tensor<16x64xf32>) -> tensor<2x16xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x16xf32>
  %t = linalg.transpose ins(%w : tensor<16x64xf32>) outs(%e : tensor<64x16xf32>) permutation = [1, 0]
  %o = tensor.empty() : tensor<2x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<2x16xf32>) -> tensor<2x16xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %t : tensor<2x64xf32>, tensor<64x16xf32>) outs(%f : tensor<2x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<2x16xf32>
  return %r : tensor<2x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// Sixteen rows over a short reduction: lanes to add would cost more than the copy.
// CHECK-LABEL: func.func @many_rows
// CHECK: linalg.transpose
func.func @many_rows(%x: tensor<16x32xf32>, %w: tensor<16x32xf32>) -> tensor<16x16xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x16xf32>
  %t = linalg.transpose ins(%w : tensor<16x32xf32>) outs(%e : tensor<32x16xf32>) permutation = [1, 0]
  %o = tensor.empty() : tensor<16x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<16x16xf32>) -> tensor<16x16xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %t : tensor<16x32xf32>, tensor<32x16xf32>) outs(%f : tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<16x16xf32>
  return %r : tensor<16x16xf32>
}
