// RUN: not %translate %s --arch sm_80 2>&1 | filecheck %s
// RUN: not %translate %s --arch sm_95 2>&1 | filecheck %s --check-prefix=ARCH

// What nothing lowers is named; it would end LLVM's translation, and the process with it.
// CHECK: error: no lowering to sm_80 for `math.isnormal` on (f32, i1); write the kernel without it
// ARCH: error: no PTX for the architecture `sm_95`; expected one of sm_70, {{.*}}sm_90a, sm_100
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @refused(%a: memref<1000xf32>, %b: memref<1000xi1>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %x = memref.load %a[%thread] : memref<1000xf32>
    %y = math.isnormal %x : f32
    memref.store %y, %b[%thread] : memref<1000xi1>
    gpu.return
  }
} }
