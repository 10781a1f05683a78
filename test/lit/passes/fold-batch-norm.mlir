// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(fold-batch-norm)' | filecheck %s

#id = affine_map<(n, c, h, w) -> (n, c, h, w)>
#channel = affine_map<(n, c, h, w) -> (c)>
#channel11 = affine_map<(n, c, h, w) -> (c, 0, 0)>

// CHECK-LABEL: func.func @batch_norm
// CHECK: %[[V:.+]] = linalg.generic {{.*}}ins(%arg0, %{{.+}} : tensor<4x3x3x3xf32>, tensor<4xf32>)
// CHECK: arith.mulf
// CHECK: %[[C:.+]] = linalg.conv_2d_nchw_fchw {{.*}}ins(%arg3, %[[V]]
// CHECK: %[[R:.+]] = linalg.generic {{.*}}ins(%[[C]], %{{.+}} : tensor<1x4x6x6xf32>, tensor<4xf32>)
// CHECK: arith.addf
// CHECK: return %[[R]]
func.func @batch_norm(%w: tensor<4x3x3x3xf32> {tilewright.role = "weight"}, %mean: tensor<4xf32> {tilewright.role = "weight"},
    %s: tensor<4x1x1xf32> {tilewright.role = "weight"}, %x: tensor<1x3x8x8xf32> {tilewright.role = "input"}) -> tensor<1x4x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4x6x6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) outs(%z : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %d = linalg.generic {indexing_maps = [#id, #channel, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %mean : tensor<1x4x6x6xf32>, tensor<4xf32>) outs(%e : tensor<1x4x6x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<1x4x6x6xf32>
  %f = linalg.generic {indexing_maps = [#id, #channel11, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%d, %s : tensor<1x4x6x6xf32>, tensor<4x1x1xf32>) outs(%e : tensor<1x4x6x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<1x4x6x6xf32>
  return %f : tensor<1x4x6x6xf32>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#cols = affine_map<(m, n) -> (n)>

// One op that shifts and scales at once; the scale reaches the columns of the filter.
// CHECK-LABEL: func.func @matmul
// CHECK: %[[V:.+]] = linalg.generic {{.*}}ins(%arg0, %{{.+}} : tensor<8x4xf32>, tensor<4xf32>)
// CHECK: linalg.matmul ins(%arg2, %[[V]]
func.func @matmul(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<4xf32> {tilewright.role = "weight"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %half, %a : f32
    %r = arith.divf %d, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f : tensor<2x4xf32>
}
