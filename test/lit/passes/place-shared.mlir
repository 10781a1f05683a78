// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(gpu.func(place-shared)))' | filecheck %s

// The strictest alignment comes first, then the largest. 60 floats take the place of 64: a barrier lies between.
// CHECK-LABEL: gpu.func @reuse
// CHECK-SAME: tilewright.launch = {grid = 3 : i64, shared_bytes = 338 : i64}
// CHECK: %[[ALL:.+]] = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
// CHECK: %[[AT_A:.+]] = arith.constant 80 : index
// CHECK: %[[A:.+]] = memref.view %[[ALL]][%[[AT_A]]][] : {{.*}} to memref<64xf32
// CHECK: %[[AT_B:.+]] = arith.constant 0 : index
// CHECK: memref.view %[[ALL]][%[[AT_B]]][] : {{.*}} to memref<33xf16
// CHECK: %[[AT_C:.+]] = arith.constant 80 : index
// CHECK: %[[C:.+]] = memref.view %[[ALL]][%[[AT_C]]][] : {{.*}} to memref<60xf32
// CHECK: %[[AT_D:.+]] = arith.constant 336 : index
// CHECK: memref.view %[[ALL]][%[[AT_D]]][] : {{.*}} to memref<2xi1
// CHECK-NOT: memref.alloc
// CHECK: memref.store %{{.+}}, %[[A]]
// CHECK: memref.subview %[[C]]
gpu.module @kernels {
  gpu.func @reuse(%x: memref<64xf32>) kernel attributes {tilewright.launch = {grid = 3 : i64}} {
    %c0 = arith.constant 0 : index
    %a = memref.alloc() : memref<64xf32, #gpu.address_space<workgroup>>
    %b = memref.alloc() {alignment = 1024 : i64} : memref<33xf16, #gpu.address_space<workgroup>>
    %c = memref.alloc() : memref<60xf32, #gpu.address_space<workgroup>>
    %d = memref.alloc() : memref<2xi1, #gpu.address_space<workgroup>>
    %v = memref.load %x[%c0] : memref<64xf32>
    memref.store %v, %a[%c0] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %s = memref.subview %c[0] [8] [1] : memref<60xf32, #gpu.address_space<workgroup>> to memref<8xf32, strided<[1]>, #gpu.address_space<workgroup>>
    memref.store %v, %s[%c0] : memref<8xf32, strided<[1]>, #gpu.address_space<workgroup>>
    memref.dealloc %a : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.return
  }

  // Without a barrier of the whole block between the uses each keeps bytes of its own.
  // CHECK-LABEL: gpu.func @no_barrier
  // CHECK-SAME: shared_bytes = 496 : i64
  gpu.func @no_barrier(%x: memref<64xf32>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %a = memref.alloc() : memref<64xf32, #gpu.address_space<workgroup>>
    %c = memref.alloc() : memref<60xf32, #gpu.address_space<workgroup>>
    %v = memref.load %x[%c0] : memref<64xf32>
    scf.for %i = %c0 to %c2 step %c1 {
      memref.store %v, %a[%i] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
    }
    memref.store %v, %c[%c0] : memref<60xf32, #gpu.address_space<workgroup>>
    gpu.return
  }

  // An asynchronous copy uses its target until it is waited for.
  // CHECK-LABEL: gpu.func @copies
  // CHECK-SAME: shared_bytes = 144 : i64
  gpu.func @copies(%x: memref<64xf32>) kernel {
    %c0 = arith.constant 0 : index
    %a = memref.alloc() : memref<16xf32, #gpu.address_space<workgroup>>
    %b = memref.alloc() : memref<20xf32, #gpu.address_space<workgroup>>
    %c = memref.alloc() : memref<12xf32, #gpu.address_space<workgroup>>
    %v = memref.load %x[%c0] : memref<64xf32>
    %0 = nvgpu.device_async_copy %x[%c0], %a[%c0], 4 : memref<64xf32> to memref<16xf32, #gpu.address_space<workgroup>>
    %g0 = nvgpu.device_async_create_group %0
    nvgpu.device_async_wait %g0 {numGroups = 0 : i32}
    %1 = nvgpu.device_async_copy %x[%c0], %b[%c0], 4 : memref<64xf32> to memref<20xf32, #gpu.address_space<workgroup>>
    %g1 = nvgpu.device_async_create_group %1
    gpu.barrier
    memref.store %v, %c[%c0] : memref<12xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    nvgpu.device_async_wait %g1 {numGroups = 0 : i32}
    gpu.return
  }

  // What primitives touch may be in use at any time.
  // CHECK-LABEL: gpu.func @primitives
  // CHECK-SAME: shared_bytes = 40 : i64
  gpu.func @primitives(%x: memref<64xf32>) kernel {
    %zero = arith.constant 0 : i32
    %c0 = arith.constant 0 : index
    %a = memref.alloc() : memref<8xi8, #gpu.address_space<workgroup>>
    %b = memref.alloc() : memref<6xf32, #gpu.address_space<workgroup>>
    %v = memref.load %x[%c0] : memref<64xf32>
    "tilewright.mbarrier_init"(%a, %zero, %zero) : (memref<8xi8, #gpu.address_space<workgroup>>, i32, i32) -> ()
    gpu.barrier
    memref.store %v, %b[%c0] : memref<6xf32, #gpu.address_space<workgroup>>
    gpu.return
  }

  // CHECK-LABEL: gpu.func @none
  // CHECK-SAME: shared_bytes = 0 : i64
  // CHECK-NOT: gpu.dynamic_shared_memory
  gpu.func @none() kernel {
    gpu.return
  }
}
