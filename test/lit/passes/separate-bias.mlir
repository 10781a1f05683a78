// RUN: tilewright-opt %s --pass-pipeline='builtin.module(separate-bias)' | filecheck %s

// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
// CHECK-DAG: #[[CHANNEL:.+]] = affine_map<(d0, d1, d2, d3) -> (d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#cols = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: func.func @convolution
// CHECK: %[[Z:.+]] = linalg.fill ins(%{{.+}} : f32)
// CHECK: %[[C:.+]] = linalg.conv_2d_nchw_fchw {{.*}}outs(%[[Z]] : tensor<1x4x6x6xf32>)
// CHECK: %[[R:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[CHANNEL]], #[[ID]]]
// CHECK-SAME: ins(%[[C]], %arg2 : tensor<1x4x6x6xf32>, tensor<4xf32>)
// CHECK: arith.addf
// CHECK: return %[[R]]
func.func @convolution(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) -> tensor<1x4x6x6xf32> {
  %e = tensor.empty() : tensor<1x4x6x6xf32>
  %i = linalg.broadcast ins(%b : tensor<4xf32>) outs(%e : tensor<1x4x6x6xf32>) dimensions = [0, 2, 3]
  %r = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) outs(%i : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @generic_broadcast
// CHECK: linalg.matmul {{.*}}outs(%{{.+}} : tensor<4x5xi32>)
// CHECK: linalg.generic {{.*}}ins(%{{.+}}, %arg2 : tensor<4x5xi32>, tensor<5xi32>)
// CHECK: arith.addi
func.func @generic_broadcast(%x: tensor<4x8xi32>, %w: tensor<8x5xi32>, %b: tensor<5xi32>) -> tensor<4x5xi32> {
  %e = tensor.empty() : tensor<4x5xi32>
  %i = linalg.generic {indexing_maps = [#cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<5xi32>) outs(%e : tensor<4x5xi32>) {
  ^bb0(%in: i32, %out: i32):
    linalg.yield %in : i32
  } -> tensor<4x5xi32>
  %r = linalg.matmul ins(%x, %w : tensor<4x8xi32>, tensor<8x5xi32>) outs(%i : tensor<4x5xi32>) -> tensor<4x5xi32>
  return %r : tensor<4x5xi32>
}

// CHECK-LABEL: func.func @residual
// CHECK: %[[M:.+]] = linalg.matmul
// CHECK: linalg.generic {{.*}}ins(%[[M]], %arg2 : tensor<4x5xf32>, tensor<4x5xf32>)
func.func @residual(%x: tensor<4x8xf32>, %w: tensor<8x5xf32>, %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}

// A constant zero is a fill and nothing is added.
// CHECK-LABEL: func.func @constant_zero
// CHECK: %[[Z:.+]] = linalg.fill
// CHECK: %[[M:.+]] = linalg.matmul {{.*}}outs(%[[Z]]
// CHECK-NEXT: return %[[M]]
func.func @constant_zero(%x: tensor<4x8xf32>, %w: tensor<8x5xf32>) -> tensor<4x5xf32> {
  %c = arith.constant dense<0.0> : tensor<4x5xf32>
  %r = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @fill_stays
// CHECK: %[[M:.+]] = linalg.matmul
// CHECK-NEXT: return %[[M]]
func.func @fill_stays(%x: tensor<4x8xf32>, %w: tensor<8x5xf32>) -> tensor<4x5xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x5xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
  %r = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x5xf32>) outs(%i : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}

// A maximum does not start from zero.
// CHECK-LABEL: func.func @pooling_stays
// CHECK: linalg.pooling_nchw_max {{.*}}outs(%arg2
// CHECK-NEXT: return
func.func @pooling_stays(%x: tensor<1x3x8x8xf32>, %w: tensor<2x2xf32>, %c: tensor<1x3x7x7xf32>) -> tensor<1x3x7x7xf32> {
  %r = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<2x2xf32>) outs(%c : tensor<1x3x7x7xf32>) -> tensor<1x3x7x7xf32>
  return %r : tensor<1x3x7x7xf32>
}

// Booleans are combined by `or`, not by addition.
// CHECK-LABEL: func.func @boolean_stays
// CHECK: linalg.generic {{.*}}outs(%arg2
func.func @boolean_stays(%x: tensor<4x8xi1>, %w: tensor<8x5xi1>, %c: tensor<4x5xi1>) -> tensor<4x5xi1> {
  %r = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x8xi1>, tensor<8x5xi1>) outs(%c : tensor<4x5xi1>) {
  ^bb0(%a: i1, %b: i1, %o: i1):
    %p = arith.andi %a, %b : i1
    %s = arith.ori %o, %p : i1
    linalg.yield %s : i1
  } -> tensor<4x5xi1>
  return %r : tensor<4x5xi1>
}

// A grouped convolution gets its broadcast bias expanded: the bias itself is expanded instead.
// CHECK-LABEL: func.func @expanded_broadcast
// CHECK: %[[B:.+]] = tensor.expand_shape %arg2 {{\[\[}}0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
// CHECK: linalg.conv_2d_ngchw_gfchw
// CHECK: linalg.generic {{.*}}ins(%{{.+}}, %[[B]] : tensor<1x2x4x6x6xf32>, tensor<2x4xf32>)
func.func @expanded_broadcast(%x: tensor<1x2x2x8x8xf32>, %w: tensor<2x4x2x3x3xf32>, %b: tensor<8xf32>)
    -> tensor<1x2x4x6x6xf32> {
  %e = tensor.empty() : tensor<1x8x6x6xf32>
  %i = linalg.broadcast ins(%b : tensor<8xf32>) outs(%e : tensor<1x8x6x6xf32>) dimensions = [0, 2, 3]
  %g = tensor.expand_shape %i [[0], [1, 2], [3], [4]] output_shape [1, 2, 4, 6, 6]
      : tensor<1x8x6x6xf32> into tensor<1x2x4x6x6xf32>
  %r = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x2x2x8x8xf32>, tensor<2x4x2x3x3xf32>) outs(%g : tensor<1x2x4x6x6xf32>)
      -> tensor<1x2x4x6x6xf32>
  return %r : tensor<1x2x4x6x6xf32>
}
