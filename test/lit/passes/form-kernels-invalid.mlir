// RUN: tilewright-opt %s --form-kernels --split-input-file --verify-diagnostics

// expected-error @below {{`form-kernels`: expected tensors of static shape in and out, found tensor<?xf32>}}
func.func private @dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{`form-kernels`: expected tensors of static shape in and out, found f32}}
func.func private @scalar(%x: f32) {
  return
}

// -----

// expected-error @below {{`form-kernels`: expected one block, found branches; a dispatch holds structured control flow}}
func.func private @branches(%x: tensor<4xf32>) -> tensor<4xf32> {
  cf.br ^next
^next:
  return %x : tensor<4xf32>
}

// -----

func.func @calls(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{`form-kernels`: expected a dispatch, found a call; form kernels of single dispatches}}
  %y = call @dispatch(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @dispatch(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{`form-kernels`: `tilewright.overwrites`: expected the number of an argument of the type of the only result, found 0}}
func.func private @overwrites(%at: tensor<1xi64>, %x: tensor<4xf32>) -> tensor<4xf32> attributes {tilewright.overwrites = 0 : i64} {
  return %x : tensor<4xf32>
}
