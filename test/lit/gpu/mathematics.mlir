// RUN: %translate %s --arch sm_80 | filecheck %s
// RUN: %translate %s --arch sm_80 --emit llvm-ir | filecheck %s --check-prefix=LLVM

// Functions come from libdevice and are inlined; halves are widened to f32, and a product and a sum become one FMA.
// LLVM: declare float @__nv_erff(float)
// LLVM: call float @__nv_expf(float

// CHECK: .visible .entry functions(
// CHECK-NOT: call
// CHECK: ex2.approx.ftz.f32
// CHECK-NOT: call
// CHECK: cvt.rn.f16.f32
// CHECK-NOT: .func
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @functions(%a: memref<1000xf32> {llvm.noalias}, %h: memref<1000xf16> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %x = memref.load %a[%thread] : memref<1000xf32>
    %y = math.erf %x : f32
    memref.store %y, %a[%thread] : memref<1000xf32>
    %u = memref.load %h[%thread] : memref<1000xf16>
    %v = math.exp %u : f16
    memref.store %v, %h[%thread] : memref<1000xf16>
    gpu.return
  }
} }
