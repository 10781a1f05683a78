// RUN: tilewright-opt %s --pass-pipeline='builtin.module(lower-to-emulator)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(lower-to-emulator{checked=false})' | filecheck %s --check-prefix=PLAIN

// The body of one thread: ids and shared memory are arguments, what threads do together is a call.
// CHECK-LABEL: func.func @reverse(
// CHECK-SAME: %[[CONTEXT:[^:]+]]: !llvm.ptr, %[[THREAD:[^:]+]]: index, %[[BLOCK:[^:]+]]: index, %[[SHARED:[^:]+]]: memref<256xi8>
// CHECK-SAME: %[[A:[^:]+]]: memref<128xf32>, %[[B:[^:]+]]: memref<128xf32>
// CHECK-SAME: tilewright.emulated = {{.*}}checked{{.*}}true
// CHECK: call @twe_grid_dependency_wait(%[[CONTEXT]], %{{.+}}) : (!llvm.ptr, i32) -> ()
// CHECK-NOT: launch_dependents
// CHECK: memref.cast %[[SHARED]] : memref<256xi8> to memref<?xi8>
// Accesses are checked: the index against the extent, then the address. Loads stay where they were.
// CHECK: arith.cmpi ugt
// CHECK: scf.if
// CHECK: func.call @twe_index
// CHECK: call @twe_load_global(%[[CONTEXT]]
// CHECK: memref.load %[[A]]
// CHECK: call @twe_store_shared(%[[CONTEXT]]
// CHECK: memref.store
// CHECK: call @twe_barrier(%[[CONTEXT]], %{{.+}}) : (!llvm.ptr, i32) -> ()
// CHECK: call @twe_load_shared(%[[CONTEXT]]
// CHECK: memref.load
// Stores to global memory are carried out by the emulator.
// CHECK: call @twe_store_global(%[[CONTEXT]]
// CHECK-NOT: memref.store %{{.+}}, %[[B]]
// CHECK: return
// CHECK-NOT: gpu.module

// PLAIN-LABEL: func.func @reverse(
// PLAIN-NOT: twe_load
// PLAIN-NOT: twe_store
// PLAIN: call @twe_barrier
// PLAIN: memref.store %{{.+}}, %{{.+}} : memref<128xf32>
// PLAIN: return
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @reverse(%a: memref<128xf32>, %b: memref<128xf32>) kernel attributes {
        known_block_size = array<i32: 64, 1, 1>,
        tilewright.launch = {grid = 2 : i64, block = 64 : i64, cluster = 1 : i64, shared_bytes = 256 : i64}} {
      "tilewright.grid_dependency_wait"() : () -> ()
      "tilewright.launch_dependents"() : () -> ()
      %c0 = arith.constant 0 : index
      %c63 = arith.constant 63 : index
      %c64 = arith.constant 64 : index
      %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %s = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64xf32, #gpu.address_space<workgroup>>
      %thread = gpu.thread_id x
      %block = gpu.block_id x
      %first = arith.muli %block, %c64 : index
      %i = arith.addi %first, %thread : index
      %v = memref.load %a[%i] : memref<128xf32>
      memref.store %v, %s[%thread] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %back = arith.subi %c63, %thread : index
      %w = memref.load %s[%back] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %w, %b[%i] : memref<128xf32>
      gpu.return
    }
  }
}
