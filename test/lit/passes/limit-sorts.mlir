// RUN: tilewright-opt %s --pass-pipeline='builtin.module(limit-sorts)' | filecheck %s

// The first five values and the first three indices are read: five must be in order.
// CHECK-LABEL: func.func @topk(
// CHECK: tm_tensor.sort {tilewright.first = 5 : i64} dimension(1)
func.func @topk(%v: tensor<4x64xf32>, %i: tensor<4x64xi64>) -> (tensor<4x5xf32>, tensor<4x3xi64>) {
  %s:2 = tm_tensor.sort dimension(1) outs(%v, %i : tensor<4x64xf32>, tensor<4x64xi64>) {
  ^bb0(%a: f32, %b: f32, %j: i64, %k: i64):
    %c = arith.cmpf oge, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi64>
  %t = tensor.extract_slice %s#0[0, 0] [4, 5] [1, 1] : tensor<4x64xf32> to tensor<4x5xf32>
  %u = tensor.extract_slice %s#1[0, 0] [4, 3] [1, 1] : tensor<4x64xi64> to tensor<4x3xi64>
  return %t, %u : tensor<4x5xf32>, tensor<4x3xi64>
}

// A slice of the last elements, and a sort that is returned whole, need all of it.
// CHECK-LABEL: func.func @whole(
// CHECK-NOT: tilewright.first
func.func @whole(%v: tensor<64xf32>, %w: tensor<64xf32>) -> (tensor<5xf32>, tensor<64xf32>) {
  %s = tm_tensor.sort dimension(0) outs(%v : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<64xf32>
  %t = tensor.extract_slice %s[59] [5] [1] : tensor<64xf32> to tensor<5xf32>
  %r = tm_tensor.sort dimension(0) outs(%w : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<64xf32>
  return %t, %r : tensor<5xf32>, tensor<64xf32>
}
