// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(expand-fourier)' 2>&1 | filecheck %s

// CHECK: `tilewright.fourier`: expected roots of shape [8, 2], all of f32 or f64, found tensor<8x3xf32>
func.func @roots(%x: tensor<4x8xf32>, %roots: tensor<8x3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = "tilewright.fourier"(%x, %x, %roots, %x, %x) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 1, 1>}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x3xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xf32>
}
