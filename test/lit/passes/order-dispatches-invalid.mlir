// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(order-dispatches{capacities=[1000000,6000] gbps=[1.0,8.0]})' --verify-diagnostics
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(order-dispatches{capacities=[1000000,6000] gbps=[1.0]})' 2>&1 | filecheck %s --check-prefix=ONE
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(order-dispatches{capacities=[1000000,6000] gbps=[1.0,0.0]})' 2>&1 | filecheck %s --check-prefix=ZERO
// ONE: `order-dispatches`: expected a capacity and a rate above 0 for every level, found capacities of [1000000, 6000] and rates of [1.0]; write both
// ZERO: found capacities of [1000000, 6000] and rates of [1.0, 0.0]; write both

func.func @main(%x: tensor<4xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{`order-dispatches`: expected calls of dispatches, found `linalg.exp`; run outline-dispatches first}}
  %r = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
