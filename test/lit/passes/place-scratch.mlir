// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(place-scratch))' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(place-scratch{stack-bytes=0}))' | filecheck %s --check-prefix=NOSTACK

// CHECK-LABEL: func.func @small
// CHECK-SAME: tilewright.scratch_bytes = 0 : i64
// CHECK: memref.alloca() {alignment = 64 : i64} : memref<3xf32>
// CHECK-NOT: memref.dealloc
// CHECK: return
// Sizes are rounded up to whole cache lines.
// NOSTACK-LABEL: func.func @small
// NOSTACK-SAME: tilewright.scratch_bytes = 64 : i64
// NOSTACK: memref.view %arg3[%{{.+}}][] : memref<1099511627776xi8> to memref<3xf32>
func.func @small(%task: index, %out: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>) {
  %c0 = arith.constant 0 : index
  %a = memref.alloc() : memref<3xf32>
  %v = memref.load %a[%c0] : memref<3xf32>
  memref.store %v, %out[%c0] : memref<8xf32>
  memref.dealloc %a : memref<3xf32>
  return
}

// Temporaries leave the loop they stood in. Those beyond the stack's bound follow each other in the scratch:
// 128 x 129 x 4 = 66048 bytes, then 40000 x 8 = 320000; a boolean takes a byte.
// CHECK-LABEL: func.func @large
// CHECK-SAME: tilewright.scratch_bytes = 386048 : i64
// CHECK-DAG: %[[SECOND:.+]] = arith.constant 66048 : index
// CHECK-DAG: memref.view %arg3[%[[SECOND]]][] : memref<1099511627776xi8> to memref<40000xcomplex<f32>>
// CHECK-DAG: memref.alloca() {alignment = 64 : i64} : memref<33xi1>
// CHECK-DAG: memref.view %arg3[%{{.+}}][] : memref<1099511627776xi8> to memref<128x129xf32>
// CHECK: scf.for
// CHECK-NOT: memref.alloc
func.func @large(%task: index, %out: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %a = memref.alloc() : memref<128x129xf32>
    %b = memref.alloc() : memref<33xi1>
    %c = memref.alloc() : memref<40000xcomplex<f32>>
    %v = memref.load %a[%i, %c0] : memref<128x129xf32>
    memref.store %v, %out[%i] : memref<8xf32>
    memref.dealloc %a : memref<128x129xf32>
  }
  return
}
