// RUN: %translate %s --arch sm_90a | filecheck %s

// Positions in a buffer of 2^31 bytes or more take 64 bits.
// CHECK: .visible .entry large(
// CHECK: mul.wide.u32 %[[ROW:rd[0-9]+]], %r{{[0-9]+}}, 32769;
// CHECK: add.s64 %{{.+}}, %[[ROW]], %rd
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @large(%a: memref<65536x32769xi8> {llvm.noalias}, %b: memref<65536x32769xi8> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %x = memref.load %a[%block, %thread] : memref<65536x32769xi8>
    memref.store %x, %b[%block, %thread] : memref<65536x32769xi8>
    gpu.return
  }
} }
