// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(keep-rows))' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(keep-rows{fewest=5 masks=true}))' | filecheck %s --check-prefix=MASKS

// CHECK-DAG: #[[ROLLED:.+]] = #llvm.loop_unroll<disable = true>
// CHECK-DAG: #[[KEPT:.+]] = #llvm.loop_annotation<unroll = #[[ROLLED]]>
// MASKS-DAG: #[[ROLLED:.+]] = #llvm.loop_unroll<disable = true>
// MASKS-DAG: #[[MASKED:.+]] = #llvm.loop_vectorize<predicateEnable = true>
// MASKS-DAG: #[[KEPT:.+]] = #llvm.loop_annotation<unroll = #[[ROLLED]]>
// MASKS-DAG: #[[BOTH:.+]] = #llvm.loop_annotation<{{.*}}vectorize = #[[MASKED]]{{.*}}unroll = #[[ROLLED]]{{.*}}>
// MASKS-DAG: #[[LONG:.+]] = #llvm.loop_annotation<vectorize = #[[MASKED]]>

// The loop along rows of 24 elements; the loop over the rows says nothing.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for
// CHECK-NEXT: scf.for
// CHECK: memref.store
// CHECK-NEXT: } {llvm.loop_annotation = #[[KEPT]]}
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @rows(%x: memref<4096x24xf32>, %s: memref<4096xf32>, %y: memref<4096x24xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c24 = arith.constant 24 : index
  %c4096 = arith.constant 4096 : index
  scf.for %i = %c0 to %c4096 step %c1 {
    scf.for %j = %c0 to %c24 step %c1 {
      %a = memref.load %x[%i, %j] : memref<4096x24xf32>
      %b = memref.load %s[%i] : memref<4096xf32>
      %c = arith.mulf %a, %b : f32
      memref.store %c, %y[%i, %j] : memref<4096x24xf32>
    }
  }
  return
}

// Short rows are kept where storing with masks costs no more: LLVM vectorises less than 16 iterations with them.
// CHECK-LABEL: func.func @short(
// CHECK-NOT: llvm.loop_annotation
// MASKS-LABEL: func.func @short(
// MASKS: llvm.loop_annotation = #[[KEPT]]
func.func @short(%x: memref<4096x9xf32>, %y: memref<4096x9xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  scf.for %j = %c0 to %c9 step %c1 {
    %a = memref.load %x[%i, %j] : memref<4096x9xf32>
    memref.store %a, %y[%i, %j] : memref<4096x9xf32>
  }
  return
}

// Seven hyperbolic tangents behind one vector of 16 are one more, masked; rows that are too long to be unrolled say that alone.
// CHECK-LABEL: func.func @tails(
// CHECK: llvm.loop_annotation = #[[KEPT]]
// CHECK-NOT: llvm.loop_annotation
// MASKS-LABEL: func.func @tails(
// MASKS: llvm.loop_annotation = #[[BOTH]]
// MASKS: llvm.loop_annotation = #[[LONG]]
func.func @tails(%x: memref<4096x23xf32>, %y: memref<4096x23xf32>, %u: memref<4096x102xf32>, %v: memref<4096x102xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c23 = arith.constant 23 : index
  %c102 = arith.constant 102 : index
  scf.for %j = %c0 to %c23 step %c1 {
    %a = memref.load %x[%i, %j] : memref<4096x23xf32>
    %b = math.tanh %a : f32
    memref.store %b, %y[%i, %j] : memref<4096x23xf32>
  }
  scf.for %j = %c0 to %c102 step %c1 {
    %a = memref.load %u[%i, %j] : memref<4096x102xf32>
    %b = math.tanh %a : f32
    memref.store %b, %v[%i, %j] : memref<4096x102xf32>
  }
  return
}

// No masks for what libm computes one element after the other anyway, nor for one element behind a vector.
// CHECK-LABEL: func.func @no_masks(
// MASKS-LABEL: func.func @no_masks(
// MASKS: llvm.loop_annotation = #[[KEPT]]
// MASKS: llvm.loop_annotation = #[[KEPT]]
func.func @no_masks(%x: memref<4096x23xf64>, %y: memref<4096x23xf64>, %u: memref<4096x17xf32>, %v: memref<4096x17xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c17 = arith.constant 17 : index
  %c23 = arith.constant 23 : index
  scf.for %j = %c0 to %c23 step %c1 {
    %a = memref.load %x[%i, %j] : memref<4096x23xf64>
    %b = math.tanh %a : f64
    memref.store %b, %y[%i, %j] : memref<4096x23xf64>
  }
  scf.for %j = %c0 to %c17 step %c1 {
    %a = memref.load %u[%i, %j] : memref<4096x17xf32>
    %b = math.tanh %a : f32
    memref.store %b, %v[%i, %j] : memref<4096x17xf32>
  }
  return
}

// Left to LLVM: columns, which it may unroll and make vectors across; sums; rows of which something is computed from the index.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: llvm.loop_annotation
// MASKS-LABEL: func.func @others(
// MASKS-NOT: llvm.loop_annotation
func.func @others(%x: memref<24x4096xf32>, %y: memref<24xf32>, %z: memref<4096x24xi32>, %i: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c24 = arith.constant 24 : index
  %zero = arith.constant 0.0 : f32
  scf.for %j = %c0 to %c24 step %c1 {
    %a = memref.load %x[%j, %i] : memref<24x4096xf32>
    memref.store %a, %y[%j] : memref<24xf32>
  }
  %sum = scf.for %j = %c0 to %c24 step %c1 iter_args(%s = %zero) -> f32 {
    %a = memref.load %y[%j] : memref<24xf32>
    %t = arith.addf %s, %a : f32
    scf.yield %t : f32
  }
  scf.for %j = %c0 to %c24 step %c1 {
    %n = arith.index_cast %j : index to i32
    memref.store %n, %z[%i, %j] : memref<4096x24xi32>
  }
  return %sum : f32
}
