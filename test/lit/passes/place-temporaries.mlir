// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(place-temporaries{shared-bytes=1024}))' | filecheck %s

// Smaller ones go first into shared memory, views and all; the others have places in the block's scratch.
// CHECK-LABEL: func.func @both
// CHECK-SAME: tilewright.scratch_bytes = 4096 : i64
// CHECK: %[[START:.+]] = arith.constant 0 : index
// CHECK: %[[FAR:.+]] = memref.view %arg2[%[[START]]][] : memref<1048576xi8> to memref<1024xf32>
// CHECK: %[[NEAR:.+]] = memref.alloc() {alignment = 16 : i64} : memref<2x8xf32, #gpu.address_space<workgroup>>
// CHECK: memref.subview %[[NEAR]]{{.+}} to memref<8xf32, strided<[1]>, #gpu.address_space<workgroup>>
// CHECK: memref.store %{{.+}}, %[[FAR]]
// CHECK-NOT: memref.dealloc
func.func @both(%task: index, %status: memref<1xi32>, %scratch: memref<1048576xi8>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant 1.0 : f32
  %far = memref.alloc() : memref<1024xf32>
  %near = memref.alloc() : memref<2x8xf32>
  %row = memref.subview %near[0, 0] [1, 8] [1, 1] : memref<2x8xf32> to memref<8xf32, strided<[1]>>
  memref.store %cst, %row[%c0] : memref<8xf32, strided<[1]>>
  memref.store %cst, %far[%c0] : memref<1024xf32>
  memref.dealloc %far : memref<1024xf32>
  return
}
