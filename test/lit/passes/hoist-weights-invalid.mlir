// RUN: tilewright-opt %s --pass-pipeline='builtin.module(hoist-weights)' --verify-diagnostics

// expected-error @below {{`hoist-weights`: expected @main to be one block of tensor operations, found 2; run it before control flow is lowered}}
func.func @main(%w: tensor<4xf32> {tilewright.role = "weight", tilewright.name = "w"}) -> tensor<4xf32> {
  cf.br ^end
^end:
  return %w : tensor<4xf32>
}
