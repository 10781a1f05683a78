// RUN: %translate %s --arch sm_80 | filecheck %s
// RUN: %translate %s --arch sm_90a --emit resources | filecheck %s --check-prefix=RESOURCES

// CHECK: .visible .entry product(
// CHECK: cp.async.cg.shared.global [%r{{[0-9]+}}], [%rd{{[0-9]+}}], 16;
// CHECK: cp.async.cg.shared.global [%r{{[0-9]+}}+16], [%rd{{[0-9]+}}+16], 16, %r
// CHECK: cp.async.commit_group;
// CHECK: cp.async.wait_group 0;
// CHECK: bar.sync 0;
// CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK: st.global.v2.b32

// RESOURCES: spill_store_bytes: 0
// RESOURCES: warnings: ()
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @product(%a: memref<64x64xbf16> {llvm.noalias}, %o: memref<32x4xf32> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 32, 1, 1>} {
    %thread = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %s = memref.alloc() {alignment = 128 : i64} : memref<64x64xbf16, #gpu.address_space<workgroup>>
    %0 = nvgpu.device_async_copy %a[%thread, %c0], %s[%thread, %c0], 8 {bypassL1} : memref<64x64xbf16> to memref<64x64xbf16, #gpu.address_space<workgroup>>
    %1 = nvgpu.device_async_copy %a[%thread, %c8], %s[%thread, %c8], 8, %thread {bypassL1} : memref<64x64xbf16> to memref<64x64xbf16, #gpu.address_space<workgroup>>
    %group = nvgpu.device_async_create_group %0, %1
    nvgpu.device_async_wait %group {numGroups = 0 : i32}
    gpu.barrier
    %A = nvgpu.ldmatrix %s[%thread, %c0] {numTiles = 4 : i32, transpose = false} : memref<64x64xbf16, #gpu.address_space<workgroup>> -> vector<4x2xbf16>
    %B = nvgpu.ldmatrix %s[%thread, %c8] {numTiles = 2 : i32, transpose = true} : memref<64x64xbf16, #gpu.address_space<workgroup>> -> vector<2x2xbf16>
    %C = arith.constant dense<0.0> : vector<2x2xf32>
    %D = nvgpu.mma.sync(%A, %B, %C) {mmaShape = [16, 8, 16]} : (vector<4x2xbf16>, vector<2x2xbf16>, vector<2x2xf32>) -> vector<2x2xf32>
    %d = vector.extract %D[0] : vector<2xf32> from vector<2x2xf32>
    vector.store %d, %o[%thread, %c0] {alignment = 8 : i64} : memref<32x4xf32>, vector<2xf32>
    gpu.return
  }
} }
