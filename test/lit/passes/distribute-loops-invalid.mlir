// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(distribute-loops))' --split-input-file --verify-diagnostics

func.func @named(%task: index, %a: memref<8x8xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  // expected-error @below {{`distribute-loops`: `linalg.matmul` on buffers cannot be given to threads; lower it to linalg.generic}}
  linalg.matmul ins(%a, %a : memref<8x8xf32>, memref<8x8xf32>) outs(%a : memref<8x8xf32>)
  return
}
