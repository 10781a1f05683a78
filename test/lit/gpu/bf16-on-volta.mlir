// RUN: %translate %s --arch sm_70 | filecheck %s
// RUN: %translate %s --arch sm_80 | filecheck %s --check-prefix=AMPERE

// Volta has no bf16: values are shifted to f32, computed, and rounded to nearest, ties to even, by integer code.
// CHECK: .target sm_70
// CHECK: .visible .entry scale(
// CHECK: shl.b32 %r{{[0-9]+}}, %r{{[0-9]+}}, 16;
// CHECK: fma.rn.f32
// CHECK-NOT: bf16
// CHECK: add.s32 %r{{[0-9]+}}, %r{{[0-9]+}}, 32767;
// CHECK-NOT: bf16
// CHECK: st.global

// AMPERE: cvt.f32.bf16
// AMPERE: fma.rn.f32
// AMPERE: cvt.rn.bf16.f32
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @scale(%a: memref<1000xbf16> {llvm.noalias}, %b: memref<1000xbf16> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %x = memref.load %a[%thread] : memref<1000xbf16>
    %y = math.fma %x, %x, %x : bf16
    memref.store %y, %b[%thread] : memref<1000xbf16>
    gpu.return
  }
} }
