// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-sorts))' --verify-diagnostics

func.func @dynamic(%v: memref<?xf32>) {
  // expected-error @below {{`lower-sorts`: expected buffers of static shape, found memref<?xf32>; compile for fixed shapes}}
  tm_tensor.sort dimension(0) outs(%v : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  }
  return
}
