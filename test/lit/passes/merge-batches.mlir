// RUN: tilewright-opt %s --pass-pipeline='builtin.module(merge-batches)' | filecheck %s

#rows = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#unit = affine_map<(d0, d1, d2) -> (0, d1, d2)>
#part = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#second = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
#last = affine_map<(d0, d1, d2) -> (d2)>
#turned_rows = affine_map<(d0, d1, d2) -> (d1, d2)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#left = affine_map<(b, m, n, k) -> (b, m, k)>
#turned_right = affine_map<(b, m, n, k) -> (b, n, k)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// The rows of all batches, onto the start of all.
// CHECK-LABEL: func.func @right
// CHECK-SAME: %[[A:.+]]: tensor<6x7x5xf32>, %[[W:.+]]: tensor<5x4xf32>, %[[START:.+]]: tensor<6x7x4xf32>
// CHECK-DAG: %[[ROWS:.+]] = tensor.collapse_shape %[[A]] {{\[\[}}0, 1], [2]] : tensor<6x7x5xf32> into tensor<42x5xf32>
// CHECK-DAG: %[[ONTO:.+]] = tensor.collapse_shape %[[START]] {{\[\[}}0, 1], [2]]
// CHECK: %[[C:.+]] = linalg.matmul ins(%[[ROWS]], %[[W]] : tensor<42x5xf32>, tensor<5x4xf32>) outs(%[[ONTO]] : tensor<42x4xf32>)
// CHECK: %[[R:.+]] = tensor.expand_shape %[[C]] {{\[\[}}0, 1], [2]] output_shape [6, 7, 4]
// CHECK: return %[[R]]
func.func @right(%a: tensor<6x7x5xf32>, %w: tensor<5x4xf32>, %start: tensor<6x7x4xf32>) -> tensor<6x7x4xf32> {
  %e = tensor.empty() : tensor<2x3x5x4xf32>
  %b = linalg.generic {indexing_maps = [#rows, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<5x4xf32>) outs(%e : tensor<2x3x5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x3x5x4xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<2x3x5x4xf32> into tensor<6x5x4xf32>
  %r = linalg.batch_matmul ins(%a, %c : tensor<6x7x5xf32>, tensor<6x5x4xf32>) outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  return %r : tensor<6x7x4xf32>
}

// A dimension of one that is broadcast; sums of bf16 stay in f32.
// CHECK-LABEL: func.func @unit
// CHECK: %[[W:.+]] = tensor.collapse_shape %arg1 {{\[\[}}0, 1], [2]] : tensor<1x5x4xbf16> into tensor<5x4xbf16>
// CHECK: linalg.matmul ins(%{{.+}}, %[[W]] : tensor<14x5xbf16>, tensor<5x4xbf16>) outs(%{{.+}} : tensor<14x4xf32>)
func.func @unit(%a: tensor<2x7x5xbf16>, %w: tensor<1x5x4xbf16>, %start: tensor<2x7x4xf32>) -> tensor<2x7x4xf32> {
  %e = tensor.empty() : tensor<2x5x4xbf16>
  %b = linalg.generic {indexing_maps = [#unit, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<1x5x4xbf16>) outs(%e : tensor<2x5x4xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    linalg.yield %in : bf16
  } -> tensor<2x5x4xbf16>
  %r = linalg.batch_matmul ins(%a, %b : tensor<2x7x5xbf16>, tensor<2x5x4xbf16>) outs(%start : tensor<2x7x4xf32>) -> tensor<2x7x4xf32>
  return %r : tensor<2x7x4xf32>
}

// The batch stays where the left-hand side is shared.
// CHECK-LABEL: func.func @left
// CHECK-SAME: %[[W:.+]]: tensor<7x5xf32>, %[[X:.+]]: tensor<2x5x4xf32>
// CHECK: linalg.batch_matmul indexing_maps = [#{{.+}}, #{{.+}}, #{{.+}}] ins(%[[W]], %[[X]] : tensor<7x5xf32>, tensor<2x5x4xf32>)
func.func @left(%w: tensor<7x5xf32>, %x: tensor<2x5x4xf32>, %start: tensor<2x7x4xf32>) -> tensor<2x7x4xf32> {
  %e = tensor.empty() : tensor<1x2x7x5xf32>
  %b = linalg.generic {indexing_maps = [#rows, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<7x5xf32>) outs(%e : tensor<1x2x7x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x2x7x5xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<1x2x7x5xf32> into tensor<2x7x5xf32>
  %r = linalg.batch_matmul ins(%c, %x : tensor<2x7x5xf32>, tensor<2x5x4xf32>) outs(%start : tensor<2x7x4xf32>) -> tensor<2x7x4xf32>
  return %r : tensor<2x7x4xf32>
}

// Neighbours in the batch share a matrix: their rows are one product, of as many as there are matrices.
// CHECK-LABEL: func.func @part
// CHECK-SAME: %[[A:.+]]: tensor<6x7x5xf32>, %[[W:.+]]: tensor<2x5x4xf32>, %{{.+}}: tensor<6x7x4xf32>
// CHECK: linalg.batch_matmul ins(%{{.+}}, %[[W]] : tensor<2x21x5xf32>, tensor<2x5x4xf32>) outs(%{{.+}} : tensor<2x21x4xf32>)
func.func @part(%a: tensor<6x7x5xf32>, %w: tensor<2x5x4xf32>, %start: tensor<6x7x4xf32>) -> tensor<6x7x4xf32> {
  %e = tensor.empty() : tensor<2x3x5x4xf32>
  %b = linalg.generic {indexing_maps = [#part, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<2x5x4xf32>) outs(%e : tensor<2x3x5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x3x5x4xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<2x3x5x4xf32> into tensor<6x5x4xf32>
  %r = linalg.batch_matmul ins(%a, %c : tensor<6x7x5xf32>, tensor<6x5x4xf32>) outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  return %r : tensor<6x7x4xf32>
}

// Keys that heads share are transposed before they are copied, not after.
// CHECK-LABEL: func.func @turned
// CHECK-SAME: %[[A:.+]]: tensor<6x7x5xf32>, %[[K:.+]]: tensor<2x4x5xf32>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[K]] : tensor<2x4x5xf32>) outs(%{{.+}} : tensor<2x5x4xf32>) permutation = [0, 2, 1]
// CHECK: linalg.batch_matmul ins(%{{.+}}, %[[T]] : tensor<2x21x5xf32>, tensor<2x5x4xf32>)
func.func @turned(%a: tensor<6x7x5xf32>, %k: tensor<2x4x5xf32>, %start: tensor<6x7x4xf32>) -> tensor<6x7x4xf32> {
  %e = tensor.empty() : tensor<2x3x4x5xf32>
  %b = linalg.generic {indexing_maps = [#part, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<2x4x5xf32>) outs(%e : tensor<2x3x4x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x3x4x5xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<2x3x4x5xf32> into tensor<6x4x5xf32>
  %te = tensor.empty() : tensor<6x5x4xf32>
  %t = linalg.transpose ins(%c : tensor<6x4x5xf32>) outs(%te : tensor<6x5x4xf32>) permutation = [0, 2, 1]
  %r = linalg.batch_matmul ins(%a, %t : tensor<6x7x5xf32>, tensor<6x5x4xf32>) outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  return %r : tensor<6x7x4xf32>
}

// Matrices that every second of a batch shares, rows that are copies of each other, and other index maps.
// CHECK-LABEL: func.func @others_stay
// CHECK-NOT: linalg.matmul
// CHECK-COUNT-3: linalg.batch_matmul {{.*}}tensor<6x7x5xf32>, tensor<6
func.func @others_stay(%a: tensor<6x7x5xf32>, %w2: tensor<2x5x4xf32>, %wt: tensor<4x5xf32>, %row: tensor<4xf32>,
    %start: tensor<6x7x4xf32>) -> (tensor<6x7x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>) {
  %e = tensor.empty() : tensor<3x2x5x4xf32>
  %b = linalg.generic {indexing_maps = [#second, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w2 : tensor<2x5x4xf32>) outs(%e : tensor<3x2x5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<3x2x5x4xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<3x2x5x4xf32> into tensor<6x5x4xf32>
  %r = linalg.batch_matmul ins(%a, %c : tensor<6x7x5xf32>, tensor<6x5x4xf32>) outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  %e1 = tensor.empty() : tensor<6x5x4xf32>
  %b1 = linalg.generic {indexing_maps = [#last, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%row : tensor<4xf32>) outs(%e1 : tensor<6x5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x5x4xf32>
  %r1 = linalg.batch_matmul ins(%a, %b1 : tensor<6x7x5xf32>, tensor<6x5x4xf32>) outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  %e3 = tensor.empty() : tensor<6x4x5xf32>
  %b3 = linalg.generic {indexing_maps = [#turned_rows, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%wt : tensor<4x5xf32>) outs(%e3 : tensor<6x4x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x4x5xf32>
  %r3 = linalg.batch_matmul indexing_maps = [#left, #turned_right, #out] ins(%a, %b3 : tensor<6x7x5xf32>, tensor<6x4x5xf32>)
      outs(%start : tensor<6x7x4xf32>) -> tensor<6x7x4xf32>
  return %r, %r1, %r3 : tensor<6x7x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>
}
