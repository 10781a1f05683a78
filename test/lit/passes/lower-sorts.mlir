// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-sorts))' | filecheck %s

// Rows of 5: runs of 1, 2 and 4 are merged, from one scratch buffer into the other and back.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-4: memref.alloc() : memref<5x{{f32|i64}}>
// CHECK: scf.for
// CHECK: memref.store
// CHECK-COUNT-3: arith.cmpf ole
// CHECK-NOT: tm_tensor.sort
// CHECK: return
func.func @rows(%v: memref<3x5xf32>, %i: memref<3x5xi64>) {
  tm_tensor.sort dimension(1) outs(%v, %i : memref<3x5xf32>, memref<3x5xi64>) {
  ^bb0(%a: f32, %b: f32, %m: i64, %n: i64):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  }
  return
}

// Tensors are bufferized first.
// CHECK-LABEL: func.func @tensors_stay
// CHECK: tm_tensor.sort
func.func @tensors_stay(%v: tensor<5xi32>) -> tensor<5xi32> {
  %r = tm_tensor.sort dimension(0) outs(%v : tensor<5xi32>) {
  ^bb0(%a: i32, %b: i32):
    %c = arith.cmpi sle, %a, %b : i32
    tm_tensor.yield %c : i1
  } -> tensor<5xi32>
  return %r : tensor<5xi32>
}
