// RUN: not %translate %s --arch gfx90a 2>&1 | filecheck %s

// CHECK: error: `tilewright.nanosleep` is an instruction of NVIDIA's, the target is gfx90a; schedule the SIMT kernel
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @sleep() kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    "tilewright.nanosleep"() {ns = 20 : i64} : () -> ()
    gpu.return
  }
} }
