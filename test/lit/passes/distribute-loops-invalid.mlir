// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(distribute-loops))' --split-input-file --verify-diagnostics

func.func @named(%task: index, %a: memref<8x8xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  // expected-error @below {{`distribute-loops`: `linalg.matmul` on buffers cannot be given to threads; lower it to linalg.generic}}
  linalg.matmul ins(%a, %a : memref<8x8xf32>, memref<8x8xf32>) outs(%a : memref<8x8xf32>)
  return
}

// -----

func.func @dynamic(%task: index, %a: memref<?xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  // expected-error @below {{`distribute-loops`: expected buffers of static shape, found memref<?xf32>; compile for fixed shapes}}
  tm_tensor.sort dimension(0) outs(%a : memref<?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.cmpf ole, %x, %y : f32
    tm_tensor.yield %0 : i1
  }
  return
}
