// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-sorts{vector-bits=512}))' | filecheck %s

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

// Elements of 32 bits whose places are wanted: both as one integer, in columns of 4 vectors that are sorted in registers, then
// runs of 4, 8 and 16 elements are merged from both ends. The 30 elements are padded by greatest ones.
// CHECK-LABEL: func.func @numbered
// CHECK-COUNT-2: memref.alloc() : memref<32xi64>
// CHECK: vector.load %{{.+}} : memref<3x30xf32>, vector<8xf32>
// CHECK: arith.cmpf uno
// CHECK: arith.bitcast %{{.+}} : vector<8xf32> to vector<8xi32>
// CHECK: arith.shli %{{.+}} : vector<8xi64>
// CHECK: arith.constant 9223372036854775807 : i64
// CHECK: arith.minsi %{{.+}} : vector<8xi64>
// CHECK: arith.maxsi %{{.+}} : vector<8xi64>
// CHECK-COUNT-3: arith.minsi %{{.+}} : i64
// CHECK: arith.trunci %{{.+}} : i64 to i32
// CHECK-NOT: tm_tensor.topk
// CHECK: return
func.func @numbered(%v: memref<3x30xf32>, %s: memref<3x30xf32>, %i: memref<3x30xi64>) {
  tm_tensor.topk dimension(1) ins(%v : memref<3x30xf32>) outs(%s, %i : memref<3x30xf32>, memref<3x30xi64>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  }
  return
}

// The greatest two of 100: vectors of which no element is greater than the second are passed over.
// CHECK-LABEL: func.func @few
// CHECK: memref.alloc() : memref<2xi64>
// CHECK: %[[BETTER:.+]] = arith.cmpi slt, %{{.+}}, %{{.+}} : vector<16xi32>
// CHECK: %[[ANY:.+]] = vector.reduction <or>, %[[BETTER]]
// CHECK: scf.if %[[ANY]]
// CHECK: return
func.func @few(%v: memref<3x100xi32>, %s: memref<3x2xi32>, %i: memref<3x2xi64>) {
  tm_tensor.topk dimension(1) ins(%v : memref<3x100xi32>) outs(%s, %i : memref<3x2xi32>, memref<3x2xi64>) {
  ^bb0(%a: i32, %b: i32):
    %c = arith.cmpi sge, %a, %b : i32
    tm_tensor.yield %c : i1
  }
  return
}

// Integers of 64 bits: those of a line that are less than 2^32 apart as integers of 32 from the least of them on, others merged.
// CHECK-LABEL: func.func @numbers
// CHECK: %[[ENDS:.+]]:2 = scf.for
// CHECK-DAG: arith.minsi %{{.+}} : i64
// CHECK-DAG: arith.maxsi %{{.+}} : i64
// CHECK: %[[APART:.+]] = arith.subi %[[ENDS]]#1, %[[ENDS]]#0 : i64
// CHECK: %[[FITS:.+]] = arith.cmpi ult, %[[APART]], %{{.+}} : i64
// CHECK: scf.if %[[FITS]]
// CHECK: arith.subi %{{.+}} : vector<8xi64>
// CHECK: arith.trunci %{{.+}} : vector<8xi64> to vector<8xi32>
// CHECK: } else {
// CHECK: arith.cmpi sle, %{{.+}} : i64
// CHECK-NOT: tm_tensor.topk
// CHECK: return
func.func @numbers(%v: memref<3x40xi64>, %s: memref<3x40xi64>, %i: memref<3x40xi64>) {
  tm_tensor.topk dimension(1) ins(%v : memref<3x40xi64>) outs(%s, %i : memref<3x40xi64>, memref<3x40xi64>) {
  ^bb0(%a: i64, %b: i64):
    %c = arith.cmpi sle, %a, %b : i64
    tm_tensor.yield %c : i1
  }
  return
}

// Floats of 64 bits, and their places as integers beside them.
// CHECK-LABEL: func.func @wide
// CHECK: memref.alloc() : memref<20xf64>
// CHECK: memref.alloc() : memref<20xi64>
// CHECK: arith.cmpf ole, %{{.+}} : f64
// CHECK-NOT: tm_tensor.topk
// CHECK: return
func.func @wide(%v: memref<3x20xf64>, %s: memref<3x20xf64>, %i: memref<3x20xi64>) {
  tm_tensor.topk dimension(1) ins(%v : memref<3x20xf64>) outs(%s, %i : memref<3x20xf64>, memref<3x20xi64>) {
  ^bb0(%a: f64, %b: f64):
    %c = arith.cmpf ole, %a, %b : f64
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
