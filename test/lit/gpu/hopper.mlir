// RUN: %translate %s --arch sm_90a | filecheck %s
// RUN: %translate %s --arch sm_90a --emit resources | filecheck %s --check-prefix=RESOURCES
// RUN: %translate %s --arch sm_90a --emit llvm-ir | filecheck %s --check-prefix=LLVM

// Tensor maps are parameters by value; inline PTX is convergent, or LLVM might duplicate it.
// LLVM: define ptx_kernel void @load_multiply({{.*}}ptr {{.*}}byval([128 x i8]) align 64
// LLVM: call void asm sideeffect "mbarrier.init{{.*}} #9999
// LLVM: attributes #9999 = { convergent nounwind }

// CHECK: .extern .shared .align 1024 .b8 __dynamic_shmem__0[];
// CHECK: .param .align 64 .b8 load_multiply_param_1[128]
// CHECK: .reqntid 256, 1, 1
// CHECK: .minnctapersm 1
// CHECK: mbarrier.init.shared::cta.b64
// CHECK: fence.mbarrier_init.release.cluster;
// CHECK: bar.sync 0;
// CHECK: setmaxnreg.inc.sync.aligned.u32 232;
// CHECK: mbarrier.try_wait.parity.shared::cta.b64 done
// CHECK: wgmma.fence.sync.aligned;
// CHECK: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
// CHECK: wgmma.commit_group.sync.aligned;
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: setmaxnreg.dec.sync.aligned.u32 40;
// CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r{{[0-9]+}}], %r
// CHECK: cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {%r{{[0-9]+}}, %r{{[0-9]+}}}], [%r{{[0-9]+}}];

// Neither spills nor an ignored setmaxnreg (C7508) nor serialised products (C7510).
// RESOURCES: registers: 232
// RESOURCES: spill_store_bytes: 0
// RESOURCES: spill_load_bytes: 0
// RESOURCES: warnings: ()
!shared = memref<32784xi8, #gpu.address_space<workgroup>>
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @load_multiply(%o: memref<64x8xf32> {llvm.noalias}, %map: !llvm.ptr) kernel attributes {
      known_block_size = array<i32: 256, 1, 1>, nvvm.minctasm = 1 : i32,
      tilewright.launch = {grid = 1 : i64, block = 256 : i64, cluster = 1 : i64, workspace_bytes = 0 : i64, zeroed_bytes = 0 : i64,
        cooperative = false, asserts = [], tensor_maps = [{buffer = 0 : i64, dtype = "bf16", shape = array<i64: 64, 64>,
        strides_bytes = array<i64: 128>, box = array<i64: 64, 64>, swizzle_bytes = 128 : i64}]}} {
    %s = memref.alloc() {alignment = 1024 : i64} : !shared
    %thread = gpu.thread_id x
    %t = arith.index_castui %thread : index to i32
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %b = arith.constant 16384 : i32
    %barrier = arith.constant 32768 : i32
    %bytes = arith.constant 16384 : i32
    %c7 = arith.constant 7 : i32
    %c0 = arith.constant 0 : index
    %f = arith.constant 0.0 : f32
    %first = arith.cmpi eq, %t, %zero : i32
    scf.if %first {
      "tilewright.mbarrier_init"(%s, %barrier, %one) : (!shared, i32, i32) -> ()
      "tilewright.fence_mbarrier_init"() : () -> ()
    }
    gpu.barrier
    %group = arith.shrui %t, %c7 : i32
    %uniform = "tilewright.uniform"(%group) : (i32) -> i32
    %produces = arith.cmpi eq, %uniform, %zero : i32
    scf.if %produces {
      "tilewright.set_max_registers"() {count = 40 : i64, increase = false} : () -> ()
      scf.if %first {
        "tilewright.mbarrier_expect_tx"(%s, %barrier, %bytes) : (!shared, i32, i32) -> ()
        "tilewright.tma_load"(%s, %zero, %map, %s, %barrier, %zero, %zero) : (!shared, i32, !llvm.ptr, !shared, i32, i32, i32) -> ()
      }
    } else {
      "tilewright.set_max_registers"() {count = 232 : i64, increase = true} : () -> ()
      "tilewright.mbarrier_wait"(%s, %barrier, %zero) : (!shared, i32, i32) -> ()
      %d:4 = "tilewright.wgmma"(%f, %f, %f, %f, %s, %zero, %s, %b, %zero) {
        n = 8 : i64, k_steps = 4 : i64, type = "bf16",
        a_major = "k", a_swizzle_bytes = 128 : i64, a_leading_bytes = 0 : i64, a_stride_bytes = 1024 : i64, a_step_bytes = 32 : i64,
        b_major = "k", b_swizzle_bytes = 128 : i64, b_leading_bytes = 0 : i64, b_stride_bytes = 1024 : i64, b_step_bytes = 32 : i64
      } : (f32, f32, f32, f32, !shared, i32, !shared, i32, i32) -> (f32, f32, f32, f32)
      %e:4 = "tilewright.wgmma_wait"(%d#0, %d#1, %d#2, %d#3) {groups = 0 : i64} : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
      %c64 = arith.constant 64 : index
      %row = arith.remui %thread, %c64 : index
      memref.store %e#0, %o[%row, %c0] : memref<64x8xf32>
    }
    gpu.return
  }
} }
