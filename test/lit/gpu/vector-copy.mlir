// RUN: %translate %s --arch sm_90a | filecheck %s
// RUN: %translate %s --arch sm_70 --emit resources | filecheck %s --check-prefix=RESOURCES

// 16-byte accesses where the alignment allows them, addresses by 32-bit indices, read-only loads of inputs, and the
// block's exact size.
// CHECK: .version 8.0
// CHECK: .target sm_90a
// CHECK: .visible .entry copy(
// CHECK: .reqntid 128, 1, 1
// CHECK: mad.lo.s32
// CHECK: mul.wide.s32
// CHECK: ld.global.nc.v4.b32
// CHECK: st.global.v4.b32
// CHECK-NOT: .local

// RESOURCES: spill_store_bytes: 0
// RESOURCES: warnings: ()
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @copy(%a: memref<7x1000xf32> {llvm.noalias}, %b: memref<7x1000xf32> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %c4 = arith.constant 4 : index
    %c500 = arith.constant 500 : index
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2.0 : f32
    %row = arith.divui %block, %c4 : index
    %base = arith.remui %block, %c4 : index
    %offset = arith.muli %base, %c500 : index
    %four = arith.muli %thread, %c4 : index
    %column = arith.addi %offset, %four : index
    %v = vector.load %a[%row, %column] {alignment = 16 : i64} : memref<7x1000xf32>, vector<4xf32>
    %twos = vector.broadcast %c2 : f32 to vector<4xf32>
    %w = arith.mulf %v, %twos : vector<4xf32>
    vector.store %w, %b[%row, %column] {alignment = 16 : i64} : memref<7x1000xf32>, vector<4xf32>
    gpu.return
  }
} }
