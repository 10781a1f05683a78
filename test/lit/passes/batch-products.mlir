// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(batch-products)' | filecheck %s
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(batch-products{most-rows=1})' | filecheck %s --check-prefix=NONE

// Both products read the weight once. What was computed for the second one moves in front of them.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x8xf32>
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<8x4xf32>
// CHECK: %[[TWICE:.+]] = linalg.add
// CHECK: %[[JOINED:.+]] = tensor.concat dim(0) %[[X]], %[[TWICE]] : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
// CHECK: %[[START:.+]] = linalg.fill {{.*}} tensor<4x4xf32>
// CHECK: %[[BOTH:.+]] = linalg.matmul ins(%[[JOINED]], %[[W]] : {{.*}}) outs(%[[START]]
// CHECK: %[[FIRST:.+]] = tensor.extract_slice %[[BOTH]][0, 0] [2, 4] [1, 1]
// CHECK: tensor.extract_slice %[[BOTH]][2, 0] [2, 4] [1, 1]
// CHECK: linalg.exp ins(%[[FIRST]]
// NONE-LABEL: func.func @main(
// NONE-NOT: tensor.concat
func.func @main(%x: tensor<2x8xf32> {tilewright.role = "input"}, %w: tensor<8x4xf32> {tilewright.role = "weight"}) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %ex = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %a = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%f : tensor<2x4xf32>) -> tensor<2x4xf32>
  %b = linalg.exp ins(%a : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %t = linalg.add ins(%x, %x : tensor<2x8xf32>, tensor<2x8xf32>) outs(%ex : tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = linalg.matmul ins(%t, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%f : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %b, %c : tensor<2x4xf32>, tensor<2x4xf32>
}

// -----

// The second product needs the first one.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: tensor.concat
// NONE-LABEL: func.func @main(
func.func @main(%x: tensor<1x8xf32> {tilewright.role = "input"}, %w: tensor<8x8xf32> {tilewright.role = "weight"}) -> tensor<1x8xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %a = linalg.matmul ins(%x, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%f : tensor<1x8xf32>) -> tensor<1x8xf32>
  %b = linalg.matmul ins(%a, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%f : tensor<1x8xf32>) -> tensor<1x8xf32>
  return %b : tensor<1x8xf32>
}

// -----

// Left alone: the second operand is no weight, products add to something, and rows are of two lengths.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: tensor.concat
// NONE-LABEL: func.func @main(
func.func @main(%x: tensor<1x8xf32> {tilewright.role = "input"}, %y: tensor<2x8xf32> {tilewright.role = "input"},
                %u: tensor<8x8xf32> {tilewright.role = "input"}, %w: tensor<8x8xf32> {tilewright.role = "weight"})
    -> (tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<2x8xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8xf32>
  %e2 = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %f2 = linalg.fill ins(%z : f32) outs(%e2 : tensor<2x8xf32>) -> tensor<2x8xf32>
  %t = linalg.exp ins(%x : tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %a = linalg.matmul ins(%x, %u : tensor<1x8xf32>, tensor<8x8xf32>) outs(%f : tensor<1x8xf32>) -> tensor<1x8xf32>
  %b = linalg.matmul ins(%t, %u : tensor<1x8xf32>, tensor<8x8xf32>) outs(%f : tensor<1x8xf32>) -> tensor<1x8xf32>
  %c = linalg.matmul ins(%t, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%x : tensor<1x8xf32>) -> tensor<1x8xf32>
  %d = linalg.matmul ins(%x, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%f : tensor<1x8xf32>) -> tensor<1x8xf32>
  %g = linalg.matmul ins(%y, %w : tensor<2x8xf32>, tensor<8x8xf32>) outs(%f2 : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %a, %b, %c, %d, %g : tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<2x8xf32>
}
