// RUN: %translate %s --arch sm_70 | filecheck %s

// A sum over a warp: floats move as they are, halves and booleans as words, doubles as two words.
// CHECK: .visible .entry exchange(
// CHECK-COUNT-4: shfl.sync.{{bfly|down|up|idx}}.b32
// CHECK: atom.global.add.f32
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @exchange(%a: memref<32xf32> {llvm.noalias}, %h: memref<32xf16> {llvm.noalias}, %d: memref<32xf64> {llvm.noalias},
                     %sum: memref<1xf32> {llvm.noalias}) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %thread = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %x = memref.load %a[%thread] : memref<32xf32>
    %y, %0 = gpu.shuffle xor %x, %one, %width : f32
    %s = arith.addf %x, %y : f32
    %u = memref.load %h[%thread] : memref<32xf16>
    %v, %1 = gpu.shuffle down %u, %one, %width : f16
    memref.store %v, %h[%thread] : memref<32xf16>
    %p = memref.load %d[%thread] : memref<32xf64>
    %q, %2 = gpu.shuffle up %p, %one, %width : f64
    memref.store %q, %d[%thread] : memref<32xf64>
    %old = memref.atomic_rmw addf %s, %sum[%c0] : (f32, memref<1xf32>) -> f32
    memref.store %old, %a[%thread] : memref<32xf32>
    gpu.return
  }
} }
