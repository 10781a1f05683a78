// RUN: %translate %s --arch sm_80 | filecheck %s

// Shared memory is one external array, addressed in 32 bits; a static one could overlap it.
// CHECK: .extern .shared .align 1024 .b8 __dynamic_shmem__0[];
// CHECK-NOT: .shared .align
// CHECK: .visible .entry transpose(
// CHECK: st.shared.b16 [%r{{[0-9]+}}], %rs
// CHECK: bar.sync
// CHECK: ld.shared.b16
// CHECK: st.global.b16
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @transpose(%a: memref<32x32xf16> {llvm.noalias}, %b: memref<32x32xf16> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 1024, 1, 1>} {
    %thread = gpu.thread_id x
    %c32 = arith.constant 32 : index
    %tile = memref.alloc() : memref<32x33xf16, #gpu.address_space<workgroup>>
    %row = arith.divui %thread, %c32 : index
    %column = arith.remui %thread, %c32 : index
    %v = memref.load %a[%row, %column] : memref<32x32xf16>
    memref.store %v, %tile[%row, %column] : memref<32x33xf16, #gpu.address_space<workgroup>>
    gpu.barrier
    %w = memref.load %tile[%column, %row] : memref<32x33xf16, #gpu.address_space<workgroup>>
    memref.store %w, %b[%row, %column] : memref<32x32xf16>
    gpu.return
  }
} }
