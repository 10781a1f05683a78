// RUN: tilewright-opt %s --materialize-returns --verify-diagnostics

func.func @dynamic(%x: tensor<4xf32>, %y: tensor<?xf32>) -> (tensor<4xf32>, tensor<?xf32>) {
  // expected-error @below {{`materialize-returns`: result 1: expected a static shape, found tensor<?xf32>}}
  return %x, %y : tensor<4xf32>, tensor<?xf32>
}
