// RUN: tilewright-opt %s --pass-pipeline='builtin.module(restore-copies)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(restore-copies,canonicalize)' | filecheck %s --check-prefix=AGAIN

// CHECK-LABEL: func.func private @copy(
// CHECK-SAME: %[[X:.+]]: tensor<4x8xf32>
// CHECK: %[[COPY:.+]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4x8xf32>)
// CHECK: return %[[COPY]]
// AGAIN-LABEL: func.func private @copy(
// AGAIN-NEXT: return %arg0
func.func private @copy(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {tilewright.operator = "elementwise"} {
  return %x : tensor<4x8xf32>
}

// What is computed is returned as it is.
// CHECK-LABEL: func.func private @fill(
// CHECK: %[[FILL:.+]] = linalg.fill
// CHECK-NEXT: return %[[FILL]]
func.func private @fill() -> tensor<8xf32> attributes {tilewright.operator = "elementwise"} {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %f : tensor<8xf32>
}

// Only dispatches.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
