// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fill-splats)' | filecheck %s

// CHECK-LABEL: func.func @zeros
// CHECK: %[[ZERO:.+]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[EMPTY:.+]] = tensor.empty() : tensor<5x9xf32>
// CHECK: %[[FILL:.+]] = linalg.fill ins(%[[ZERO]] : f32) outs(%[[EMPTY]] : tensor<5x9xf32>)
// CHECK: return %[[FILL]]
func.func @zeros() -> tensor<5x9xf32> {
  %c = arith.constant dense<0.0> : tensor<5x9xf32>
  return %c : tensor<5x9xf32>
}

// Several values stay, and so do scalars.
// CHECK-LABEL: func.func @table
// CHECK-NOT: linalg.fill
func.func @table() -> (tensor<2xi64>, i64) {
  %c = arith.constant dense<[1, 2]> : tensor<2xi64>
  %s = arith.constant 3 : i64
  return %c, %s : tensor<2xi64>, i64
}
