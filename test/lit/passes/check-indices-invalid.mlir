// RUN: tilewright-opt %s --pass-pipeline='builtin.module(check-indices)' --verify-diagnostics

// Lines of a scatter have as many updates, numbers and slices each, along the dimension that is numbered.
func.func @unequal(%u: tensor<24xf32>, %i: tensor<24x1xi64>, %x: tensor<40xf32>) -> tensor<40xf32> {
  // expected-error @below {{`tilewright.lines` of a scatter: expected a divisor of 24, 24, 40, what its operands have along their first dimension, which it numbers, found 7 : i64 and dimension_map = [0]}}
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 7 : i64} unique_indices(false)
      ins(%u, %i : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<40xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<40xf32>
  return %r : tensor<40xf32>
}
