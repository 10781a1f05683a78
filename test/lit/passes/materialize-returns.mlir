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

// So is a fill, or a reshape of one, that is inserted in place; what is computed is not.
// CHECK-LABEL: func.func @inserted
// CHECK-SAME: %[[X:.+]]: tensor<1x3xi32>
// CHECK: %[[FILL:.+]] = linalg.fill
// CHECK: %[[FLAT:.+]] = tensor.expand_shape %[[FILL]]
// CHECK: %[[COPY:.+]] = linalg.generic {{.*}} ins(%[[FLAT]]
// CHECK: %[[ONE:.+]] = tensor.insert_slice %[[COPY]] into
// CHECK-NOT: linalg.generic
// CHECK: %[[TWO:.+]] = tensor.insert_slice %[[X]] into %[[ONE]]
// CHECK: return %[[TWO]]
func.func @inserted(%x: tensor<1x3xi32>) -> tensor<1x4xi32> {
  %c = arith.constant 7 : i32
  %e = tensor.empty() : tensor<1xi32>
  %0 = linalg.fill ins(%c : i32) outs(%e : tensor<1xi32>) -> tensor<1xi32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [1, 1] : tensor<1xi32> into tensor<1x1xi32>
  %w = tensor.empty() : tensor<1x4xi32>
  %2 = tensor.insert_slice %1 into %w[0, 0] [1, 1] [1, 1] {tilewright.in_place} : tensor<1x1xi32> into tensor<1x4xi32>
  %3 = tensor.insert_slice %x into %2[0, 1] [1, 3] [1, 1] {tilewright.in_place} : tensor<1x3xi32> into tensor<1x4xi32>
  return %3 : tensor<1x4xi32>
}
