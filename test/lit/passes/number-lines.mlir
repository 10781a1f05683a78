// RUN: tilewright-opt %s --pass-pipeline='builtin.module(number-lines)' | filecheck %s

// Three updates for each of eight lines of 256 elements.
// CHECK-LABEL: func.func @lines(
// CHECK: %[[ALL:.+]] = linalg.generic {{.*}} ins(%arg1 : tensor<24x1xi64>)
// CHECK: %[[I:.+]] = linalg.index 0
// CHECK: %[[THREE:.+]] = arith.constant 3 : index
// CHECK: %[[LINE:.+]] = arith.divui %[[I]], %[[THREE]]
// CHECK: %[[LENGTH:.+]] = arith.constant 256 : index
// CHECK: arith.muli %[[LINE]], %[[LENGTH]]
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%arg0, %[[ALL]] :
func.func @lines(%u: tensor<24xf32>, %at: tensor<24x1xi64>, %x: tensor<2048xf32>) -> tensor<2048xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 8 : i64} unique_indices(false) ins(%u, %at : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<2048xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<2048xf32>
  return %r : tensor<2048xf32>
}
