// RUN: tilewright-opt %s --pass-pipeline='builtin.module(expand-fourier)' --split-input-file | filecheck %s

// Of what is real, the half that is kept is multiplied: once for each part.
// CHECK-LABEL: func.func @of_real
// CHECK-DAG: arith.constant dense<{{.+}}> : tensor<5x8xf32>
// CHECK-COUNT-2: linalg.generic {{.+}}iterator_types = ["parallel", "parallel", "reduction"]{{.+}}: tensor<5x8xf32>, tensor<4x8xf32>
// CHECK-NOT: tilewright.fourier
func.func @of_real(%x: tensor<4x8xf32>, %roots: tensor<8x2xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %a = tensor.empty() : tensor<4x5xf32>
  %0:2 = "tilewright.fourier"(%x, %roots, %a, %a) {kind = "of_real", dimension = 1 : i64, resultSegmentSizes = array<i32: 1, 1>}
    : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<4x5xf32>, tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>)
  return %0#0, %0#1 : tensor<4x5xf32>, tensor<4x5xf32>
}

// -----

// Long lines are columns times roots, and rows: 128 = 8 x 16.
// CHECK-LABEL: func.func @long
// CHECK: linalg.generic {{.+}} ins({{.+}} : tensor<8x8xf32>, tensor<4x8x48xf32>)
// CHECK: linalg.generic {{.+}} ins({{.+}} : tensor<4x128x3xf32>, tensor<4x128x3xf32>, tensor<128xf32>, tensor<128xf32>)
// CHECK: linalg.generic {{.+}} ins({{.+}} : tensor<16x16xf32>, tensor<32x16x3xf32>)
// CHECK: linalg.transpose {{.+}} permutation = [0, 2, 1, 3]
// CHECK-NOT: tilewright.fourier
func.func @long(%x: tensor<4x128x3xf32>, %y: tensor<4x128x3xf32>, %roots: tensor<128x2xf32>) -> (tensor<4x128x3xf32>, tensor<4x128x3xf32>) {
  %a = tensor.empty() : tensor<4x128x3xf32>
  %0:2 = "tilewright.fourier"(%x, %y, %roots, %a, %a) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 1, 1>}
    : (tensor<4x128x3xf32>, tensor<4x128x3xf32>, tensor<128x2xf32>, tensor<4x128x3xf32>, tensor<4x128x3xf32>) -> (tensor<4x128x3xf32>, tensor<4x128x3xf32>)
  return %0#0, %0#1 : tensor<4x128x3xf32>, tensor<4x128x3xf32>
}
