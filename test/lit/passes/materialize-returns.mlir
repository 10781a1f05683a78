// RUN: tilewright-opt %s --pass-pipeline='builtin.module(materialize-returns)' | filecheck %s

// A computed value is returned as it is, whole reshapes of it too.
// CHECK-LABEL: func.func @computed
// CHECK-NOT: linalg.generic
// CHECK: %[[EXP:.+]] = linalg.exp
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[EXP]]
// CHECK-NEXT: return %[[FLAT]]
func.func @computed(%x: tensor<4x2xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<4x2xf32>
  %0 = linalg.exp ins(%x : tensor<4x2xf32>) outs(%e : tensor<4x2xf32>) -> tensor<4x2xf32>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<4x2xf32> into tensor<8xf32>
  return %1 : tensor<8xf32>
}

// CHECK-LABEL: func.func @argument
// CHECK: %[[COPY:.+]] = linalg.generic {{.*}} ins(%arg0
// CHECK: linalg.yield %in
// CHECK: return %[[COPY]]
func.func @argument(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// CHECK-LABEL: func.func @constant
// CHECK: %[[CST:.+]] = arith.constant
// CHECK: %[[COPY:.+]] = linalg.generic {{.*}} ins(%[[CST]]
// CHECK: return %[[COPY]]
func.func @constant() -> tensor<4xf32> {
  %c = arith.constant dense<1.0> : tensor<4xf32>
  return %c : tensor<4xf32>
}

// The first to return a value owns it; the second, and a part, get copies.
// CHECK-LABEL: func.func @shared
// CHECK: %[[EXP:.+]] = linalg.exp
// CHECK: %[[PART:.+]] = tensor.extract_slice
// CHECK: %[[AGAIN:.+]] = linalg.generic {{.*}} ins(%[[EXP]]
// CHECK: %[[PIECE:.+]] = linalg.generic {{.*}} ins(%[[PART]]
// CHECK: return %[[EXP]], %[[AGAIN]], %[[PIECE]]
func.func @shared(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %1 = tensor.extract_slice %0[2] [2] [1] : tensor<8xf32> to tensor<2xf32>
  return %0, %0, %1 : tensor<8xf32>, tensor<8xf32>, tensor<2xf32>
}

// A fill is cloned into what reads it and belongs to no dispatch of its own: what is returned is a copy.
// CHECK-LABEL: func.func @fill
// CHECK: %[[FILL:.+]] = linalg.fill
// CHECK: %[[COPY:.+]] = linalg.generic {{.*}} ins(%[[FILL]]
// CHECK: return %[[COPY]]
func.func @fill() -> tensor<4xi32> {
  %c = arith.constant 7 : i32
  %e = tensor.empty() : tensor<4xi32>
  %0 = linalg.fill ins(%c : i32) outs(%e : tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
